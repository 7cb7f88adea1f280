package network

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/internal/leak"
	"liqo.io/agent/network/filter"
	"liqo.io/agent/network/netdev"
	"liqo.io/agent/network/packet"
	"liqo.io/agent/network/wireguard"
	"liqo.io/agent/peer"
)

func TestMain(m *testing.M) { leak.Main(m) }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, prefix(p))
	}
	return out
}

// k3s is the network of a K3s node, which is the same everywhere.
var k3s = Node{Pods: prefixes("10.42.0.0/24"), Host: []netip.Addr{netip.MustParseAddr("10.42.0.1")}}

// machine is a host in memory.
type machine struct {
	mu      sync.Mutex
	open    *memory // the device
	desired filter.Desired
	routes  []netdev.Route
	own     []netip.Addr   // of the device
	others  []netip.Prefix // in use by others
	broken  map[string]error
	calls   map[string]int
	slow    time.Duration // that a change of the filter takes
	refused map[string]uint64
	unbound bool // it bounds no connections
	wires   *wires
	secret  *secret // guarded by wires.mu
}

func newMachine() *machine {
	return &machine{broken: make(map[string]error), calls: make(map[string]int)}
}

// called counts a call, and returns what is wrong with it.
func (m *machine) called(what string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[what]++
	return m.broken[what]
}

func (m *machine) breaks(what string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken[what] = err
}

func (m *machine) count(what string) int {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[what]
}

func (m *machine) host() host {
	return host{
		device: func(string, int) (Device, error) {
			if err := m.called("device"); err != nil {
				return nil, err
			}
			d := &memory{of: m, in: make(chan []byte), out: make(chan []byte, 100), closed: make(chan struct{}), failed: make(chan error, 1)}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.open = d
			return d, nil
		},
		remove: func(string) error {
			m.mu.Lock()
			m.routes = nil
			m.mu.Unlock()
			return m.called("remove")
		},
		exists: func(name string) bool {
			if name == TunnelOf("liqo0") {
				return m.hasTunnel()
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.routes != nil
		},
		table: func() (Table, error) { return rules{m}, m.called("table") },
		taken: func(string) ([]netip.Prefix, error) {
			err := m.called("taken")
			m.mu.Lock()
			defer m.mu.Unlock()
			return slices.Clone(m.others), err
		},
		bridge:  func([]netip.Addr) string { return "cni0" },
		tracked: func() int { return 1 << 16 },
		wireguard: func() error {
			if m.wires == nil {
				return wireguard.ErrUnavailable
			}
			return nil
		},
		tunnel: m.openTunnel, removeTunnel: func(string) error { return m.deleteTunnel() }, probes: m.openProbes,
		outer: func(netip.Addr) int { return MTU },
		refused: func() (map[string]uint64, error) {
			err := m.called("refused")
			m.mu.Lock()
			defer m.mu.Unlock()
			return maps.Clone(m.refused), err
		},
	}
}

// set returns what the filter is to do.
func (m *machine) set() filter.Desired {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.desired
}

func (m *machine) routed() []netdev.Route {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.routes
}

func (m *machine) addressed() []netip.Addr {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.own
}

// uses has somebody else use addresses.
func (m *machine) uses(p netip.Prefix) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.others = append(m.others, p)
}

func (m *machine) device() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open
}

// memory is a device whose kernel is the test.
type memory struct {
	of     *machine
	in     chan []byte // what the kernel sends
	out    chan []byte // what it gets; more than there is room for is lost
	failed chan error
	once   sync.Once
	closed chan struct{}
}

func (d *memory) Read(b []byte) (int, error) {
	select {
	case frame := <-d.in:
		return copy(b, frame), nil
	case err := <-d.failed:
		return 0, err
	case <-d.closed:
		return 0, os.ErrClosed
	}
}

func (d *memory) Write(frame []byte) (int, error) {
	select {
	case <-d.closed:
		return 0, os.ErrClosed
	default:
	}
	if err := d.of.called("write"); err != nil {
		return 0, err
	}
	select {
	case d.out <- slices.Clone(frame):
	default:
	}
	return len(frame), nil
}

func (d *memory) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

func (d *memory) Configure(want netdev.Config) error {
	if err := d.of.called("configure"); err != nil {
		return err
	}
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	d.of.routes, d.of.own = want.Routes, want.Addresses
	return nil
}

func (d *memory) Watch(ctx context.Context, changed func()) error {
	changed()
	<-ctx.Done()
	return nil
}

// rules are tables that only remember.
type rules struct{ of *machine }

func (r rules) Set(d filter.Desired) error {
	if err := r.of.called("set"); err != nil {
		return err
	}
	time.Sleep(r.of.slow)
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.of.desired = d
	return nil
}

