package network

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/ifwatch"
)

var start = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

func links(l ...ifwatch.Link) ifwatch.Snapshot { return ifwatch.Snapshot{Links: l} }

// watch is a Chooser and the time.
type watch struct {
	*Chooser
	t   *testing.T
	now time.Time
}

// expect lets time pass, chooses, and checks by link name which rule decides ("?"
// after it: undecided) and when to choose again (0: never).
func (w *watch) expect(after time.Duration, s ifwatch.Snapshot, again time.Duration, want map[string]string) {
	w.t.Helper()
	w.now = w.now.Add(after)
	uses, next := w.Choose(s, w.now)
	if len(uses) != len(s.Links) {
		w.t.Errorf("%d uses of %d links", len(uses), len(s.Links))
	}
	for name, rule := range want {
		got := uses[name].Name
		if uses[name].Undecided {
			got += "?"
		}
		if got != rule {
			w.t.Errorf("at %v: %s is used by %q (%s), want %q", w.now.Sub(start), name, got, uses[name].Why, rule)
		}
		if uses[name].Undecided && (uses[name].Advertise || uses[name].Discover || uses[name].Autojoin) {
			w.t.Errorf("%s is undecided but used: %+v", name, uses[name])
		}
	}
	switch {
	case again == 0 && !next.IsZero(), again != 0 && !next.Equal(w.now.Add(again)):
		w.t.Errorf("at %v: next is %v, want after %v", w.now.Sub(start), next, again)
	}
}

func TestChooserWaits(t *testing.T) {
	w := &watch{NewChooser(compiled(t, home, elsewhere)), t, start}
	s := time.Second
	silent := on("eth0", "192.168.1.7/24", gate("192.168.1.1", ""))
	known := on("eth0", "192.168.1.7/24", gate("192.168.1.1", homeMAC))
	wlan := on("wlan1", "", gate("192.168.1.1", ""))

	w.expect(0, links(), 0, nil)
	w.expect(0, links(silent), 5*s, map[string]string{"eth0": "home?"})
	w.expect(3*s, links(silent, wlan), 2*s, map[string]string{"eth0": "home?", "wlan1": "home?"})
	w.expect(2*s, links(silent, wlan), 3*s, map[string]string{"eth0": "elsewhere", "wlan1": "home?"})
	w.expect(3*s, links(silent, wlan), 0, map[string]string{"eth0": "elsewhere", "wlan1": "elsewhere"})
	w.expect(time.Hour, links(silent, wlan), 0, map[string]string{"eth0": "elsewhere", "wlan1": "elsewhere"})
	// Better late than never.
	w.expect(s, links(known), 0, map[string]string{"eth0": "home"})
	// A new uncertainty has a patience of its own, and so has a link that was away.
	w.expect(s, links(silent), 5*s, map[string]string{"eth0": "home?"})
	w.expect(4*s, links(), 0, nil)
	w.expect(s, links(silent), 5*s, map[string]string{"eth0": "home?"})

	// A second router that is not resolved is waited for, from when it came.
	second := on("eth0", "192.168.1.7/24", gate("192.168.1.1", ""), gate("192.168.1.2", ""))
	w.expect(4*s, links(second), 5*s, map[string]string{"eth0": "home?"})
	w.expect(4*s, links(silent), 0, map[string]string{"eth0": "elsewhere"}) // it went
	w.expect(s, links(second), 5*s, map[string]string{"eth0": "home?"})
	w.expect(5*s, links(second), 0, map[string]string{"eth0": "elsewhere"})

	// A router that is known now does not make up for one that was waited for.
	w.expect(s, links(on("eth0", "", gate("192.168.1.1", homeMAC), gate("192.168.1.2", ""))), 0, map[string]string{"eth0": "home"})
	w.expect(s, links(on("eth0", "", gate("192.168.1.2", ""))), 0, map[string]string{"eth0": "elsewhere"})
	second = on("eth0", "", gate("192.168.1.2", ""))

	// Rules change: what was waited for is not waited for again.
	w.SetRules(compiled(t, config.Network{Name: "office", GatewayMAC: otherMAC}))
	w.expect(s, links(second), 0, map[string]string{"eth0": ""})
	w.SetRules(Rules{})
	w.expect(s, links(on("eth0", "", gate("192.168.1.9", ""))), 0, map[string]string{"eth0": ""})
}

