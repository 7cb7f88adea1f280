package names

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
)

// Addresses are the addresses, IPv4 first, at which guests ask, on a cluster whose pods have
// some of the family. They are link-local, or of nobody else, and the same on every machine, so
// that pods keep them.
var Addresses = []netip.Addr{netip.MustParseAddr("169.254.241.53"), netip.MustParseAddr("fd6c:6971:6f::53")}

// AskPort is the port, by UDP and TCP, that guests ask. Queries are redirected to Port, for
// which the agent needs no privilege.
const (
	AskPort = 53
	Port    = 6453
)

// Limits of what guests may ask.
const (
	perSecond, burst      = 1000, 2000 // queries of one address
	allPerSecond          = 2000       // of all guests of a consumer, each of which costs the cluster DNS as much as us
	allBurst              = 2 * allPerSecond
	perGuest, perConsumer = 64, 256 // that are under way
	inAll                 = 1024
	connsPerConsumer      = 64 // TCP
	connsInAll            = 512
	largePerConsumer      = 2 // answers that do not fit into a datagram, at a time: each takes some MB of memory
	largeInAll            = 8
	maxSources            = 4096 // whose rate is remembered, and consumers
	idleTimeout           = 10 * time.Second
	answerTimeout         = 5 * time.Second // for all of a query
	// unknownFor is how long a query waits until its source is known: a pod may ask before the
	// API server has its address.
	unknownFor  = 2 * time.Second
	verifyEvery = 5 * time.Second
)

// timeouts are those that differ in tests: answerTimeout, tryTimeout and unknownFor.
type timeouts struct{ answer, try, unknown time.Duration }

// Guest is who has an address.
type Guest struct {
	Consumer peer.ClusterID
	Domain   string // of the consumer's cluster
	// Server are the addresses by which the guest reaches the API server of the consumer's cluster;
	// none: the name of that does not exist for it.
	Server []netip.Addr
}

// State is what a Server goes by. It is not changed once it is in use.
type State struct {
	// Addresses to listen on; none: nobody is answered.
	Addresses []netip.Addr
	// Pods are the addresses that pods of this cluster can have.
	Pods []netip.Prefix
	// Guests are the pods of consumers, and Others those that are nobody's guests.
	Guests map[netip.Addr]Guest
	Others map[netip.Addr]bool
	// Servers are the DNS servers of this cluster, and Domain is its domain.
	Servers []netip.AddrPort
	Domain  string
	// Starting: there are no Servers because the pods that are to be these have no addresses yet.
	Starting bool
	// Nodes are the names of its nodes, in small letters, which guests may not ask for.
	Nodes map[string]bool
}

// Config is what a Server needs. Its functions are called on several goroutines and must be
// quick.
type Config struct {
	// Namespaces returns the guest namespaces of a consumer, by those that they stand for.
	Namespaces func(consumer peer.ClusterID) map[string]string
	// Outside reports whether guests may ask for names outside of clusters.
	Outside func() bool
	// Changed is told that Serving or Pending may return something else.
	Changed func()
	Logger  *slog.Logger
}

// Server answers the queries of guests. Its methods may be called from any goroutine.
type Server struct {
	cfg      Config
	timeouts timeouts
	rates    *throttle.Buckets[netip.Addr]
	shares   *throttle.Buckets[peer.ClusterID]
	guests   *throttle.Slots[netip.Addr]
	all      *throttle.Slots[peer.ClusterID]
	conns    *throttle.Slots[peer.ClusterID]
	large    *throttle.Slots[peer.ClusterID]

	queries, rewritten atomic.Uint64

	mu       sync.Mutex
	state    *State
	told     bool          // Set was called
	said     bool          // what Pending was when Changed was called last
	changed  chan struct{} // closed, and replaced, when state is another
	serving  []netip.Addr
	problem  error
	refusals map[string]uint64
}

// New returns a Server that answers nobody. It starts nothing.
func New(cfg Config) *Server {
	return &Server{
		cfg: cfg, timeouts: timeouts{answerTimeout, tryTimeout, unknownFor}, rates: throttle.New[netip.Addr](perSecond, burst, maxSources), shares: throttle.New[peer.ClusterID](allPerSecond, allBurst, maxSources),
		guests: throttle.NewSlots[netip.Addr](perGuest, inAll), all: throttle.NewSlots[peer.ClusterID](perConsumer, inAll),
		conns: throttle.NewSlots[peer.ClusterID](connsPerConsumer, connsInAll), large: throttle.NewSlots[peer.ClusterID](largePerConsumer, largeInAll),
		state: new(State), changed: make(chan struct{}), refusals: make(map[string]uint64),
	}
}

