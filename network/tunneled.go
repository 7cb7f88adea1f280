package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/agent/network/netdev"
	"liqo.io/agent/network/wireguard"
	"liqo.io/agent/peer"
)

// Tunnel is the kernel's WireGuard. It is *wireguard.Device.
type Tunnel interface {
	Private() wireguard.Key
	Configure(want wireguard.Config) error
	Peers() (map[wireguard.Key]wireguard.Seen, error)
	Routes() ([]netdev.Route, error)
	Close()
}

// tunneled is the WireGuard device while it is open, and what tries whether packets pass it.
type tunneled struct {
	Tunnel
	host   netip.Addr // from which probes are sent
	probes net.PacketConn
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// How many probes a second of a peer, and at once, are answered.
const echoRate, echoBurst = 20, 40

// errNoIPv4: see [routed.probed].
var errNoIPv4 = errors.New("pods of this cluster have no IPv4 addresses")

// tunnelKey returns the private key of this cluster's WireGuard, or why it has none.
func (e *Engine) tunnelKey() (private, public wireguard.Key, err error) {
	if err = e.host.wireguard(); err != nil {
		return private, public, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !source(e.node.Host, true).IsValid() {
		return private, public, errNoIPv4
	}
	if e.private == (wireguard.Key{}) {
		e.private = wireguard.NewKey()
	}
	public, err = e.private.Public()
	return e.private, public, err
}

// offer returns how a peer can reach this cluster by WireGuard, that has the other end of a connection; nil if it cannot.
func (p *path) offer(remote net.Addr) json.RawMessage {
	_, public, err := p.engine.tunnelKey()
	if err != nil {
		return nil // invited says so
	}
	out := offer{Key: public[:], Port: TunnelPort, MTU: mostTunnelMTU}
	if at, ok := placeOf(remote, TunnelPort); ok {
		if outer := p.engine.host.outer(at.Addr()); outer > 0 {
			out.MTU = min(max(outer-wireguard.Overhead, leastTunnelMTU), mostTunnelMTU)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = out.MTU
	if p.leads() {
		if p.tunnel.preshared == (wireguard.Key{}) {
			p.tunnel.preshared = wireguard.NewKey()
		}
		out.Preshared = p.tunnel.preshared[:]
	}
	text, _ := json.Marshal(out) // of what can always be
	return text
}

// invited takes what the peer offers on a connection, nil for nothing.
func (p *path) invited(s *stream, text json.RawMessage) {
	_, public, err := p.engine.tunnelKey()
	e := p.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.ended() { // perhaps by Distrust, which drops what was offered before
		return
	}
	var preshared wireguard.Key
	if p.leads() {
		preshared = p.tunnel.preshared
	}
	var o offer
	var other wireguard.Peer
	switch {
	case err != nil:
	case text == nil:
		err = errNotOffered
	case json.Unmarshal(text, &o) != nil:
		err = errUnreadable // the error would have the peer's bytes in it
	default:
		other, err = o.check(public, preshared)
	}
	if err == nil {
		for _, q := range e.paths {
			if q != p && q.hasKey(other.Key) {
				err = errors.New("its WireGuard has the key of another peer")
			}
		}
	}
	defer wake(e.again)
	if err != nil {
		p.tunnel.drop(err)
		return
	}
	at, _ := placeOf(s.conn.RemoteAddr(), o.Port)
	p.tunnel.offered(other, at, min(o.MTU, p.said))
}

func (p *path) hasKey(key wireguard.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tunnel.peer.Key == key
}

// Distrust says that a peer is not trusted now: packets do not go to it by WireGuard, which the end of a connection does not
// stop at once, and the connection ends. The endpoint ends only those that the peer has opened.
func (e *Engine) Distrust(id peer.ClusterID) {
	p := e.path(id)
	if p == nil {
		return
	}
	if s := p.current.Load(); s != nil {
		s.end(errDistrusted)
	}
	if p.untunnel(errDistrusted) {
		wake(e.again)
	}
}

// untunnel has packets not go by WireGuard until the next offer, and is false if that changes nothing.
func (p *path) untunnel(why error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := p.tunnel.wanted()
	if wanted {
		p.tunnel.drop(why)
	}
	return wanted
}

// adoptTunnel goes on with what an earlier process has left.
func (e *Engine) adoptTunnel(ctx context.Context, host netip.Addr, paths []*path) error {
	if e.adopted || !host.IsValid() {
		return nil
	}
	e.adopted = true
	if !e.host.exists(TunnelOf(e.cfg.Device)) {
		return nil
	}
	e.untunneled = false
	t, err := e.openTunnel(ctx, host)
	if err != nil {
		return err
	}
	peers, err := t.Peers()
	if err != nil {
		return err
	}
	routes, err := t.Routes()
	if err != nil {
		return err
	}
	mtus := make(map[netip.Prefix]int, len(routes))
	for _, r := range routes {
		mtus[r.Prefix] = r.MTU
	}
	now, pods := time.Now(), e.pods()
	for _, p := range paths {
		p.mu.Lock()
		theirs, _ := paired(p.blocks, pods)
		theirs = wholes(theirs)
		for _, s := range peers {
			if len(theirs) > 0 && sameBlocks(s.Allowed, theirs) && e.cfg.Trusted(p.id) { // it may be no more since that process ended
				p.tunnel.adopt(s, mtus[halves(theirs[0])[0]], now)
			}
		}
		p.mu.Unlock()
	}
	return nil
}

func sameBlocks(a, b []netip.Prefix) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p netip.Prefix) bool { return !slices.Contains(b, p) })
}

// wantTunnel adds what WireGuard is to do for a path to want.
func (p *path) wantTunnel(want *wireguard.Config, r *routed, host []netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &p.tunnel
	if !t.wanted() {
		return
	}
	other := t.peer
	other.Allowed = r.theirs
	if t.mtu > 0 {
		other.Keepalive = probeEvery
		for _, block := range r.theirs {
			for _, half := range halves(block) {
				want.Routes = append(want.Routes, netdev.Route{Prefix: half, Source: source(host, block.Addr().Is4()), MTU: t.mtu})
			}
		}
	}
	want.Peers = append(want.Peers, other)
}

// setTunnel makes WireGuard be what is wanted. Where that fails, packets go by the streams.
func (e *Engine) setTunnel(ctx context.Context, want wireguard.Config, host netip.Addr, paths []*path) {
	err := e.tryTunnel(ctx, want, host)
	if fmt.Sprint(err) != fmt.Sprint(e.noTunnel) && err != nil {
		e.cfg.Logger.Warn("packets to other clusters cannot go by WireGuard, and go by TLS", "error", err)
	}
	e.noTunnel = err
	now := time.Now()
	for _, p := range paths {
		p.mu.Lock()
		t := &p.tunnel
		t.set = err == nil && slices.ContainsFunc(want.Peers, func(w wireguard.Peer) bool { return w.Key == t.peer.Key })
		if err != nil && t.wanted() {
			t.why = err
		}
		fell := !t.set && t.mtu > 0
		if fell {
			t.fall(now, t.why)
			p.news = true
		}
		p.mu.Unlock()
		if fell {
			p.fell()
		}
		p.wake()
	}
}

func (e *Engine) tryTunnel(ctx context.Context, want wireguard.Config, host netip.Addr) error {
	if len(want.Peers) == 0 {
		return e.removeTunnel()
	}
	e.untunneled = false
	t, err := e.openTunnel(ctx, host)
	if err != nil {
		return err
	}
	want.Port, want.Addresses = TunnelPort, []netip.Addr{tunnelAddress}
	if err = t.Configure(want); errors.Is(err, netdev.ErrRemoved) {
		e.closeTunnel() // the next one makes another
		wake(e.again)
		return errTunnelGone
	}
	return err
}

// removeTunnel removes the device.
func (e *Engine) removeTunnel() error {
	e.closeTunnel()
	if e.untunneled {
		return nil
	}
	err := e.host.removeTunnel(TunnelOf(e.cfg.Device))
	e.untunneled = err == nil
	return err
}

// openTunnel opens the device, unless it is open.
func (e *Engine) openTunnel(ctx context.Context, host netip.Addr) (*tunneled, error) {
	t := e.tunnel.Load()
	if t != nil && t.host == host {
		return t, nil
	}
	e.closeTunnel()
	private, _, err := e.tunnelKey()
	if err != nil {
		return nil, err
	}
	name := TunnelOf(e.cfg.Device)
	device, err := e.host.tunnel(name, private)
	if err != nil {
		return nil, err
	}
	probes, err := e.host.probes(name, netip.AddrPortFrom(host, probePort))
	if err != nil {
		device.Close()
		return nil, fmt.Errorf("send probes by WireGuard: %w", err)
	}
	e.mu.Lock()
	e.private = device.Private()
	e.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	t = &tunneled{Tunnel: device, host: host, probes: probes, cancel: cancel}
	e.tunnel.Store(t)
	t.work.Go(func() { e.answer(ctx, t) })
	t.work.Go(func() { e.try(ctx, t) })
	return t, nil
}

// closeTunnel leaves the device as it is.
func (e *Engine) closeTunnel() {
	t := e.tunnel.Swap(nil)
	if t == nil {
		return
	}
	t.cancel()
	_ = t.probes.Close()
	t.work.Wait()
	t.Close()
}

// try tries all the time whether packets pass, until ctx ends.
func (e *Engine) try(ctx context.Context, t *tunneled) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		seen, err := t.Peers()
		if err != nil {
			e.cfg.Logger.Debug("cannot read the peers of WireGuard", "error", err)
			wake(e.again)
			continue
		}
		e.mu.Lock()
		paths := make([]*path, 0, len(e.paths))
		for _, p := range e.paths {
			paths = append(paths, p)
		}
		e.mu.Unlock()
		for _, p := range paths {
			p.tryTunnel(t, seen)
		}
	}
}

