package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"liqo.io/agent/network/packet"
	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
)

// Times of a path.
const (
	probeEvery   = 2 * time.Second        // a probe of each stream
	silentAfter  = 3 * probeEvery         // a stream on which nothing came for that long does not connect
	deadAfter    = 30 * time.Second       // and ends after that long, if no other took its place
	yieldFor     = time.Second            // the cluster with the greater ID leaves the other one that long to connect
	freshFor     = 2 * time.Second        // a stream that is not older may have crossed with that of the peer
	dialFirst    = 100 * time.Millisecond // pause after a failed attempt to connect, doubled with each further one: the peer may be about to want us
	redialFirst  = 500 * time.Millisecond // the same after a stream that did not last, or when the peer may be somewhere else
	redialMost   = 15 * time.Second
	refusedMost  = 5 * time.Minute // pause when the peer says how long it is to be
	dialTimeout  = 10 * time.Second
	offerTimeout = 10 * time.Second // until run takes a connection of the peer
	steadyFor    = time.Minute      // a connection that was lost too often has to last that long
	partTimeout  = time.Second      // until the peer has taken that the connection ends
)

// path is the way of packets to one peer.
type path struct {
	engine   *Engine
	id       peer.ClusterID
	counters counters

	offers chan *stream  // that the peer has opened
	again  chan struct{} // something changed; capacity 1
	moved  atomic.Bool   // the peer may be somewhere else
	gone   chan struct{} // closed when the path is not wanted any more

	current atomic.Pointer[stream] // written by run
	route   atomic.Pointer[routed] // nil until device and filter know the blocks

	mu      sync.Mutex
	stop    context.CancelFunc // of run; nil while it does not run
	spec    Peer
	blocks  Blocks
	away    *Move // the last change of addresses that were taken
	news    bool  // blocks or failure are others than Changed was told of
	failure error // of the last attempt to connect, or why the last stream ended
	// disagreed is why what the peer said last cannot be, nil if it can. An attempt to connect that fails for
	// another reason does not hide it.
	disagreed error
	state     State
	since     time.Time
	tunnel    tunnel
	said      int                       // the length of the longest packet by WireGuard that the peer was told
	thirds    map[netip.Addr]netip.Addr // as applied last; nil while not known
	up        time.Time                 // when packets began to pass; zero while none do
	flaps     int                       // how often it was lost since it is lost too often, 0 if it is not
	losses    *throttle.Buckets[struct{}]
}

// routed are the addresses of packets that may pass, and those that pods of third clusters have at the peer.
type routed struct {
	theirs, ours []netip.Prefix
	thirds       map[netip.Addr]netip.Addr
}

func newPath(e *Engine, spec Peer) *path {
	return &path{
		engine: e, id: spec.ID, spec: spec, offers: make(chan *stream), again: make(chan struct{}, 1),
		gone: make(chan struct{}), state: Connecting, since: time.Now(), news: true,
		losses: throttle.New[struct{}](lossRate, lossBurst, 1),
	}
}

func (p *path) wake() { wake(p.again) }

// specify changes what is wanted of the path, and is false if nothing changed.
func (p *path) specify(spec Peer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spec.equal(spec) {
		return false
	}
	p.spec = spec
	return true
}

// remember sets the blocks. Packets pass again once device and filter know them.
func (p *path) remember(b Blocks) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if reflect.DeepEqual(p.blocks, b) {
		return
	}
	p.blocks, p.news = b, true
	p.route.Store(nil)
	p.wake()
}

func (p *path) known() (Blocks, Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.blocks, p.spec
}

// apply says that device and filter know these addresses of these blocks, nil for none.
func (p *path) apply(b Blocks, r *routed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if reflect.DeepEqual(p.blocks, b) { // else others were agreed on meanwhile
		p.route.Store(r)
		if r != nil && !reflect.DeepEqual(p.thirds, r.thirds) {
			p.thirds, p.news = r.thirds, true
		}
		p.wake()
	} else if r == nil {
		p.unroute()
	}
}

// unroute has no packets pass until apply.
func (p *path) unroute() {
	p.route.Store(nil)
	p.wake()
}

