package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"liqo.io/agent/network/filter"
	"liqo.io/agent/network/netdev"
	"liqo.io/agent/network/packet"
	"liqo.io/agent/network/tun"
	"liqo.io/agent/network/wireguard"
	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
)

// MTU is that of the device, in bytes. Packets of the usual size fit, because a stream has no packets of its own.
const MTU = 1500

// Node is what this cluster's network is like. The zero Node means that it cannot be connected.
type Node struct {
	// Pods are the addresses of the pods of this cluster's node, at most one range of each family.
	Pods []netip.Prefix
	// Host is the node's own address in each of Pods.
	Host []netip.Addr
}

// Peer is a cluster with which this one is to be connected.
type Peer struct {
	ID peer.ClusterID
	// Out says which connections may begin here, and In those that may begin there, in addresses as they are seen in this
	// cluster.
	Out, In []filter.Grant
	// API is how pods of the peer reach the API server of this cluster.
	API filter.API
	// Thirds are pods of other peers, by their addresses here, that are to have one at this peer. nil: not known yet.
	Thirds []netip.Addr
}

// Device passes packets between the kernel and the engine. It is *tun.Device.
type Device interface {
	Read(b []byte) (int, error)
	Write(frame []byte) (int, error)
	Close() error
	Configure(want netdev.Config) error
	Watch(ctx context.Context, changed func()) error
}

// Table is what the kernel lets pass, and translates. It is *filter.Table.
type Table interface {
	Set(filter.Desired) error
	// Thirds returns what the tables of an earlier run have of filter.Peer.Thirds, by the names of peers.
	Thirds() (map[string][]filter.Third, error)
	// Bounds reports whether the kernel can bound the connections of peers.
	Bounds() bool
	Remove() error
	Watch(ctx context.Context, changed func()) error
	Close() error
}

// Config is what an Engine needs. Its functions are called on several goroutines.
type Config struct {
	// Self returns the ID of this cluster. It must be quick.
	Self func() peer.ClusterID
	// Device is the name of the network device.
	Device string
	// Dial connects to a peer's endpoint for packets. The connection is closed by the engine. An error with a method
	// RetryAfter() time.Duration says how long not to try again.
	Dial func(ctx context.Context, id peer.ClusterID) (net.Conn, error)
	// Trusted reports whether packets may be exchanged with a peer now. It must be quick; nil: always. When it is no more so,
	// Distrust is to be called.
	Trusted func(id peer.ClusterID) bool
	// Load returns the blocks of all peers that were stored, and Store stores those of one; zero Blocks are none.
	Load  func(ctx context.Context) (map[peer.ClusterID]Blocks, error)
	Store func(ctx context.Context, id peer.ClusterID, b Blocks) error
	// Range returns where IPv4 blocks come from. It must be quick.
	Range func() netip.Prefix
	// Changed is told that the Status of a path may have changed. No lock is held.
	Changed func(id peer.ClusterID)
	Logger  *slog.Logger
}

// host is what the kernel does for an engine.
type host struct {
	device func(name string, mtu int) (Device, error)
	remove func(name string) error
	exists func(name string) bool
	table  func() (Table, error)
	taken  func(device string) ([]netip.Prefix, error)
	// bridge returns the name of the device that has all these addresses; "" if there is none.
	bridge func(host []netip.Addr) string
	// tracked returns how many connections the kernel has room for; 0 if that is not known.
	tracked func() int
	// wireguard returns nil if the kernel has WireGuard.
	wireguard func() error
	// tunnel opens its device of that name, with that private key if there is none, and removeTunnel removes it.
	tunnel       func(name string, private wireguard.Key) (Tunnel, error)
	removeTunnel func(name string) error
	probes       func(device string, from netip.AddrPort) (net.PacketConn, error)
	// outer returns the MTU of the link by which an address outside is reached; 0 if that is not known.
	outer func(to netip.Addr) int
	// refused returns how many packets of each peer would have begun one connection too many.
	refused func() (map[string]uint64, error)
}

