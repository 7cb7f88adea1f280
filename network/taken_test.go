package network

import "testing"

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
