package network

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"liqo.io/agent/network/filter"
	"liqo.io/agent/network/wireguard"
)

// TunnelPort is the UDP port of WireGuard, and of probes through it.
const (
	TunnelPort = 6447
	probePort  = filter.ProbePort
)

// TunnelOf returns the name of the WireGuard device that belongs to the device of that name.
func TunnelOf(device string) string { return device + "-wg" }

// Addresses of the devices while there are two, for nothing else: one without an IPv4 address takes no packet whose answer goes
// by another device, as while only one of two clusters sends by WireGuard. Link-local addresses are in no network.
var (
	besideTunnel  = netip.AddrFrom4([4]byte{169, 254, 241, 54})
	tunnelAddress = netip.AddrFrom4([4]byte{169, 254, 241, 55})
)

// Lengths of packets that go through WireGuard, in bytes.
const (
	mostTunnelMTU  = MTU - wireguard.Overhead
	leastTunnelMTU = 1280 // what IPv6 needs
)

// tunnelMTUs are the lengths that are tried, beside that of which both ends think that it passes.
var tunnelMTUs = []int{1400, 1360, 1320, leastTunnelMTU}

// Times of a tunnel.
const (
	tunnelPasses     = 3                // probes of a length that are answered in a row, before packets go that way
	tunnelRounds     = 8                // of probes, without which packets do not go that way
	tunnelLost       = 2 * probeEvery   // a probe without an answer
	tunnelSilent     = 5 * time.Second  // nothing has come for so long: packets go by the stream again
	tunnelUnanswered = 10 * time.Second // the same, if the agent of the peer answers on its stream only
	tunnelAlone      = 5 * time.Minute  // without an answer on a stream, it is not known any more whether the peer is still wanted
	tunnelPause      = 4 * time.Second  // after packets have not passed, doubled each time
	tunnelPauseMost  = 5 * time.Minute
	tunnelQuiet      = 3 // failures after which the log says no more
)

// Why packets to a peer do not go through WireGuard.
var (
	errNotOffered   = errors.New("the peer has no WireGuard, or its agent is older")
	errNotTried     = errors.New("it is being tried")
	errNoUDP        = fmt.Errorf("probes are not answered: allow UDP port %d and the device between the two machines", TunnelPort)
	errTunnelSilent = errors.New("nothing came through it any more")
	errAlone        = fmt.Errorf("the agent of the peer was away for %s", tunnelAlone)
	errDistrusted   = errors.New("the peer is not trusted")
	errTunnelGone   = errors.New("the WireGuard device was deleted")
)

// offer is how a cluster can be reached by WireGuard, as it says itself.
type offer struct {
	// Key is its public key.
	Key []byte `json:"key"`
	// Preshared is a key of this path, which the cluster with the lesser ID makes.
	Preshared []byte `json:"preshared,omitempty"`
	// Port is its UDP port, where the connection leads.
	Port uint16 `json:"port"`
	// MTU is the length of the longest packet that its link carries to us in WireGuard.
	MTU int `json:"mtu"`
}

// check returns what is wrong with what a peer offers to a cluster with that public key, which knows the preshared key if it
// is not zero.
func (o *offer) check(own, preshared wireguard.Key) (wireguard.Peer, error) {
	key, err := wireguard.ParseKey(o.Key)
	switch {
	case err != nil:
		return wireguard.Peer{}, fmt.Errorf("its WireGuard has %w", err)
	case key == own:
		return wireguard.Peer{}, errors.New("it says that our key is its own")
	case o.Port == 0:
		return wireguard.Peer{}, errors.New("it names no UDP port")
	case o.MTU < leastTunnelMTU || o.MTU > MTU:
		return wireguard.Peer{}, fmt.Errorf("its longest packet cannot have %d bytes", o.MTU)
	}
	if preshared == (wireguard.Key{}) {
		if preshared, err = wireguard.ParseKey(o.Preshared); err != nil {
			return wireguard.Peer{}, fmt.Errorf("its preshared key for WireGuard is %w", err)
		}
	}
	return wireguard.Peer{Key: key, Preshared: preshared}, nil
}