// linux is the host that an engine runs on.
var linux = host{
	device: func(name string, mtu int) (Device, error) { return tun.Open(name, mtu) },
	remove: tun.Remove,
	exists: exists,
	table:  func() (Table, error) { return filter.Open() },
	taken:  Taken, bridge: bridge, tracked: tracked, refused: filter.Refused,
	wireguard: wireguard.Available,
	tunnel: func(name string, private wireguard.Key) (Tunnel, error) {
		return wireguard.Open(name, mostTunnelMTU, private, TunnelPort)
	},
	removeTunnel: wireguard.Remove, probes: openProbes, outer: outerMTU,
}

// Engine connects this cluster with peers. Its methods may be called from any goroutine.
type Engine struct {
	cfg  Config
	host host

	again               chan struct{} // something changed; capacity 1
	running             sync.WaitGroup
	routes              atomic.Pointer[routing]  // nil while nothing is routed
	link                atomic.Pointer[attached] // nil while there is none; written by Run
	tables              atomic.Pointer[ruled]    // the same
	tunnel              atomic.Pointer[tunneled] // the same
	adopted, untunneled bool                     // what an earlier run left was taken over; there is no WireGuard device; of Run
	beside              bool                     // there was one; of Run
	noTunnel            error                    // why that does not work; of Run
	noBounds            error                    // why guests are not bounded while nobody is connected; of Run
	noForgetting        error                    // why addresses of peers that are gone are still stored; of Run
	cleared             bool                     // nothing of us is left in the kernel; of Run
	deviceless          bool                     // no device of us is; of Run
	used                bool                     // something of us may be; of Run
	// kept are the addresses of third clusters when the tables were opened; of Run.
	kept map[peer.ClusterID]map[netip.Addr]netip.Addr

	loaded   chan struct{} // closed once stored was read
	agreeing sync.Mutex    // one choice of blocks at a time, until it is stored; taken before mu
	writes   *throttle.Buckets[peer.ClusterID]
	total    *throttle.Buckets[struct{}]
	opens    *throttle.Buckets[peer.ClusterID]
	echoes   *throttle.Buckets[peer.ClusterID]

	mu      sync.Mutex // not held while anything waits
	node    Node
	names   filter.Names
	guests  map[peer.ClusterID][]netip.Prefix
	paths   map[peer.ClusterID]*path
	stored  map[peer.ClusterID]Blocks // nil until it was read
	shown   map[netip.Addr]peer.ClusterID
	private wireguard.Key // of WireGuard; zero while it was not needed
	settled bool          // nobody is wanted but those in paths
	problem error         // why there is no network here

	counting sync.Mutex // held while refused is read; taken before mu
	refused  map[string]uint64
	unbound  bool // the log says that the kernel bounds no connections; of Run
}

// New returns an engine that connects nobody.
func New(cfg Config) *Engine {
	if cfg.Trusted == nil {
		cfg.Trusted = func(peer.ClusterID) bool { return true }
	}
	return &Engine{
		cfg: cfg, host: linux, again: make(chan struct{}, 1), loaded: make(chan struct{}), paths: make(map[peer.ClusterID]*path),
		writes: throttle.New[peer.ClusterID](writeRate, writeBurst, maxPeers), total: throttle.New[struct{}](totalRate, totalBurst, 1), opens: throttle.New[peer.ClusterID](openRate, openBurst, maxPeers),
		echoes: throttle.New[peer.ClusterID](echoRate, echoBurst, maxPeers),
	}
}

// How often, a second and at once, a peer can have us store blocks, take another stream of it, and be told of. Who parts and
// joins again begins anew with its losses: how often that can be is bounded by what is stored.
const (
	writeRate, writeBurst = 0.01, 30 // joining and parting is three
	totalRate, totalBurst = 0.1, 100 // of all peers together, beside the first blocks of each
	openRate, openBurst   = 0.5, 10
	lossRate, lossBurst   = 1.0 / 60, 5 // losses of the connection that are told
	maxPeers              = 4096        // of whom that is remembered
)

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// SetNode says what this cluster's network is like. Paths that exist tell their peers.
func (e *Engine) SetNode(n Node) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if reflect.DeepEqual(e.node, n) {
		return
	}
	e.node = n
	for _, p := range e.paths {
		p.restart() // its peer is to be told
	}
	wake(e.again)
}