func (r rules) Remove() error {
	r.of.mu.Lock()
	r.of.desired = filter.Desired{}
	r.of.mu.Unlock()
	return r.of.called("remove table")
}

func (r rules) Watch(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

func (r rules) Thirds() (map[string][]filter.Third, error) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	out := make(map[string][]filter.Third)
	for _, p := range r.of.desired.Peers {
		out[p.Name] = p.Thirds
	}
	return out, nil
}

func (r rules) Bounds() bool { return !r.of.unbound }

func (r rules) Close() error { return r.of.called("close table") }

// lan is where clusters find each other.
type lan struct {
	t      *testing.T
	mu     sync.Mutex
	sites  map[peer.ClusterID]*site
	cut    map[[2]peer.ClusterID]bool // nobody connects from the first to the second
	dials  map[[2]peer.ClusterID]int
	refuse error          // of those that cannot connect
	held   chan struct{}  // closed while packets pass
	slow   peer.ClusterID // that does not get them; "" for all
	conns  []net.Conn
	all    sync.WaitGroup
}

func newLAN(t *testing.T) *lan {
	l := &lan{t: t, sites: make(map[peer.ClusterID]*site), cut: make(map[[2]peer.ClusterID]bool), dials: make(map[[2]peer.ClusterID]int), held: make(chan struct{})}
	close(l.held)
	return l
}

// dialed returns how often one cluster has connected to another.
func (l *lan) dialed(from, to peer.ClusterID) int {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dials[[2]peer.ClusterID{from, to}]
}

// hold keeps packets to a cluster, or all with "", back until the result is called, also those that are on their way.
func (l *lan) hold(to peer.ClusterID) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := make(chan struct{})
	l.held, l.slow = held, to
	return func() { close(held) }
}

// passes returns what is closed once packets to a cluster pass.
func (l *lan) passes(to peer.ClusterID) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slow == "" || l.slow == to {
		return l.held
	}
	open := make(chan struct{})
	close(open)
	return open
}

// breakAll ends all connections.
func (l *lan) breakAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// cable is one end of a connection on a lan.
type cable struct {
	net.Conn
	of     *lan
	at     peer.ClusterID
	once   sync.Once
	closed chan struct{}
}

func (c *cable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.of.passes(c.at):
		return n, err
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *cable) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (l *lan) pipe(from, to peer.ClusterID) (net.Conn, net.Conn) {
	a, b := net.Pipe()
	x, y := &cable{Conn: a, of: l, at: from, closed: make(chan struct{})}, &cable{Conn: b, of: l, at: to, closed: make(chan struct{})}
	l.conns = append(l.conns, x, y)
	return x, y
}

