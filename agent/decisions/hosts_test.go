package decisions

import (
	"testing"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// TestNamedHosts: a key that a public certificate vouched for stays trusted as long
// as somebody says that the name of the host counts, and no longer.
func TestNamedHosts(t *testing.T) {
	const host = "barn.example.org"
	searching := func(domains ...string) Policy { return Policy{Accept: "ask", Search: append([]string{}, domains...)} }
	url := func(p Policy) Policy {
		p.Static = []config.StaticPeer{{ID: string(barn), URL: "https://" + host + ":6447"}}
		return p
	}
	for _, tc := range []struct {
		name     string
		before   Policy
		byPerson bool   // a person gave the URL on the command line
		domain   string // as stored with the pin
		after    Policy
		trusted  bool
	}{
		{"in the search domain", searching("example.org"), false, "example.org", searching("example.org"), true},
		{"the domain is replaced by one above it", searching("example.org"), false, "example.org", searching("org"), true},
		{"the domain is no longer looked in", searching("example.org"), false, "example.org", searching("example.net"), false},
		{"no domain is looked in", searching("example.org"), false, "example.org", searching(), false},
		{"nobody knows yet what is looked in", searching("example.org"), false, "example.org", asks(), true},
		{"nobody knew what was looked in", asks(), false, ".", searching("example.org"), true},
		{"nobody knew, and it is not looked in", asks(), false, ".", searching("example.net"), false},
		{"named on the command line, too", searching("example.org"), true, "", searching(), true},
		{"named in the configuration since", searching("example.org"), false, "example.org", url(searching()), true},
		{"named by a ForeignCluster", searching(), false, "", searching(), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, x := newBed(t, tc.before), newBox(t, barn)
			if tc.byPerson {
				must(t, b.Set(t.Context(), barn, func(p *state.Preferences) { p.URL = "https://BARN.example.org.:6447" }, "alice"))
			}
			shown := x.shown()
			shown.Name = host
			b.Proved(t.Context(), barn, shown)
			if pin := b.Pin(barn); pin == nil || pin.Method != peer.TrustRoots || pin.Host != host || pin.Domain != tc.domain {
				t.Fatalf("pin %+v", pin)
			}
			for _, when := range []string{"reloaded", "restarted"} {
				if when == "reloaded" {
					must(t, b.SetPolicy(t.Context(), tc.after))
				} else {
					b.restart(tc.after)
				}
				if pin := b.Pin(barn); (pin != nil) != tc.trusted {
					t.Errorf("%s: pin %+v", when, pin)
				}
			}
		})
	}
}

// TestPinsOfAnyHost: what an older agent trusted because of any name at all counts
// only if the name does.
func TestPinsOfAnyHost(t *testing.T) {
	for host, trusted := range map[string]bool{"barn.example.org": true, "evil.example": false, "": false} {
		b, x := newBed(t, asks()), newBox(t, barn)
		r := state.Ruling{Pin: state.Pin{Pin: peer.Pin{ID: barn, Fingerprint: x.fp(), Method: peer.TrustRoots, Host: host, Domain: "."}, Basis: x.fp()}}
		must(t, b.store.SetRuling(t.Context(), barn, r))
		b.restart(Policy{Accept: "ask", Search: []string{"example.org"}})
		if pin := b.Pin(barn); (pin != nil) != trusted {
			t.Errorf("%q: pin %+v", host, pin)
		}
	}
}

// TestBlockedHosts: who blocks a cluster blocks the host that vouched for it, whoever
// is there next.
func TestBlockedHosts(t *testing.T) {
	const host = "barn.example.org"
	p := Policy{Accept: "ask", Search: []string{"example.org"}}
	for name, known := range map[string]func(b *bed, x *box){
		"trusted by its host": func(b *bed, x *box) {
			shown := x.shown()
			shown.Name = host
			b.Proved(b.t.Context(), barn, shown)
		},
		"named by a person": func(b *bed, x *box) {
			must(b.t, b.Set(b.t.Context(), barn, func(p *state.Preferences) { p.URL = "https://" + host }, "alice"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, x, y := newBed(t, p), newBox(t, barn), newBox(t, silo)
			known(b, x)
			// Trusted because of the same host, until now.
			before := newBox(t, "mule").shown()
			before.Name = host
			b.Proved(t.Context(), "mule", before)
			if b.Pin("mule") == nil {
				t.Fatal("a second cluster at the host is not trusted")
			}
			must(t, b.Block(t.Context(), barn, "alice"))
			if b.Pin("mule") != nil {
				t.Error("another cluster at the blocked host stays trusted")
			}
			b.restart(p)
			shown := y.shown()
			shown.Name = host
			if b.Proved(t.Context(), silo, shown); b.Pin(silo) != nil {
				t.Errorf("another cluster at the blocked host is trusted: %+v", b.Pin(silo))
			}
			other := shown
			other.Name = "byre.example.org"
			if b.Proved(t.Context(), silo, other); b.Pin(silo) == nil {
				t.Error("a cluster at another host is not trusted")
			}
			must(t, b.Unblock(t.Context(), barn, "alice"))
			if b.Proved(t.Context(), "mill", shown); b.Pin("mill") == nil {
				t.Error("after the block ended, the host does not count")
			}
		})
	}
}