// Nobody stands in [Engine.Shown] for the peer of an address that pods on several nodes show.
const Nobody peer.ClusterID = "-"

// Shown says which addresses pods show that run elsewhere, and at which peer; "" if that is not known, as when somebody deleted
// its node. No other peer gets a block that has one of them: clients use what is shown, whoever has the address now. What is
// not known is taken to be at the peer that has the block already. It is to be called before SetNode.
func (e *Engine) Shown(addresses map[netip.Addr]peer.ClusterID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shown = addresses
}

// SetNames says where pods of this node ask the host for names, also while it is connected with nobody.
func (e *Engine) SetNames(n filter.Names) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !reflect.DeepEqual(e.names, n) {
		e.names = n
		wake(e.again)
	}
}

// SetGuests says which pods of this node are whose, by their addresses: what each of them opens to anybody is bounded, whether
// or not this cluster is connected with its own, or with any.
func (e *Engine) SetGuests(guests map[peer.ClusterID][]netip.Prefix) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !maps.EqualFunc(e.guests, guests, slices.Equal) {
		e.guests = guests
		wake(e.again)
	}
}

// Loaded returns a channel that is closed once the addresses of an earlier run were read. Connections of that run end that
// the first Set of their peer does not grant, and Status has the addresses by which it can.
func (e *Engine) Loaded() <-chan struct{} { return e.loaded }

// Set has this cluster connected with a peer.
func (e *Engine) Set(spec Peer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.paths[spec.ID]
	if p == nil {
		p = newPath(e, spec)
		p.blocks = e.stored[spec.ID]
		e.paths[spec.ID] = p
	} else if !p.specify(spec) {
		return
	}
	wake(e.again)
}

// Remove has this cluster disconnected from a peer. It does not wait.
func (e *Engine) Remove(id peer.ClusterID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.paths[id]
	if p == nil {
		return
	}
	delete(e.paths, id)
	p.close()
	wake(e.again)
}

// Settled says that everybody who is to be connected was Set, and what this cluster's network is like. What is left of
// others, from an earlier run, goes then. Before, nothing goes, and nobody is connected while the device of an earlier run
// is there, and a peer of that run is not Set.
func (e *Engine) Settled() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settled = true
	wake(e.again)
}

// Moved says that a peer may be somewhere else now, or answer again: it is called now, if it is not connected.
func (e *Engine) Moved(id peer.ClusterID) {
	if p := e.path(id); p != nil {
		p.moved.Store(true)
		p.wake()
	}
}

// ErrNotWanted: there is nothing to connect with that peer.
var ErrNotWanted = errors.New("this cluster's network is not connected with yours")

// Wanted reports whether a connection of a peer would be taken: nil, or why not, for the peer.
func (e *Engine) Wanted(id peer.ClusterID) error {
	if e.path(id) == nil || e.link.Load() == nil {
		return ErrNotWanted
	}
	return nil
}

// Accept takes a connection that a peer has opened for packets, and returns when it has ended, which is soon when nobody
// takes it. It closes it.
func (e *Engine) Accept(ctx context.Context, id peer.ClusterID, conn net.Conn) error {
	p := e.path(id)
	if p == nil {
		_ = conn.Close()
		return ErrNotWanted
	}
	if e.opens.Take(id, time.Now()) > 0 {
		_ = conn.Close()
		return errOpensOften
	}
	s := newStream(p, conn, false)
	defer s.end(errStopped)
	patience := time.NewTimer(offerTimeout)
	defer patience.Stop()
	select {
	case p.offers <- s:
	case <-p.gone:
		return ErrNotWanted
	case <-patience.C: // Run has ended
		return ErrNotWanted
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		s.end(context.Cause(ctx))
	}
	return s.why
}

func (e *Engine) path(id peer.ClusterID) *path {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.paths[id]
}