// Set says what to go by from now on.
func (s *Server) Set(state *State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = true
	if reflect.DeepEqual(s.state, state) {
		return
	}
	if !slices.Equal(s.state.Servers, state.Servers) || s.state.Domain != state.Domain {
		s.problem = nil // these were not asked yet
	}
	s.state = state
	close(s.changed)
	s.changed = make(chan struct{})
}

// current returns the state, and what is closed when there is another one.
func (s *Server) current() (*State, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.changed
}

// Serving returns the addresses at which guests are answered, none if they are not.
func (s *Server) Serving() []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serving
}

// Pending reports whether it is still unknown whether guests are answered, as while the cluster DNS has no address or does not answer.
func (s *Server) Pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending()
}

// pending is Pending. The caller holds the lock.
func (s *Server) pending() bool {
	return !s.told || s.state.Starting || len(s.state.Addresses) > 0 && len(s.serving) == 0 && (s.problem == nil || errors.Is(s.problem, errSilent))
}

// Problem returns why guests are not answered, nil if they are or need not be.
func (s *Server) Problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// Stats counts since the start.
type Stats struct {
	Queries   uint64
	Rewritten uint64            // asked of the cluster DNS by another name
	Refused   map[string]uint64 // by reason
}

// Stats returns the present counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Stats{Queries: s.queries.Load(), Rewritten: s.rewritten.Load(), Refused: make(map[string]uint64, len(s.refusals))}
	for why, n := range s.refusals {
		out.Refused[why] = n
	}
	return out
}

func (s *Server) refuse(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusals[why]++
}

// note keeps whether guests are answered, and tells of a change.
func (s *Server) note(serving []netip.Addr, problem error) {
	s.mu.Lock()
	changed := !slices.Equal(s.serving, serving) || (s.problem == nil) != (problem == nil)
	news := fmt.Sprint(s.problem) != fmt.Sprint(problem)
	s.serving, s.problem = serving, problem
	pending := s.pending()
	changed, s.said = changed || s.said != pending, pending
	s.mu.Unlock()
	if news && problem != nil {
		s.cfg.Logger.Warn("the names of consumers cannot be answered here; trying again", "error", problem)
	}
	if changed {
		s.cfg.Changed()
	}
}

// Run answers queries until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	defer func() {
		if ctx.Err() != nil {
			s.note(nil, nil)
		} // else the problem stands until it is tried again
	}()
	verified := ""
	for ctx.Err() == nil {
		state, changed := s.current()
		switch {
		case len(state.Addresses) == 0:
			s.note(nil, nil)
			select {
			case <-ctx.Done():
			case <-changed:
			}
		case verified != state.Domain:
			// Else names of this cluster would pass for names outside.
			if err := verify(ctx, state.Domain, state.Servers, s.timeouts.try); err == nil {
				verified = state.Domain
			} else if ctx.Err() == nil {
				s.note(nil, err)
				timer := time.NewTimer(verifyEvery)
				select {
				case <-ctx.Done():
				case <-changed:
				case <-timer.C:
				}
				timer.Stop()
			}
		default:
			if err := s.serve(ctx, state); err != nil {
				s.note(nil, err)
				return err
			}
		}
	}
	return nil
}

// serve answers queries at the addresses of a state, until others are wanted, or ctx ends.
func (s *Server) serve(ctx context.Context, state *State) error {
	ctx, cancel := context.WithCancel(ctx)
	var working sync.WaitGroup
	failed := make(chan error, 2*len(state.Addresses))
	defer working.Wait()
	defer cancel()
	for _, addr := range state.Addresses {
		udp, tcp, err := listen(ctx, netip.AddrPortFrom(addr, Port))
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { _, _ = udp.Close(), tcp.Close() })
		defer func() { stop(); _, _ = udp.Close(), tcp.Close() }()
		working.Go(func() { failed <- s.datagrams(ctx, &working, udp) })
		working.Go(func() { failed <- s.accept(ctx, &working, tcp) })
	}
	s.note(state.Addresses, nil)
	for {
		now, changed := s.current()
		if !slices.Equal(now.Addresses, state.Addresses) || now.Domain != state.Domain {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("answer DNS queries: %w", err)
		case <-changed:
		}
	}
}

// datagrams answers queries by UDP.
func (s *Server) datagrams(ctx context.Context, working *sync.WaitGroup, socket *net.UDPConn) error {
	buffer := make([]byte, maxQuery+1)
	for {
		n, from, err := socket.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		src := from.Addr().Unmap()
		release, ok := s.admit(src)
		if !ok {
			continue // its resolver asks again
		}
		query := slices.Clone(buffer[:n])
		working.Go(func() {
			defer release()
			if answer := s.handle(ctx, src, query, false); answer != nil {
				_, _ = socket.WriteToUDPAddrPort(answer, from)
			}
		})
	}
}

