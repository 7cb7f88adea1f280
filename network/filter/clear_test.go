package filter_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/network"
	"liqo.io/agent/network/filter"
	"liqo.io/agent/network/netdev"
	"liqo.io/agent/network/tun"
)

// TestClear: nothing is left of an agent that is gone, and where nothing is, that is fine.
func TestClear(t *testing.T) {
	const device = "liqo0"
	h := bed.New(t).AddHost("a", "192.0.2.1/24")
	prefix := netip.MustParsePrefix
	for _, what := range []string{"never used", "used", "the device is gone"} {
		if err := h.Do(func() error {
			if what == "never used" {
				return network.Clear(device)
			}
			table, err := filter.Open()
			if err != nil {
				return err
			}
			d, err := tun.Open(device, network.MTU)
			if err != nil {
				return errors.Join(err, table.Close())
			}
			err = errors.Join(
				table.Set(filter.Desired{
					Device: device, Pods: []netip.Prefix{prefix("10.42.0.0/24")}, Host: []netip.Addr{netip.MustParseAddr("10.42.0.1")},
					Peers: []filter.Peer{{Name: "b", Theirs: []netip.Prefix{prefix("241.1.0.0/24")}, Ours: []netip.Prefix{prefix("241.2.0.0/24")}}},
				}),
				d.Configure(netdev.Config{Routes: []netdev.Route{{Prefix: prefix("241.1.0.0/23")}}}),
				d.Close(), table.Close(),
			)
			if what == "the device is gone" {
				err = errors.Join(err, tun.Remove(device))
			}
			return errors.Join(err, network.Clear(device))
		}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := h.Do(func() error {
			if _, err := net.InterfaceByName(device); err == nil {
				t.Errorf("%s: the device is still there", what)
			}
			left, err := filter.Leftovers()
			if len(left) > 0 {
				t.Errorf("%s: %v is still there", what, left)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