// pods returns the ranges of this cluster's pods.
func (e *Engine) pods() []netip.Prefix {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.node.Pods
}

// Run connects who was Set, until ctx ends. Device, routes and rules stay then, so that connections of pods survive a
// restart of the agent. It may be called again.
func (e *Engine) Run(ctx context.Context) error {
	stored, err := e.cfg.Load(ctx)
	if err != nil {
		return fmt.Errorf("read the addresses of connected clusters: %w", err)
	}
	e.mu.Lock()
	if e.stored == nil {
		close(e.loaded)
	}
	e.stored = make(map[peer.ClusterID]Blocks, len(stored))
	for id, b := range stored {
		if b.check() == nil { // else they are agreed on anew
			e.stored[id] = b
		}
	}
	loaded := slices.Collect(maps.Keys(e.paths))
	e.adopted = false
	for id, p := range e.paths {
		p.remember(e.stored[id])
	}
	e.mu.Unlock()
	for _, id := range loaded {
		e.cfg.Changed(id) // Known is another
	}
	defer e.detach()
	defer e.running.Wait()

	for failures := 0; ; {
		begun := time.Now()
		err := e.reconcile(ctx)
		took := time.Since(begun)
		if ctx.Err() != nil {
			return nil
		}
		e.tell(err)
		pause, again := checkEvery, e.again
		if failures++; err == nil {
			failures = 0
		} else {
			pause, again = redial(redialFirst, failures), nil // what was done so far may have woken us
		}
		link := e.link.Load()
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-again:
			// A peer can have what is wanted change without end, and each change look through all connections of
			// this machine.
			timer.Reset(min(took, restMost))
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
		case <-timer.C:
		case err := <-link.ended():
			e.detach()
			e.tell(fmt.Errorf("the network device %s cannot be used any more, and is opened again: %w", e.cfg.Device, err))
			if time.Since(link.opened) < redialMost { // that does not help for long
				timer.Reset(redialMost)
				select {
				case <-ctx.Done():
				case <-timer.C:
				}
			}
		}
		timer.Stop()
	}
}

// checkEvery is how often device, routes and rules are compared with what they are to be, beside the changes of which the
// kernel tells.
const checkEvery = time.Minute

// restMost bounds the pause between two changes of device, routes and rules, which is as long as the first one took.
const restMost = time.Second

// tell keeps why there is no network here, and tells of a change.
func (e *Engine) tell(problem error) {
	e.mu.Lock()
	before := e.problem
	e.problem = problem
	ids := slices.Collect(maps.Keys(e.paths))
	e.mu.Unlock()
	if fmt.Sprint(before) == fmt.Sprint(problem) {
		return
	}
	if problem != nil {
		e.cfg.Logger.Warn("the network with other clusters does not work", "error", problem)
	}
	for _, id := range ids {
		e.cfg.Changed(id)
	}
}

