package connect

import (
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/network"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/connectivity"
)

// TestNameservers: after a start, nobody is told whom pods are to ask for names before it is known, or took too long.
func TestNameservers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var again atomic.Int32
		c := New(Config{Changed: func(peer.ClusterID) { again.Add(1) }})
		unknown, off, late := &connectivity.Problem{Reason: connectivity.ReasonUnknown}, &connectivity.Problem{Reason: connectivity.ReasonOff}, &connectivity.Problem{Reason: connectivity.ReasonElsewhere, Passing: true}
		serving := []netip.Addr{netip.MustParseAddr("169.254.241.53")}
		for _, tc := range []struct {
			name    string
			problem *connectivity.Problem
			status  network.Status
			wanted  bool
			serving []netip.Addr
			pending bool
			servers []netip.Addr
			known   bool
		}{
			{"the nodes are not known", unknown, network.Status{}, false, nil, true, nil, false},
			{"the bridge of the node has no address yet", late, network.Status{}, false, nil, true, nil, false},
			{"the network was not told of it", nil, network.Status{}, false, serving, false, nil, false},
			{"the cluster DNS is being tried", nil, network.Status{Known: true, Blocks: agreed}, true, nil, true, nil, false},
			{"answered", nil, network.Status{Known: true, Blocks: agreed}, true, serving, false, serving, true},
			{"answered, and not connected before", nil, network.Status{Known: true}, true, serving, false, serving, true},
			{"not to be answered", nil, network.Status{Known: true, Blocks: agreed}, true, nil, false, nil, true},
			{"not to be connected", nil, network.Status{Known: true, Problem: errors.New("no")}, true, serving, true, nil, true},
			{"off", off, network.Status{}, false, nil, true, nil, true},
		} {
			servers, known := c.nameservers(barn, tc.problem, tc.status, tc.wanted, tc.serving, tc.pending)
			if !slices.Equal(servers, tc.servers) || known != tc.known {
				t.Errorf("%s: %v, known %v; want %v, %v", tc.name, servers, known, tc.servers, tc.known)
			}
		}
		if len(c.unnamed) != 0 || again.Load() != 0 {
			t.Errorf("%d wait, and %d were told", len(c.unnamed), again.Load())
		}
		agreed := network.Status{Known: true, Blocks: agreed}
		for _, wait := range []struct {
			what  string
			ask   func() (servers []netip.Addr, known bool)
			grace time.Duration
		}{
			{"nothing is known", func() ([]netip.Addr, bool) { return c.nameservers(barn, unknown, network.Status{}, false, nil, true) }, graceAtFirst},
			{"the cluster DNS does not answer", func() ([]netip.Addr, bool) { return c.nameservers(barn, nil, agreed, true, nil, true) }, graceOfDNS},
			{"the bridge has no address yet", func() ([]netip.Addr, bool) { return c.nameservers(barn, late, network.Status{}, false, nil, true) }, graceOfDNS},
		} {
			again.Store(0)
			c.nameservers(barn, nil, agreed, true, serving, false) // a cluster DNS that has answered is waited for anew
			for range 2 {
				if _, known := wait.ask(); known {
					t.Errorf("%s: known at once", wait.what)
				}
			}
			time.Sleep(wait.grace)
			synctest.Wait()
			if _, known := wait.ask(); !known || again.Load() != 1 {
				t.Errorf("%s: told %d times after %s, known: %v", wait.what, again.Load(), wait.grace, known)
			}
			c.nameservers(barn, nil, agreed, true, nil, false) // there is none for a moment
			if _, known := wait.ask(); !known {
				t.Errorf("%s: waited for again", wait.what)
			}
		}
	})
}
