package network

import (
	"net/netip"
	"testing"
)

func TestBridge(t *testing.T) {
	local := netip.MustParseAddr("127.0.0.1")
	for want, host := range map[string][]netip.Addr{"lo": {local}, "": {local, netip.MustParseAddr("192.0.2.1")}} {
		if got := bridge(host); got != want {
			t.Errorf("%v are at %q, want %q", host, got, want)
		}
	}
	if got := bridge(nil); got != "" {
		t.Errorf("nothing is at %q", got)
	}
}

// The routes of this machine can be read, and what every machine has is not among them.
func TestTaken(t *testing.T) {
	all, err := Taken("no-such-device")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Bits() == 0 || !unicast(p) || p.Addr().Is4In6() {
			t.Errorf("%s is taken", p)
		}
	}
}