// reconcile makes device, routes and rules what they are to be.
func (e *Engine) reconcile(ctx context.Context) (err error) {
	e.mu.Lock()
	node, names, settled, guests := e.node, e.names, e.settled, byName(e.guests)
	paths := slices.SortedFunc(maps.Values(e.paths), func(a, b *path) int { return compare(a.id, b.id) })
	e.mu.Unlock()
	connected, asked := len(paths) > 0 && len(node.Pods) > 0, len(names.Addresses) > 0
	if !settled && (!connected && !asked && len(guests) == 0 || e.awaits()) {
		return nil
	}
	if settled {
		defer func() {
			if failed := e.forget(ctx); ctx.Err() == nil {
				e.forgotten(failed)
			}
		}()
	}
	if !connected {
		for _, p := range paths {
			p.halt()
			p.unroute()
			p.untunnel(errNotTried)
		}
		paths = nil
	}
	if !connected && !asked {
		if len(guests) == 0 {
			return e.clear()
		}
		e.hold(ctx, guests)
		return nil
	}
	link, tables, err := e.attach(ctx)
	if err != nil {
		// With a device, there are rules, and connections that go on by them.
		if (len(guests) > 0 || e.used) && !e.host.exists(e.cfg.Device) {
			e.hold(ctx, guests)
		}
		return err
	}
	e.noBounds = nil
	outside := source(node.Host, true)
	if err := e.adoptTunnel(ctx, outside, paths); err != nil {
		e.cfg.Logger.Warn("packets that went by WireGuard go by TLS for a moment", "error", err)
	}
	e.Refresh() // what is written anew counts from 0
	for _, p := range paths {
		p.start(ctx)
	}
	taken, err := e.host.taken(e.cfg.Device)
	if err != nil {
		return fmt.Errorf("read which addresses are in use here: %w", err)
	}
	taken = append(taken, node.Pods...)
	desired := filter.Desired{
		Device: e.cfg.Device, Bridge: e.host.bridge(node.Host), Pods: node.Pods, Host: node.Host, Names: names, Connections: share(e.host.tracked()),
		Guests: guests,
	}
	table := newRouting()
	var routes []netdev.Route
	var tunnels wireguard.Config
	var applied []func()
	for _, p := range paths {
		blocks, spec := e.blocksOf(ctx, p, taken)
		theirs, ours := paired(blocks, node.Pods)
		if len(theirs) == 0 {
			applied = append(applied, func() { p.apply(blocks, nil) })
			continue
		}
		r := &routed{theirs: wholes(theirs), ours: wholes(ours), thirds: p.place(spec.Thirds, ours)}
		applied = append(applied, func() { p.apply(blocks, r) })
		peer := filter.Peer{Name: string(p.id), Theirs: r.theirs, Ours: ours, Gateways: gateways(theirs), In: spec.In, Out: spec.Out, API: spec.API}
		for _, here := range slices.SortedFunc(maps.Keys(r.thirds), netip.Addr.Compare) {
			peer.Thirds = append(peer.Thirds, filter.Third{Here: here, There: r.thirds[here]})
		}
		desired.Peers = append(desired.Peers, peer)
		p.wantTunnel(&tunnels, r, node.Host)
		for _, t := range r.theirs {
			table.add(t, p)
			routes = append(routes, netdev.Route{Prefix: t, Source: source(node.Host, t.Addr().Is4())})
			taken = append(taken, t)
		}
	}
	if len(tunnels.Peers) > 0 {
		desired.Tunnel = TunnelOf(e.cfg.Device)
	}
	if err := tables.Set(desired); err != nil {
		return fmt.Errorf("set the packet filter: %w", err)
	}
	addresses := names.Addresses
	if e.beside = e.beside || len(tunnels.Peers) > 0; e.beside { // and stays: with the last address, routes would go for a moment
		addresses = append(slices.Clone(addresses), besideTunnel)
	}
	if err := link.Configure(netdev.Config{Addresses: addresses, Routes: routes}); err != nil {
		return err
	}
	e.routes.Store(table)
	for _, apply := range applied {
		apply()
	}
	e.setTunnel(ctx, tunnels, outside, paths)
	return nil
}

// hold bounds what guests open on a machine that is connected with nobody, which takes no device. It is no fault of the network
// if that fails.
func (e *Engine) hold(ctx context.Context, guests map[string][]netip.Prefix) {
	err := e.removeDevices()
	if err == nil {
		var tables *ruled
		if tables, err = e.open(ctx); err == nil {
			e.used = true
			err = tables.Set(filter.Desired{Device: e.cfg.Device, Connections: share(e.host.tracked()), Guests: guests})
		}
	}
	if err != nil && len(guests) > 0 && fmt.Sprint(err) != fmt.Sprint(e.noBounds) {
		e.cfg.Logger.Warn("what pods of consumers open is not limited: they may fill the table of tracked connections of this machine", "error", err)
	}
	e.noBounds = err
}

// byName returns guests by the names of their clusters.
func byName(guests map[peer.ClusterID][]netip.Prefix) map[string][]netip.Prefix {
	out := make(map[string][]netip.Prefix, len(guests))
	for id, all := range guests {
		out[string(id)] = all
	}
	return out
}