// tryTunnel does what is to be done every probeEvery.
func (p *path) tryTunnel(t *tunneled, all map[wireguard.Key]wireguard.Seen) {
	s, to := p.current.Load(), p.route.Load().probed()
	answered := s != nil && s.rtt.Load() > 0 && s.silent() < silentAfter
	now := time.Now()
	p.mu.Lock()
	seen, known := all[p.tunnel.peer.Key]
	if !p.tunnel.set || !known {
		p.mu.Unlock()
		return
	}
	received, sent := p.tunnel.seen(seen, now)
	p.counters.bytesIn.Add(received)
	p.counters.bytesOut.Add(sent)
	before := p.tunnel.mtu
	sizes, changed := p.tunnel.tick(now, answered)
	if p.tunnel.mtu == 0 && p.tunnel.peer.Endpoint != p.tunnel.place {
		p.tunnel.peer.Endpoint, changed = p.tunnel.place, true
	}
	var probes [][]byte
	if to.IsValid() {
		for _, size := range sizes {
			probes = append(probes, p.tunnel.ask(now, size, to.Is4(), nil))
		}
	}
	mtu, why, failures := p.tunnel.mtu, p.tunnel.why, p.tunnel.failures
	p.news = p.news || changed
	p.mu.Unlock()
	for _, b := range probes {
		_, _ = t.probes.WriteTo(b, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, probePort))) // one that is lost is not answered
	}
	if !changed {
		return
	}
	wake(p.engine.again)
	p.wake()
	if mtu == 0 && before > 0 {
		p.fell()
	}
	switch {
	case failures > tunnelQuiet || mtu == before:
	case mtu > 0:
		p.engine.cfg.Logger.Info("packets to a peer go by WireGuard", "peer", p.id, "mtu", mtu)
	default:
		p.engine.cfg.Logger.Info("packets to a peer go by TLS", "peer", p.id, "why", why)
	}
}