// admit takes a place for a query, false if the source asks too much.
func (s *Server) admit(src netip.Addr) (release func(), ok bool) {
	state, _ := s.current()
	consumer := state.Guests[src].Consumer
	switch {
	case s.rates.Take(src, time.Now()) > 0, s.shares.Take(consumer, time.Now()) > 0, !s.guests.Take(src):
	case !s.all.Take(consumer):
		s.guests.Release(src)
	default:
		return func() { s.guests.Release(src); s.all.Release(consumer) }, true
	}
	s.refuse(refusedRate)
	return nil, false
}

// handle answers a query, with nil for silence.
func (s *Server) handle(ctx context.Context, src netip.Addr, raw []byte, tcp bool) []byte {
	ctx, cancel := context.WithTimeout(ctx, s.timeouts.answer)
	defer cancel()
	s.queries.Add(1)
	if len(raw) < headerSize || len(raw) > maxQuery || raw[2]&responseBit != 0 { // never an answer to an answer
		s.refuse(refusedMalformed)
		return nil
	}
	q := new(dns.Msg)
	if err := q.Unpack(raw); err != nil {
		s.refuse(refusedMalformed)
		bare := &dns.Msg{MsgHdr: dns.MsgHdr{Id: uint16(raw[0])<<8 | uint16(raw[1]), Response: true, Rcode: dns.RcodeFormatError}}
		return fit(bare, minUDP)
	}
	size := dns.MaxMsgSize
	if !tcp {
		size = room(q)
	}
	l, no := s.understand(ctx, src, q)
	if no != nil {
		return fit(no, size)
	}
	m := upstream(q, l.name, l.as)
	got, err := exchange(ctx, "udp", m, l.servers, s.timeouts.try)
	if err == nil && got.Truncated && tcp { // by UDP, the guest would not take more either
		if !s.large.Await(ctx, l.consumer) {
			s.refuse(refusedRate)
			return fit(reply(q, dns.RcodeServerFailure), size)
		}
		defer s.large.Release(l.consumer)
		got, err = exchange(ctx, "tcp", m, l.servers, s.timeouts.try)
	}
	if err != nil {
		s.refuse(refusedUpstream)
		s.cfg.Logger.Debug("a DNS query of a guest is not answered", "peer", l.consumer, "error", err)
		return fit(reply(q, dns.RcodeServerFailure), size)
	}
	return fit(l.answer(q, l.name, l.as, got), size)
}

const (
	headerSize  = 12
	responseBit = 0x80 // in the third byte
	maxQuery    = 4096 // bytes
)

// lookup is what the cluster DNS is asked for a guest.
type lookup struct {
	*view
	consumer peer.ClusterID
	name     string
	as       meaning
	servers  []netip.AddrPort
}

// understand returns what the cluster DNS is to be asked for a query, or the answer to the query.
func (s *Server) understand(ctx context.Context, src netip.Addr, q *dns.Msg) (*lookup, *dns.Msg) {
	guest, state, ok := s.who(ctx, src)
	if !ok {
		s.refuse(refusedUnknown)
		return nil, reply(q, dns.RcodeRefused)
	}
	if rcode, why := check(q); why != "" {
		s.refuse(why)
		return nil, reply(q, rcode)
	}
	v := &view{
		theirs: dns.CanonicalName(guest.Domain), ours: dns.CanonicalName(state.Domain),
		namespaces: s.cfg.Namespaces(guest.Consumer), nodes: state.Nodes, outside: s.cfg.Outside(), server: guest.Server,
	}
	name, as := v.ask(q.Question[0].Name)
	switch as {
	case empty:
		return nil, v.absent(q, dns.RcodeSuccess, negativeTTL)
	case foreign:
		s.refuse(refusedForeign)
		return nil, v.absent(q, dns.RcodeNameError, negativeTTL)
	case server:
		return nil, v.located(q)
	case outsider:
		s.refuse(refusedOutside)
		return nil, reply(q, dns.RcodeRefused)
	case own:
		s.rewritten.Add(1)
	}
	return &lookup{view: v, consumer: guest.Consumer, name: name, as: as, servers: state.Servers}, nil
}

// who returns the guest that has an address. A pod of which nothing is known may be a new one.
func (s *Server) who(ctx context.Context, src netip.Addr) (Guest, *State, bool) {
	timer := time.NewTimer(s.timeouts.unknown)
	defer timer.Stop()
	for {
		state, changed := s.current()
		guest, ok := state.Guests[src]
		if ok {
			return guest, state, true
		}
		if state.Others[src] || !slices.ContainsFunc(state.Pods, func(p netip.Prefix) bool { return p.Contains(src) }) {
			return Guest{}, nil, false
		}
		select {
		case <-changed:
		case <-timer.C:
			return Guest{}, nil, false
		case <-ctx.Done():
			return Guest{}, nil, false
		}
	}
}