// Connections of a peer.
const (
	sharePart            = 16   // of those that the kernel has room for, what one peer may have
	mostShare            = 8192 // and not more: the kernel goes through all of them for each new one
	leastShare, usualAll = 64, 65536
)

// share returns how many connections a peer may have, of all that the kernel has room for.
func share(all int) int {
	if all <= 0 {
		all = usualAll
	}
	return min(max(all/sharePart, leastShare), mostShare)
}

// Refresh reads what the kernel counts, for Status.
func (e *Engine) Refresh() {
	if e.tables.Load() == nil {
		return
	}
	e.counting.Lock()
	defer e.counting.Unlock()
	now, err := e.host.refused()
	if err != nil {
		e.cfg.Logger.Debug("cannot read which connections of peers were refused", "error", err)
		return
	}
	for name, n := range now {
		before := e.refused[name]
		if n < before { // the kernel began anew
			before = 0
		}
		if p := e.path(peer.ClusterID(name)); p != nil && n > before {
			p.counters.dropped[dropRefused].Add(n - before)
		}
	}
	e.refused = now
}

// blocksOf returns the blocks of a path, others than before if somebody else uses these addresses now: then the peer is told.
func (e *Engine) blocksOf(ctx context.Context, p *path, taken []netip.Prefix) (Blocks, Peer) {
	blocks, spec := p.known()
	var by netip.Prefix // what uses them
	if !slices.ContainsFunc(blocks.Theirs, func(t netip.Prefix) bool {
		return slices.ContainsFunc(taken, func(other netip.Prefix) bool {
			by = other
			return whole(t).Overlaps(other)
		})
	}) {
		return blocks, spec
	}
	theirs, err := e.assign(ctx, p, nil, blocks.Pods)
	if err != nil {
		p.fail(err)
		return Blocks{}, spec
	}
	p.leave(Move{At: time.Now(), From: blocks.Theirs, To: theirs, Taken: by})
	p.restart()
	return p.known()
}

// awaits reports whether there are connections of an earlier run with peers that are not Set yet: they would end if only
// those of others were let pass.
func (e *Engine) awaits() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.stored {
		if e.paths[id] == nil {
			return e.host.exists(e.cfg.Device)
		}
	}
	return false
}