// close ends the path for good, and tells the peer. It does not wait.
func (p *path) close() {
	close(p.gone)
	p.unroute()
	if s := p.current.Load(); s != nil {
		s.part()
	}
}

// closed reports whether close was called.
func (p *path) closed() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// restart ends the stream, so that both sides say anew what is with their addresses.
func (p *path) restart() {
	if s := p.current.Load(); s != nil {
		s.end(errRestart)
	}
}

// start has the path run, unless it does.
func (p *path) start(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		return
	}
	ctx, p.stop = context.WithCancel(ctx)
	p.engine.running.Go(func() {
		p.run(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stop()
		p.stop = nil
		wake(p.engine.again) // it may be wanted again meanwhile
	})
}

// halt ends what start has begun. It does not wait.
func (p *path) halt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		p.stop()
	}
}

// dialer is the part of run that connects to the peer.
type dialer struct {
	results  chan dialResult
	cancel   context.CancelFunc // of the attempt that is under way, nil for none
	begun    time.Time          // the last attempt
	failures int
	at       time.Time // not before
}

type dialResult struct {
	conn net.Conn
	err  error
}

// run keeps a stream to the peer until the path is not wanted any more or ctx ends.
func (p *path) run(ctx context.Context) {
	d := dialer{results: make(chan dialResult), at: time.Now().Add(p.patience())}
	var streams sync.WaitGroup
	defer func() {
		if s := p.current.Swap(nil); s != nil && p.closed() {
			s.part()
		} else if s != nil {
			s.end(errStopped)
		}
		if d.cancel != nil {
			d.cancel()
			if r := <-d.results; r.conn != nil {
				_ = r.conn.Close()
			}
		}
		streams.Wait()
		p.settle(nil, true)
	}()
	adopt := func(s *stream) {
		if old := p.current.Swap(s); old != nil {
			old.end(errReplaced)
		}
		if !p.engine.cfg.Trusted(p.id) { // Distrust may have been called while it was opened
			s.end(errDistrusted)
		}
		s.say(message{Pods: p.engine.pods(), WireGuard: p.offer(s.conn.RemoteAddr())})
		s.probe()
		streams.Go(func() {
			s.run(ctx)
			p.wake()
		})
	}
	probes := time.NewTicker(probeEvery)
	defer probes.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s := p.current.Load()
		if s != nil && s.ended() {
			p.lost(s, &d)
			s = nil
		}
		p.settle(s, false)
		idle := s == nil || s.silent() >= silentAfter
		if p.moved.Swap(false) && idle {
			d.at, d.failures = d.begun.Add(redialFirst), 0
		}
		timer.Stop()
		if idle && d.cancel == nil {
			if wait := time.Until(d.at); wait > 0 {
				timer.Reset(wait)
			} else {
				p.dial(ctx, &d)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-p.gone:
			return
		case <-p.again:
		case <-timer.C:
		case <-probes.C:
			if s != nil {
				s.tick()
			}
		case offered := <-p.offers:
			switch {
			case p.leads() && s != nil && s.dialed && !idle && time.Since(s.begun) < freshFor:
				offered.end(errCrossed)
			case p.leads(): // if an attempt is under way, the peer will take that instead
				adopt(offered)
			default:
				if d.cancel != nil {
					d.cancel()
				}
				adopt(offered)
			}
		case r := <-d.results:
			d.cancel()
			d.cancel = nil
			crossed := s != nil && !idle && !s.dialed && !s.begun.Before(d.begun)
			switch {
			case r.err == nil && (p.leads() || !crossed):
				adopt(newStream(p, r.conn, true))
			case r.err == nil:
				_ = r.conn.Close() // the peer has not taken it
			case idle:
				p.failed(r.err, &d)
			}
		}
	}
}

// patience is how long the peer is left to connect first.
func (p *path) patience() time.Duration {
	if p.leads() {
		return 0
	}
	return yieldFor
}

// leads reports whether this cluster's streams count if both connect at the same time.
func (p *path) leads() bool { return p.engine.cfg.Self() < p.id }