// tunnel is the way to a peer by WireGuard. It belongs to a path, whose mu guards it.
type tunnel struct {
	preshared wireguard.Key  // zero while none was made or told
	peer      wireguard.Peer // as it offers; the zero Peer: there is no such way. Without Allowed and Keepalive
	place     netip.AddrPort // where it was seen last
	most      int            // the length of the longest packet of which both ends think that it passes
	set       bool           // the kernel has the peer
	mtu       int            // of packets that go through it; 0 while they go by the stream
	why       error          // they do

	received, sent uint64 // as the kernel counts
	heard          time.Time
	echoed         time.Time // when a probe was answered last
	joined         time.Time // since when the peer answers on a stream; zero while it does not
	alone          time.Time // since when it does not
	since          time.Time // mtu is what it is
	rest           time.Time // it is not tried before
	rtt            time.Duration
	rounds         int // of probes, while it is tried
	failures       int
	passed         map[int]int      // probes that were answered in a row, by their length
	asked          map[uint64]asked // probes that wait for their echo, by what is in them
}

// asked is a probe.
type asked struct {
	size int
	at   time.Time
	took chan<- time.Duration // who measures; has room; nil for nobody
}

func (t *tunnel) wanted() bool { return t.peer.Key != wireguard.Key{} }

// offered has packets tried that way. A peer that was known with the same keys goes on.
func (t *tunnel) offered(p wireguard.Peer, at netip.AddrPort, most int) {
	t.place = at
	if t.peer.Key == p.Key && t.peer.Preshared == p.Preshared {
		if t.mtu == 0 {
			t.peer.Endpoint, t.most = at, most
		}
		return
	}
	p.Endpoint = at
	*t = tunnel{preshared: p.Preshared, peer: p, place: at, most: most, why: errNotTried, joined: t.joined, alone: t.alone}
}

// adopt goes on with a peer that the kernel has, and with the length of packets that go to it.
func (t *tunnel) adopt(s wireguard.Seen, mtu int, now time.Time) {
	*t = tunnel{
		preshared: s.Preshared, peer: wireguard.Peer{Key: s.Key, Preshared: s.Preshared}, most: mostTunnelMTU, set: true, mtu: mtu,
		received: s.Received, sent: s.Sent, heard: now, echoed: now, since: now, why: errNotTried,
	}
}

// drop ends it until the next offer.
func (t *tunnel) drop(why error) {
	*t = tunnel{preshared: t.preshared, joined: t.joined, alone: t.alone, why: why}
}

// fall has packets go by the stream.
func (t *tunnel) fall(now time.Time, why error) {
	t.mtu, t.since, t.why = 0, now, why
	t.pause(now)
}

// pause is before the next trial.
func (t *tunnel) pause(now time.Time) {
	t.rest = now.Add(min(tunnelPause<<min(t.failures, 10), tunnelPauseMost))
	t.failures++
	t.rounds, t.passed = 0, nil
}

// tick is called every probeEvery while the kernel has the peer. Answered says whether the peer answers on a stream. It
// returns the lengths of the probes that are to be sent, and whether packets go another way now.
func (t *tunnel) tick(now time.Time, answered bool) (probes []int, changed bool) {
	switch {
	case answered && t.joined.IsZero():
		t.joined, t.alone = now, time.Time{}
	case !answered && t.alone.IsZero():
		t.joined, t.alone = time.Time{}, now
	}
	for number, a := range t.asked {
		if now.Sub(a.at) >= tunnelLost {
			delete(t.asked, number)
			delete(t.passed, a.size)
		}
	}
	switch {
	case !answered && now.Sub(t.alone) >= tunnelAlone:
		t.drop(errAlone)
		return nil, true
	case t.mtu > 0 && now.Sub(t.heard) >= tunnelSilent:
		t.fall(now, errTunnelSilent)
		return nil, true
	case t.mtu > 0 && answered && now.Sub(t.joined) >= tunnelUnanswered && now.Sub(t.echoed) >= tunnelUnanswered:
		t.fall(now, errNoUDP)
		return nil, true
	case t.mtu > 0:
		if now.Sub(t.since) >= steadyFor {
			t.failures = 0
		}
		return []int{t.mtu}, false
	case !answered || now.Before(t.rest):
		return nil, false
	}
	sizes := t.sizes()
	if t.passed[sizes[0]] >= tunnelPasses || t.rounds >= tunnelRounds {
		for _, size := range sizes {
			if t.passed[size] >= tunnelPasses {
				t.mtu, t.since, t.heard, t.why = size, now, now, nil
				t.rounds, t.passed = 0, nil
				return nil, true
			}
		}
		t.why = errNoUDP
		t.pause(now)
		return nil, false
	}
	t.rounds++
	return sizes, false
}