func (l *lan) dial(ctx context.Context, from, to peer.ClusterID) (net.Conn, error) {
	select {
	case <-l.passes(to):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	time.Sleep(time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dials[[2]peer.ClusterID{from, to}]++
	s := l.sites[to]
	if s == nil || !s.up || l.cut[[2]peer.ClusterID{from, to}] {
		return nil, cmp.Or(l.refuse, errors.New("connection refused"))
	}
	if err := s.Wanted(from); err != nil {
		return nil, err
	}
	here, there := l.pipe(from, to)
	l.all.Go(func() { _ = s.Accept(s.ctx, from, there) })
	return here, nil
}

// site is a cluster with an engine.
type site struct {
	*Engine
	*machine
	id   peer.ClusterID
	lan  *lan
	ctx  context.Context
	up   bool // guarded by lan.mu
	stop func()

	db      sync.Mutex
	rows    map[peer.ClusterID]Blocks
	stores  int
	changes map[peer.ClusterID]int
	within  netip.Prefix
	// distrusts is that it trusts nobody.
	distrusts atomic.Bool
}

// add makes a cluster, which does not run yet.
func (l *lan) add(id peer.ClusterID) *site {
	s := &site{machine: newMachine(), id: id, lan: l, rows: make(map[peer.ClusterID]Blocks), changes: make(map[peer.ClusterID]int), within: DefaultRange}
	s.renew()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sites[id] = s
	return s
}

// renew has the cluster begin with another engine, as after a restart of its agent.
func (s *site) renew() {
	s.Engine = New(Config{
		Self:    func() peer.ClusterID { return s.id },
		Device:  "liqo0",
		Dial:    func(ctx context.Context, id peer.ClusterID) (net.Conn, error) { return s.lan.dial(ctx, s.id, id) },
		Trusted: func(peer.ClusterID) bool { return !s.distrusts.Load() },
		Load: func(context.Context) (map[peer.ClusterID]Blocks, error) {
			s.db.Lock()
			defer s.db.Unlock()
			return maps.Clone(s.rows), nil
		},
		Store: func(_ context.Context, id peer.ClusterID, b Blocks) error {
			if err := s.called("store"); err != nil {
				return err
			}
			s.db.Lock()
			defer s.db.Unlock()
			s.stores++
			s.rows[id] = b
			return nil
		},
		Range: func() netip.Prefix { return s.within },
		Changed: func(id peer.ClusterID) {
			s.Engine.Status(id) // it may be called
			s.db.Lock()
			defer s.db.Unlock()
			s.changes[id]++
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	s.Engine.host = s.machine.host()
}

// told returns how often Changed was called.
func (s *site) told(id peer.ClusterID) int {
	synctest.Wait()
	s.db.Lock()
	defer s.db.Unlock()
	return s.changes[id]
}

func (s *site) row(id peer.ClusterID) Blocks {
	synctest.Wait()
	s.db.Lock()
	defer s.db.Unlock()
	return s.rows[id]
}

func (s *site) stored() int {
	synctest.Wait()
	s.db.Lock()
	defer s.db.Unlock()
	return s.stores
}

// run runs the engine until s.stop or the end of the test.
func (s *site) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s.lan.mu.Lock()
	s.ctx, s.up = ctx, true
	s.lan.mu.Unlock()
	go func() { done <- s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		s.lan.mu.Lock()
		s.up = false
		s.lan.mu.Unlock()
		cancel()
		if err := <-done; err != nil {
			s.lan.t.Errorf("Run of %s: %v", s.id, err)
		}
	})
	s.lan.t.Cleanup(s.stop)
}

// begin has the cluster connected with others.
func (s *site) begin(with ...peer.ClusterID) *site {
	s.SetNode(k3s)
	for _, id := range with {
		s.Set(Peer{ID: id})
	}
	s.Settled()
	s.run()
	return s
}

func (s *site) state(id peer.ClusterID) State {
	synctest.Wait()
	status, ok := s.Status(id)
	if !ok {
		return "none"
	}
	return status.State
}

// expect fails the test unless s is in that state with a peer within a time.
func (s *site) expect(id peer.ClusterID, want State, within time.Duration) Status {
	s.lan.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		synctest.Wait()
		status, _ := s.Status(id)
		if status.State == want {
			return status
		}
		if !time.Now().Before(end) {
			s.lan.t.Fatalf("%s to %s is not %s within %s: %+v", s.id, id, want, within, status)
		}
	}
}

// frameOf is what a device has for a small packet of UDP.
func frameOf(src, dst netip.Addr, data string) []byte {
	b := make([]byte, packet.HeaderLen+28, packet.HeaderLen+28+len(data))
	ip := b[packet.HeaderLen:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(28+len(data)))
	s, d := src.As4(), dst.As4()
	copy(ip[12:], s[:])
	copy(ip[16:], d[:])
	sum(ip[:20])
	binary.BigEndian.PutUint16(ip[24:], uint16(8+len(data)))
	return append(b, data...)
}

// sum sets the checksum of an IPv4 header.
func sum(ip []byte) {
	var n uint32
	for i := 0; i < len(ip); i += 2 {
		n += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	n = n>>16 + n&0xffff
	n = n>>16 + n&0xffff
	binary.BigEndian.PutUint16(ip[10:], ^uint16(n))
}

// superpacket is what a device has for a part of a stream of TCP, with so many bytes of data.
func superpacket(src, dst netip.Addr, length int) []byte {
	b := make([]byte, packet.HeaderLen+40+length)
	b[0], b[1] = 1, 1 // NEEDS_CSUM, TCPv4
	binary.LittleEndian.PutUint16(b[2:], 40)
	binary.LittleEndian.PutUint16(b[4:], 1448)
	binary.LittleEndian.PutUint16(b[6:], 20)
	binary.LittleEndian.PutUint16(b[8:], 16)
	ip := b[packet.HeaderLen:]
	ip[0], ip[8], ip[9] = 0x45, 64, 6
	binary.BigEndian.PutUint16(ip[2:], uint16(40+length))
	s, d := src.As4(), dst.As4()
	copy(ip[12:], s[:])
	copy(ip[16:], d[:])
	sum(ip[:20])
	ip[20+12], ip[20+13] = 5<<4, 0x10
	return b
}

// pass sends a packet from one site to another, and reports whether it arrives.
func pass(from, to *site, data string) bool {
	there, _ := from.Status(to.id)
	if len(there.Blocks.Ours) == 0 || len(there.Blocks.Theirs) == 0 {
		return false
	}
	return deliver(from, to, frameOf(there.Blocks.Ours[0].Addr().Next(), there.Blocks.Theirs[0].Addr().Next(), data))
}

func deliver(from, to *site, frame []byte) bool {
	device := to.device()
	select {
	case from.device().in <- frame:
	case <-time.After(time.Second):
		return false
	}
	for {
		select {
		case got := <-device.out:
			if slices.Equal(got, frame) {
				return true
			}
		case <-time.After(time.Second):
			return false
		}
	}
}