// dial begins an attempt to connect.
func (p *path) dial(ctx context.Context, d *dialer) {
	d.begun = time.Now()
	ctx, d.cancel = context.WithTimeout(ctx, dialTimeout)
	go func() {
		conn, err := p.engine.cfg.Dial(ctx, p.id)
		d.results <- dialResult{conn, err}
	}()
}

// failed keeps why an attempt to connect failed, and says when the next one is.
func (p *path) failed(err error, d *dialer) {
	d.failures++
	pause := redial(dialFirst, d.failures)
	if later := (interface{ RetryAfter() time.Duration })(nil); errors.As(err, &later) {
		pause = max(pause, min(later.RetryAfter(), refusedMost))
	}
	d.at = time.Now().Add(pause)
	p.engine.cfg.Logger.Debug("cannot connect with the network of a peer", "peer", p.id, "error", err, "again", pause)
	p.fail(err)
}

// leave keeps why the peer has other addresses.
func (p *path) leave(m Move) {
	p.engine.cfg.Logger.Warn("the pods of a peer have other addresses here, because this machine has a route to the old ones",
		"peer", p.id, "route", m.Taken, "from", m.From, "to", m.To)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away, p.news = &m, true
}

// redial is the pause after that many failures in a row.
func redial(first time.Duration, failures int) time.Duration {
	return min(first<<min(failures-1, 10), redialMost)
}

// lost forgets a stream that has ended, and says when the next attempt to connect is.
func (p *path) lost(s *stream, d *dialer) {
	p.current.Store(nil)
	d.at = time.Now().Add(p.patience())
	if time.Since(s.begun) < redialMost { // one that does not last is like one that fails
		d.failures++
		d.at = d.at.Add(redial(redialFirst, d.failures))
	} else {
		d.failures = 0
	}
	p.fail(s.why)
	if errors.Is(s.why, errRestart) { // which is no loss
		p.mu.Lock()
		defer p.mu.Unlock()
		p.up = time.Time{}
	}
}

// told takes a message of the peer, on the goroutine that reads s.
func (p *path) told(ctx context.Context, s *stream, m message) (err error) {
	defer func() {
		if err == nil && len(m.Pods) == 0 || errors.Is(err, errReplaced) {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.disagreed = err
	}()
	if len(m.Pods) > 0 {
		if s.saidPods {
			return errors.New("the peer says twice which addresses its pods have")
		}
		s.saidPods = true
		if err := checkPods(m.Pods); err != nil {
			return fmt.Errorf("the peer's range of pods cannot be used: %w", err)
		}
		theirs, err := p.engine.assign(ctx, p, s, m.Pods)
		if err != nil {
			return err
		}
		s.say(message{Yours: theirs})
		p.invited(s, m.WireGuard)
	}
	if m.Fell {
		p.fallen()
	}
	if len(m.Yours) > 0 {
		if s.saidYours {
			return errors.New("the peer says twice which addresses our pods have there")
		}
		s.saidYours = true
		return p.engine.accept(ctx, p, s, m.Yours)
	}
	return nil
}

// send takes a frame of the device that is addressed to the peer.
func (p *path) send(src netip.Addr, frame []byte) {
	r, s := p.route.Load(), p.current.Load()
	switch {
	case r == nil || !containsAny(r.ours, src):
		p.counters.drop(dropSource) // it would mean nothing at the peer, or somebody else
	case s == nil:
		p.counters.drop(dropDown)
	case !s.packet(frame):
		p.counters.drop(dropFull)
	default:
		p.counters.sent(len(frame))
	}
}

// deliver takes a frame of the peer.
func (p *path) deliver(frame []byte) {
	info, err := packet.Check(frame, MTU)
	if err != nil {
		p.counters.drop(dropInvalid)
		return
	}
	switch r := p.route.Load(); {
	case r == nil || !containsAny(r.theirs, info.Src) || !containsAny(r.ours, info.Dst):
		p.counters.drop(dropForeign)
	case !p.engine.write(frame):
		p.counters.drop(dropDevice)
	default:
		p.counters.received(len(frame))
	}
}

func containsAny(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