// sizes returns the lengths of packets that are tried, the longest first.
func (t *tunnel) sizes() []int {
	out := []int{t.most}
	for _, size := range tunnelMTUs {
		if size < t.most {
			out = append(out, size)
		}
	}
	return out
}

// seen takes what the kernel has counted, and returns by how much that is more.
func (t *tunnel) seen(s wireguard.Seen, now time.Time) (received, sent uint64) {
	if s.Received < t.received || s.Sent < t.sent { // the kernel began anew
		t.received, t.sent = 0, 0
	}
	received, sent = s.Received-t.received, s.Sent-t.sent
	if received > 0 {
		t.heard = now
	}
	t.received, t.sent = s.Received, s.Sent
	return received, sent
}

// ask returns a probe that makes a packet of that length.
func (t *tunnel) ask(now time.Time, size int, v4 bool, took chan<- time.Duration) []byte {
	out := make([]byte, size-headers(v4))
	out[0] = probeAsks
	_, _ = rand.Read(out[1:probeLen]) // never fails
	if t.asked == nil {
		t.asked = make(map[uint64]asked)
	}
	t.asked[binary.BigEndian.Uint64(out[1:])] = asked{size: size, at: now, took: took}
	return out
}

// echo takes the answer to a probe, that is in a packet of that length.
func (t *tunnel) echo(now time.Time, b []byte, v4 bool) {
	number := binary.BigEndian.Uint64(b[1:])
	a, ok := t.asked[number]
	if !ok || a.size != len(b)+headers(v4) {
		return // none that we wait for
	}
	delete(t.asked, number)
	if t.passed == nil {
		t.passed = make(map[int]int)
	}
	t.passed[a.size]++
	t.echoed, t.rtt = now, max(now.Sub(a.at), 1)
	if a.took != nil {
		a.took <- t.rtt
	}
}

// A probe through the tunnel is a byte that says what it is, a number, and zeros.
const (
	probeAsks   = 1
	probeEchoes = 2
	probeLen    = 1 + 8
)

// headers returns how long a packet is without what is in its datagram.
func headers(v4 bool) int {
	if v4 {
		return 20 + 8
	}
	return 40 + 8
}

// halves returns the prefixes that lead to a block by WireGuard. They are longer than that by the other device, so they go
// first while they are there, and nothing is to be done to fall back when they are not.
func halves(block netip.Prefix) []netip.Prefix {
	lower := netip.PrefixFrom(block.Addr(), block.Bits()+1)
	upper := lower.Addr().AsSlice()
	upper[block.Bits()/8] |= 0x80 >> (block.Bits() % 8)
	addr, _ := netip.AddrFromSlice(upper)
	return []netip.Prefix{lower, netip.PrefixFrom(addr, lower.Bits())}
}

// placeOf returns where the UDP port of the other end of a connection is; false if that is not known.
func placeOf(remote net.Addr, port uint16) (netip.AddrPort, bool) {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, false
	}
	addr := tcp.AddrPort().Addr().Unmap()
	return netip.AddrPortFrom(addr, port), addr.IsValid()
}

// probed returns the address of a peer's host to which probes go, the zero Addr for none.
func (r *routed) probed() netip.Addr {
	if r == nil {
		return netip.Addr{}
	}
	// Without a route, which there is not before packets pass, the kernel sends by a device that is named with IPv4 only.
	i := slices.IndexFunc(r.theirs, func(p netip.Prefix) bool { return p.Addr().Is4() })
	if i < 0 {
		return netip.Addr{}
	}
	return gateways(r.theirs[i : i+1])[0]
}
