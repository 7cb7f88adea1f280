package network

import (
	"maps"
	"net"
	"net/netip"
	"os"
	"sync"

	"liqo.io/agent/network/netdev"
	"liqo.io/agent/network/wireguard"
)

// wires is what carries the datagrams of WireGuard between machines.
type wires struct {
	mu     sync.Mutex
	ends   map[wireguard.Key]*secret // by public key
	cut    map[*machine]bool         // to which nothing comes
	narrow int                       // longest packet that passes; 0 for any
}

func newWires() *wires {
	return &wires{ends: make(map[wireguard.Key]*secret), cut: make(map[*machine]bool)}
}

func (w *wires) cuts(m *machine, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[m] = cut
}

// secret is a WireGuard device of a machine, whose kernel is the test. Its wires' mu guards it.
type secret struct {
	of      *machine
	on      *wires
	private wireguard.Key
	config  wireguard.Config
	got     map[wireguard.Key]uint64 // bytes, by who sent them
	deleted bool
	in      *datagrams
}

// datagrams is a socket for probes.
type datagrams struct {
	net.PacketConn
	device *secret
	in     chan datagram
	once   sync.Once
	closed chan struct{}
}

type datagram struct {
	b    []byte
	from net.Addr
}

// gets has a machine have WireGuard.
func (w *wires) gets(s *site) {
	s.wires = w
	s.Engine.host = s.machine.host()
}

func (m *machine) openTunnel(_ string, private wireguard.Key) (Tunnel, error) {
	w := m.wires
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.secret == nil {
		m.secret = &secret{of: m, on: w, private: private, got: make(map[wireguard.Key]uint64)}
		public, err := private.Public()
		if err != nil {
			return nil, err
		}
		w.ends[public] = m.secret
	}
	return m.secret, nil
}

// hasTunnel reports whether there is a device.
func (m *machine) hasTunnel() bool {
	if m.wires == nil {
		return false
	}
	m.wires.mu.Lock()
	defer m.wires.mu.Unlock()
	return m.secret != nil
}

// deleteTunnel deletes the device, as anybody can.
func (m *machine) deleteTunnel() error {
	if m.wires == nil {
		return nil
	}
	m.wires.mu.Lock()
	defer m.wires.mu.Unlock()
	if m.secret != nil {
		m.secret.deleted = true
		m.secret = nil
	}
	return nil
}

// tunnel returns what the device is to do.
func (m *machine) tunnel() wireguard.Config {
	m.wires.mu.Lock()
	defer m.wires.mu.Unlock()
	if m.secret == nil {
		return wireguard.Config{}
	}
	return m.secret.config
}

func (m *machine) openProbes(string, netip.AddrPort) (net.PacketConn, error) {
	m.wires.mu.Lock()
	defer m.wires.mu.Unlock()
	d := &datagrams{device: m.secret, in: make(chan datagram, 100), closed: make(chan struct{})}
	m.secret.in = d
	return d, nil
}

func (s *secret) Private() wireguard.Key { return s.private }

func (s *secret) Configure(want wireguard.Config) error {
	s.on.mu.Lock()
	defer s.on.mu.Unlock()
	if s.deleted {
		return netdev.ErrRemoved
	}
	s.config = want
	return nil
}

func (s *secret) Peers() (map[wireguard.Key]wireguard.Seen, error) {
	s.on.mu.Lock()
	defer s.on.mu.Unlock()
	if s.deleted {
		return nil, netdev.ErrRemoved
	}
	out := make(map[wireguard.Key]wireguard.Seen)
	for _, p := range s.config.Peers {
		out[p.Key] = wireguard.Seen{Peer: p, Received: s.got[p.Key]}
	}
	return out, nil
}

func (s *secret) Routes() ([]netdev.Route, error) {
	s.on.mu.Lock()
	defer s.on.mu.Unlock()
	return s.config.Routes, nil
}

func (*secret) Close() {}

// peerOf returns the peer for which an address is.
func (s *secret) peerOf(a netip.Addr) (wireguard.Peer, bool) {
	for _, p := range s.config.Peers {
		if containsAny(p.Allowed, a) {
			return p, true
		}
	}
	return wireguard.Peer{}, false
}

func (d *datagrams) WriteTo(b []byte, to net.Addr) (int, error) {
	s := d.device
	w := s.on
	w.mu.Lock()
	defer w.mu.Unlock()
	own, err := s.private.Public()
	if err != nil {
		return 0, err
	}
	there, ok := s.peerOf(to.(*net.UDPAddr).AddrPort().Addr())
	other := w.ends[there.Key]
	if !ok || other == nil || other.deleted || other.in == nil || w.cut[other.of] || w.narrow > 0 && len(b)+headers(true) > w.narrow {
		return len(b), nil
	}
	for _, p := range other.config.Peers {
		if p.Key == own && p.Preshared == there.Preshared {
			other.got[own] += uint64(len(b))
			from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(gateways(p.Allowed)[0], probePort))
			select {
			case other.in.in <- datagram{append([]byte(nil), b...), from}:
			default:
			}
		}
	}
	return len(b), nil
}

func (d *datagrams) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case got := <-d.in:
		return copy(b, got.b), got.from, nil
	case <-d.closed:
		return 0, nil, os.ErrClosed
	}
}

func (d *datagrams) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

// keepalive has the kernels of both send something, as they do without their agents.
func (w *wires) keepalive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, s := range maps.Clone(w.ends) {
		for _, p := range s.config.Peers {
			if other := w.ends[p.Key]; other != nil && !w.cut[other.of] && p.Keepalive > 0 {
				other.got[key]++
			}
		}
	}
}
