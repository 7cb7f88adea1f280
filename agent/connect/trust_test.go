package connect

import (
	"context"
	"errors"
	"net"
	"testing"

	"liqo.io/agent/peer"
)

// answering is a peer that takes connections for packets.
type answering struct{ opened int }

func (a *answering) Network(context.Context, peer.Target) (net.Conn, error) {
	a.opened++
	here, there := net.Pipe()
	return here, errors.Join(there.Close())
}

// A cluster that is blocked keeps its target while its node is drained, and no packets are exchanged with it.
func TestNothingIsOpenedWithoutTrust(t *testing.T) {
	var a answering
	trusted := true
	c := New(Config{Client: &a, Trusted: func(peer.ClusterID) bool { return trusted }, Changed: func(peer.ClusterID) {}})
	c.Use(barn, peer.Target{ID: barn, Fingerprint: peer.FingerprintOf([]byte("key"))}, true)
	for _, trusted = range []bool{true, false} {
		a.opened = 0
		conn, err := c.dial(t.Context(), barn)
		if (err == nil) != trusted || (a.opened == 1) != trusted {
			t.Errorf("trusted %v: %d connections, %v", trusted, a.opened, err)
		}
		if conn != nil {
			_ = conn.Close()
		}
	}
}