// forget removes what is stored of peers that nobody wants any more.
func (e *Engine) forget(ctx context.Context) error {
	e.agreeing.Lock()
	defer e.agreeing.Unlock()
	e.mu.Lock()
	gone := make(map[peer.ClusterID]Blocks)
	for id, b := range e.stored {
		if e.paths[id] == nil {
			gone[id] = b
			delete(e.stored, id) // who is Set again from here on begins anew
		}
	}
	e.mu.Unlock()
	var errs []error
	for id, b := range gone {
		if err := e.cfg.Store(ctx, id, Blocks{}); err != nil {
			errs = append(errs, fmt.Errorf("forget the addresses of a peer: %w", err))
			e.mu.Lock()
			if e.paths[id] == nil {
				e.stored[id] = b // to be tried again
			}
			e.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// forgotten takes note of how that went. It is tried again with the next change, or after checkEvery, and concerns nobody who is
// connected.
func (e *Engine) forgotten(err error) {
	if err != nil && fmt.Sprint(err) != fmt.Sprint(e.noForgetting) {
		e.cfg.Logger.Warn("the addresses of a peer that is gone are still stored", "error", err)
	}
	e.noForgetting = err
}

// source returns the host's own address of a family.
func source(host []netip.Addr, v4 bool) netip.Addr {
	for _, a := range host {
		if a.Is4() == v4 {
			return a
		}
	}
	return netip.Addr{}
}

// paired returns the blocks of the families for which both sides have chosen, as long as this cluster's pods are those
// that the peer knows.
func paired(b Blocks, pods []netip.Prefix) (theirs, ours []netip.Prefix) {
	for _, t := range b.Theirs {
		v4 := t.Addr().Is4()
		own, _ := ofFamily(pods, v4)
		if o, ok := ofFamily(b.Ours, v4); ok && o.Bits() == own.Bits() {
			theirs, ours = append(theirs, t), append(ours, o)
		}
	}
	return theirs, ours
}

// gateways returns the addresses by which the hosts of a peer's pods are known: the first of each range, which the bridge
// of its pods has.
func gateways(theirs []netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for _, t := range theirs {
		out = append(out, t.Addr().Next())
	}
	return out
}

// attached is the device while it is open.
type attached struct {
	Device
	opened time.Time
	cancel context.CancelFunc
	work   sync.WaitGroup
	failed chan error // why the device cannot be read any more; capacity 1
}

func (l *attached) ended() <-chan error {
	if l == nil {
		return nil
	}
	return l.failed
}

// ruled are the tables while they are open.
type ruled struct {
	Table
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// attach opens device and tables, unless they are open.
func (e *Engine) attach(ctx context.Context) (*attached, *ruled, error) {
	tables, err := e.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	if l := e.link.Load(); l != nil {
		return l, tables, nil
	}
	e.deviceless = false
	device, err := e.host.device(e.cfg.Device, MTU)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &attached{Device: device, opened: time.Now(), cancel: cancel, failed: make(chan error, 1)}
	e.link.Store(l)
	l.work.Go(func() { l.failed <- e.pump(device) })
	l.work.Go(func() { e.follow(ctx, device.Watch) })
	return l, tables, nil
}

// open opens the tables, unless they are open.
func (e *Engine) open(ctx context.Context) (*ruled, error) {
	if t := e.tables.Load(); t != nil {
		return t, nil
	}
	e.cleared = false
	table, err := e.host.table()
	if err != nil {
		return nil, err
	}
	e.keep(table)
	if !table.Bounds() && !e.unbound {
		e.unbound = true
		e.cfg.Logger.Warn("the kernel cannot limit the connections of peers (no nft_connlimit): a peer, or its pods here, may fill the table of tracked connections of this machine")
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &ruled{Table: table, cancel: cancel}
	e.tables.Store(t)
	t.work.Go(func() { e.follow(ctx, table.Watch) })
	return t, nil
}

// follow has what others change set again.
func (e *Engine) follow(ctx context.Context, watch func(context.Context, func()) error) {
	if err := watch(ctx, func() { wake(e.again) }); err != nil {
		// Then changes of others are noticed by checkEvery only.
		e.cfg.Logger.Warn("cannot follow what others change in the network of this machine", "error", err)
	}
}

// detach closes device and tables, which stay. No path is Connected without them.
func (e *Engine) detach() {
	e.unplug()
	t := e.tables.Swap(nil)
	if t == nil {
		return
	}
	t.cancel()
	if err := t.Close(); err != nil {
		e.cfg.Logger.Debug("close the tables of the packet filter", "error", err)
	}
	t.work.Wait()
}

// unplug closes the device, which stays.
func (e *Engine) unplug() {
	e.closeTunnel()
	l := e.link.Swap(nil)
	if l == nil {
		return
	}
	l.cancel()
	err := l.Close()
	l.work.Wait()
	e.routes.Store(nil)
	e.mu.Lock()
	for _, p := range e.paths {
		p.unroute()
	}
	e.mu.Unlock()
	if err != nil {
		e.cfg.Logger.Debug("close the network device", "error", err)
	}
}

// removeDevices removes what devices there are.
func (e *Engine) removeDevices() error {
	e.unplug()
	if e.deviceless {
		return nil
	}
	e.used = e.used || e.host.exists(e.cfg.Device)
	if err := errors.Join(e.host.removeTunnel(TunnelOf(e.cfg.Device)), e.host.remove(e.cfg.Device)); err != nil {
		return err
	}
	e.untunneled, e.deviceless = true, true
	return nil
}

// clear removes what there is of the network on this machine.
func (e *Engine) clear() error {
	if e.cleared {
		return nil
	}
	e.detach()
	if err := e.removeDevices(); err != nil {
		return err
	}
	e.noBounds = nil
	table, err := e.host.table()
	if err == nil {
		err = errors.Join(table.Remove(), table.Close())
	}
	if err != nil && e.used {
		return err
	}
	if err != nil { // a machine on which nothing was ever connected may have no nftables, or not for us
		e.cfg.Logger.Debug("no rules for the network can be removed here, and there was no device either", "error", err)
	}
	e.cleared, e.used = true, false
	return nil
}

// pump passes what the kernel sends by the device to the paths.
func (e *Engine) pump(d Device) error {
	buffer := make([]byte, packet.MaxLen)
	for {
		n, err := d.Read(buffer)
		if err != nil {
			return err
		}
		src, dst, ok := packet.Addresses(buffer[:n])
		if !ok {
			continue
		}
		if p := e.routes.Load().find(dst); p != nil {
			p.send(src, buffer[:n])
		}
	}
}

// write passes a frame of a peer to the kernel.
func (e *Engine) write(frame []byte) bool {
	l := e.link.Load()
	if l == nil {
		return false
	}
	_, err := l.Write(frame)
	return err == nil
}

// assign chooses blocks for the pods of a peer, which it named on s, and stores them. Without s, it is done at our own
// instance.
func (e *Engine) assign(ctx context.Context, p *path, s *stream, pods []netip.Prefix) ([]netip.Prefix, error) {
	e.agreeing.Lock()
	defer e.agreeing.Unlock()
	if s != nil && p.current.Load() != s {
		return nil, errReplaced
	}
	taken, err := e.host.taken(e.cfg.Device)
	if err != nil {
		return nil, fmt.Errorf("read which addresses are in use here: %w", err)
	}
	e.mu.Lock()
	own, b := e.node.Pods, e.stored[p.id]
	taken = append(taken, own...)
	for id, other := range e.stored {
		if id != p.id {
			for _, t := range other.Theirs {
				taken = append(taken, whole(t))
			}
		}
	}
	for a, id := range e.shown {
		if id != p.id && (id != "" || !containsAny(wholes(b.Theirs), a)) {
			taken = append(taken, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	e.mu.Unlock()
	within := e.cfg.Range()
	if err := fair(pods, within); err != nil {
		return nil, err
	}
	theirs, err := choose(p.id, pods, own, b.Theirs, taken, within)
	if err != nil {
		return nil, err
	}
	b.Pods, b.Theirs = pods, theirs
	return theirs, e.store(ctx, p.id, b)
}

// accept takes what a peer has chosen for our pods on s, and stores it.
func (e *Engine) accept(ctx context.Context, p *path, s *stream, ours []netip.Prefix) error {
	e.agreeing.Lock()
	defer e.agreeing.Unlock()
	if p.current.Load() != s {
		return errReplaced
	}
	e.mu.Lock()
	own, b := e.node.Pods, e.stored[p.id]
	e.mu.Unlock()
	if err := checkOurs(ours, own); err != nil {
		return fmt.Errorf("the peer's choice for our pods cannot be used: %w", err)
	}
	b.Ours = ours
	return e.store(ctx, p.id, b)
}

// For peers that keep us busy.
var (
	errChangesOften   = errors.New("the addresses of the peer change too often")
	errAllChangeOften = errors.New("the addresses of all peers together change too often")
	errOpensOften     = errors.New("the peer connects too often")
)

// store keeps the blocks of a peer. e.agreeing is held.
func (e *Engine) store(ctx context.Context, id peer.ClusterID, b Blocks) error {
	e.mu.Lock()
	before := e.stored[id]
	e.mu.Unlock()
	if reflect.DeepEqual(b, before) {
		return nil
	}
	if e.writes.Take(id, time.Now()) > 0 {
		return errChangesOften
	}
	if complete := len(before.Theirs) > 0 && len(before.Ours) > 0; complete && e.total.Take(struct{}{}, time.Now()) > 0 {
		return errAllChangeOften
	}
	if err := e.cfg.Store(ctx, id, b); err != nil {
		return fmt.Errorf("store the addresses of a peer: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stored[id] = b
	if p := e.paths[id]; p != nil {
		p.remember(b)
	}
	wake(e.again)
	return nil
}
