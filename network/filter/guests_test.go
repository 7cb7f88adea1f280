package filter

import (
	"net/netip"
	"testing"
)

// Guests of a cluster with whose network this one is not connected are bounded as others are, also on a machine that is
// connected with nobody.
func TestGuestsWithoutANetworkAreBounded(t *testing.T) {
	const most, tried = 20, 50
	t.Parallel()
	w := newWorld(t, "b")
	b := w.boxes[0]
	needsLimit(t, b)
	b.desired.Pods, b.desired.Host, b.desired.Bridge = nil, nil, ""
	b.desired.Connections = 2 * most
	g, other, own := b.addPod(5), b.addPod(6), b.addPod(7)
	b.desired.Guests = map[string][]netip.Prefix{"m": append(both(g), both(other)...)}
	b.set()

	warm(t, []*pod{g}, host4)
	more := func() { startFlow(t, g, host4, 99, "one more") }
	for range tried {
		more()
	}
	b.awaitRefusals("m", tried+1-most, more)
	ask(t, g, "udp", host6, "the other family has its own")
	ask(t, other, "udp", host4, "there is room for another guest")
	ask(t, own, "udp", host4, "who is nobody's guest has no bound")
}

// both returns the addresses of a pod.
func both(p *pod) []netip.Prefix { return []netip.Prefix{single(p.v4), single(p.v6)} }