// TestChooserWaitsForTheFirstLook: rules that need gateways come into effect
// before anybody has looked at routes.
func TestChooserWaitsForTheFirstLook(t *testing.T) {
	w := &watch{NewChooser(Rules{}), t, start}
	l := on("eth0", "")
	l.GatewaysKnown = false
	w.expect(0, links(l), 0, map[string]string{"eth0": ""})
	w.SetRules(compiled(t, home, elsewhere))
	w.expect(time.Hour, links(l), Patience, map[string]string{"eth0": "home?"})
	w.expect(time.Second, links(on("eth0", "", gate("192.168.1.1", ""))), Patience, map[string]string{"eth0": "home?"})
	w.expect(time.Second, links(on("eth0", "", gate("192.168.1.1", homeMAC))), 0, map[string]string{"eth0": "home"})
}

func TestChooserWithoutRules(t *testing.T) {
	var c Chooser
	uses, next := c.Choose(links(on("eth0", ""), ifwatch.Link{Index: 9, Name: "eth8"}), start)
	for _, name := range []string{"eth0", "eth8"} {
		if u := uses[name]; !u.Advertise || !u.Discover || !u.Autojoin || u.Rule != -1 {
			t.Errorf("%s: %+v", name, u)
		}
	}
	if !next.IsZero() {
		t.Errorf("next = %v", next)
	}
}

// TestChooserEndsWaiting: whatever links and gateways come and go, no gateway
// keeps a link silent for longer than Patience, next is in the future, and asking
// twice gives the same answer.
func TestChooserEndsWaiting(t *testing.T) {
	rules := compiled(t, home, config.Network{Name: "office", Interface: "eth1", GatewayMAC: otherMAC, Discover: true}, elsewhere)
	rapid.Check(t, func(t *rapid.T) {
		c, now := NewChooser(rules), start
		seen := make(map[wait]time.Time) // since when each gateway is there, not resolved
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
			var s ifwatch.Snapshot
			still := make(map[wait]time.Time)
			for i, name := range []string{"eth0", "eth1"} {
				if rapid.IntRange(0, 5).Draw(t, "gone") == 0 {
					continue
				}
				l := ifwatch.Link{Index: i + 1, Name: name, GatewaysKnown: true}
				for _, addr := range []string{"192.168.1.1", "192.168.1.2"} {
					mac := rapid.SampledFrom([]string{"-", "", "", homeMAC, otherMAC}).Draw(t, "mac")
					if mac == "-" {
						continue
					}
					g := gate(addr, mac)
					l.Gateways = append(l.Gateways, g)
					if g.MAC == nil {
						k := wait{l.Index, g.Addr}
						if still[k] = now; !seen[k].IsZero() {
							still[k] = seen[k]
						}
					}
				}
				s.Links = append(s.Links, l)
			}
			seen = still
			uses, next := c.Choose(s, now)
			if !next.IsZero() && !next.After(now) {
				t.Fatalf("next is %v ago", now.Sub(next))
			}
			again, sameNext := c.Choose(s, now)
			if !sameNext.Equal(next) {
				t.Fatalf("next is %v, and then %v", next, sameNext)
			}
			for _, l := range s.Links {
				u := uses[l.Name]
				if u != again[l.Name] {
					t.Fatalf("%+v, and then %+v", u, again[l.Name])
				}
				if !u.Undecided {
					continue
				}
				young := false
				for k, since := range seen {
					young = young || k.index == l.Index && now.Sub(since) < Patience
				}
				if !young {
					t.Fatalf("%s still waits", l.Name)
				}
				if next.IsZero() || next.After(now.Add(Patience)) {
					t.Fatalf("%s waits, and next is %v", l.Name, next)
				}
			}
		}
	})
}