// fell tells the peer that its packets are to go by the stream, as ours do.
func (p *path) fell() {
	if s := p.current.Load(); s != nil {
		s.say(message{Fell: true})
	}
}

// fallen has packets go by the stream, as the peer wants.
func (p *path) fallen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tunnel.mtu > 0 {
		p.tunnel.fall(time.Now(), errTunnelSilent)
		p.news = true
		wake(p.engine.again)
		p.wake()
	}
}

// answer answers the probes of peers, and takes their answers, until the device is closed.
func (e *Engine) answer(ctx context.Context, t *tunneled) {
	buffer := make([]byte, MTU)
	for {
		n, from, err := t.probes.ReadFrom(buffer)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			e.cfg.Logger.Debug("receive a probe by WireGuard", "error", err)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		at, ok := from.(*net.UDPAddr)
		if !ok || at.Port != probePort || n < probeLen {
			continue
		}
		addr := at.AddrPort().Addr().Unmap()
		p := e.routes.Load().find(addr)
		if p == nil || p.route.Load().probed() != addr {
			continue
		}
		if p.heard(buffer[:n], addr.Is4()) && e.echoes.Take(p.id, time.Now()) == 0 {
			buffer[0] = probeEchoes
			_, _ = t.probes.WriteTo(buffer[:n], from)
		}
	}
}

// heard takes what has come through the tunnel, and reports whether it is to be sent back.
func (p *path) heard(b []byte, v4 bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch b[0] {
	case probeAsks:
		p.tunnel.rest = time.Time{} // it tries: so do we
		return true
	case probeEchoes:
		p.tunnel.echo(time.Now(), b, v4)
	}
	return false
}

// measure returns how long a probe takes through the tunnel, and back.
func (p *path) measure(ctx context.Context, t *tunneled) (time.Duration, error) {
	to := p.route.Load().probed()
	took := make(chan time.Duration, 1)
	p.mu.Lock()
	b := p.tunnel.ask(time.Now(), max(p.tunnel.mtu, leastTunnelMTU), to.Is4(), took)
	p.mu.Unlock()
	if _, err := t.probes.WriteTo(b, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, probePort))); err != nil {
		return 0, fmt.Errorf("send a probe by WireGuard: %w", err)
	}
	select {
	case out := <-took:
		return out, nil
	case <-ctx.Done():
		return 0, errUnanswered
	}
}

// openProbes returns a socket for probes that go by a device, and from an address here.
func openProbes(device string, from netip.AddrPort) (net.PacketConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		if err := raw.Control(func(fd uintptr) { failed = unix.BindToDevice(int(fd), device) }); err != nil {
			return err
		}
		return os.NewSyscallError("bind to a network device", failed)
	}}
	return config.ListenPacket(context.Background(), "udp", from.String())
}

// outerMTU returns the length of the longest packet on the link by which an address is reached, 0 if that is not known.
func outerMTU(to netip.Addr) int {
	routes, err := netlink.RouteGet(to.WithZone("").AsSlice())
	if err != nil || len(routes) == 0 {
		return 0
	}
	if routes[0].MTU > 0 {
		return routes[0].MTU
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return 0
	}
	return link.Attrs().MTU
}
