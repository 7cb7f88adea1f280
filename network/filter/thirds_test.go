package filter

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// hub is a consumer with guests at two providers, p and q, which know nothing of each other.
type hub struct {
	*world
	h, p, q *box
	x, y    *pod // the guests at p and q
}

// newHub connects them so that one number means as many things as can be: both providers chose the same block for the
// consumer, which is also what the consumer chose for q.
func newHub(t *testing.T) *hub {
	t.Helper()
	t.Parallel()
	w := newWorld(t, "h", "p", "q")
	c := &hub{world: w, h: w.boxes[0], p: w.boxes[1], q: w.boxes[2]}
	same := prefixes("241.50.0.0/24", "fd50::/64")
	w.join(c.h, c.p, prefixes("241.7.2.0/24", "fd99:a::/64"), same)
	w.join(c.h, c.q, same, same)
	c.x, c.y = c.p.addPod(5), c.q.addPod(5)
	for _, side := range []struct {
		at, other     *box
		guest, remote *pod
	}{{c.p, c.q, c.x, c.y}, {c.q, c.p, c.y, c.x}} {
		mine := &Grant{By: c.h.name}
		all := Grant{From: side.at.peer(c.h).Theirs}
		for _, six := range []bool{false, true} {
			mine.From = append(mine.From, single(side.guest.addr(six)))
			here := c.h.seen(side.other, side.remote.addr(six))
			c.h.peer(side.at).Thirds = append(c.h.peer(side.at).Thirds, Third{Here: here, There: c.at(side.at, six)})
		}
		mine.To, all.To = all.From, mine.From
		side.at.peer(c.h).Out, side.at.peer(c.h).In = []Grant{*mine}, []Grant{all}
		var between Grant
		for _, six := range []bool{false, true} {
			between.From = append(between.From, single(c.h.seen(side.at, side.guest.addr(six))))
			between.To = append(between.To, single(c.h.seen(side.other, side.remote.addr(six))))
		}
		between.By = side.at.name
		c.h.peer(side.other).Out = []Grant{between, {From: []netip.Prefix{single(host4), single(host6)}, To: between.To}}
		side.at.flannel("nft")
	}
	c.h.flannel("nft")
	// Docker's policy needs the help of a person.
	c.h.run("for i in iptables-nft ip6tables-nft; do $i -w -I FORWARD -i liqo0 -j ACCEPT; done")
	c.set()
	return c
}

// at returns the address by which the guest of the other provider is known at one.
func (c *hub) at(where *box, six bool) netip.Addr {
	block := beside(ofFamily(c.h.peer(where).Ours, six)).Addr().AsSlice()
	block[len(block)-1] = map[*box]byte{c.p: 77, c.q: 78}[where]
	a, _ := netip.AddrFromSlice(block)
	return a
}

func (c *hub) set() {
	c.t.Helper()
	for _, b := range c.boxes {
		b.set()
	}
}

func TestGuestsAtTwoProvidersReachEachOther(t *testing.T) {
	c := newHub(t)
	for _, six := range []bool{false, true} {
		for _, network := range []string{"udp", "tcp"} {
			checkAnswer(t, ask(t, c.x, network, c.at(c.p, six), "hello"), c.at(c.q, six))
			checkAnswer(t, ask(t, c.y, network, c.at(c.q, six), "hello"), c.at(c.p, six))
		}
		ping(t, c.x, c.at(c.p, six))
		ping(t, c.y, c.at(c.q, six))
		if _, err := tryPort(c.x, "udp", c.at(c.p, six), 9, "is anybody there?"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("IPv6 %v: a closed port: %v, want connection refused", six, err)
		}
	}
	c.checkStrange()

	// A restarted agent finds which addresses they have.
	var kept map[string][]Third
	c.h.do(func() error {
		table, err := Open()
		if err != nil {
			return err
		}
		kept, err = table.Thirds()
		return errors.Join(err, table.Close())
	})
	for _, at := range []*box{c.p, c.q} {
		if got := kept[at.name]; len(got) != 2 || !slices.Equal(got, c.h.peer(at).Thirds) {
			t.Errorf("at %s, there are %v, want %v", at.name, got, c.h.peer(at).Thirds)
		}
	}
}

// Nobody but these guests gets there, whatever a provider lets out.
func TestOnlyGuestsPassTheHub(t *testing.T) {
	c := newHub(t)
	otherX, otherY, home := c.p.addPod(9), c.q.addPod(9), c.h.addPod(9)
	everybody := []*ears{c.h.heard, c.p.heard, c.q.heard, c.x.heard, c.y.heard, otherX.heard, otherY.heard, home.heard}
	pass := func() {
		for _, six := range []bool{false, true} {
			ask(t, c.x, "udp", c.at(c.p, six), "barrier")
			ask(t, c.y, "udp", c.at(c.q, six), "barrier")
		}
	}
	for _, six := range []bool{false, true} {
		host := map[bool]netip.Addr{false: host4, true: host6}[six]
		for _, attempt := range []struct {
			name string
			from place
			to   netip.Addr
		}{
			{"from another pod of the provider", otherX, c.at(c.p, six)},
			{"from the provider's host", c.p, c.at(c.p, six)},
			{"from a guest, to a place of nobody", c.x, c.at(c.p, six).Next()},
			{"from a guest, to the first of the places", c.x, beside(ofFamily(c.h.peer(c.p).Ours, six)).Addr()},
			{"from a guest, by the consumer's address", c.x, c.h.seen(c.q, c.y.addr(six))},
			{"from a pod of the consumer, as the provider says", home, c.at(c.p, six)},
		} {
			checkSilence(t, fmt.Sprintf("%s, IPv6 %v", attempt.name, six), func(what string) { say(t, attempt.from, attempt.to, talk, what) }, pass, everybody...)
		}
		// A provider that filters nothing.
		mine := c.h.seen(c.p, c.x.addr(six))
		for _, attempt := range []struct {
			name     string
			from, to netip.Addr
		}{
			{"from another pod of the provider", c.h.seen(c.p, otherX.addr(six)), c.at(c.p, six)},
			{"from the provider's host", c.h.seen(c.p, host), c.at(c.p, six)},
			{"from behind the provider", last(ofFamily(c.h.peer(c.p).Theirs, six)), c.at(c.p, six)},
			{"to a place of nobody", mine, c.at(c.p, six).Next()},
			{"by the consumer's address", mine, c.h.seen(c.q, c.y.addr(six))},
			{"to another pod of the other provider", mine, c.h.seen(c.q, otherY.addr(six))},
			{"to the other provider's host", mine, c.h.seen(c.q, host)},
			{"from a place", c.at(c.q, six), c.at(c.p, six)},
			{"back", mine, mine},
		} {
			checkSilence(t, fmt.Sprintf("from the device, %s, IPv6 %v", attempt.name, six), func(what string) { inject(t, c.h, udp(attempt.from, attempt.to, talk, what)) }, pass, everybody...)
		}
		// A consumer that lets all pass.
		for name, to := range map[string]netip.Addr{"another pod": otherY.addr(six), "the host": host} {
			checkSilence(t, fmt.Sprintf("by the consumer, to %s of the provider, IPv6 %v", name, six), func(what string) {
				inject(t, c.q, udp(c.at(c.q, six), c.h.seen(c.q, to), talk, what))
			}, pass, everybody...)
		}
	}
	c.checkStrange()
}

// A connection ends with what allowed it: the permission, or the address of one of its ends.
func TestGuestsOfTwoProvidersComeAndGo(t *testing.T) {
	for name, change := range map[string]func(c *hub){
		"the permission":               func(c *hub) { c.h.peer(c.q).Out = c.h.peer(c.q).Out[1:] },
		"the address of who was asked": func(c *hub) { c.h.peer(c.p).Thirds = c.h.peer(c.p).Thirds[1:] },
		"the address of who asks":      func(c *hub) { c.h.peer(c.q).Thirds = nil },
		"another address of who was asked": func(c *hub) {
			thirds := c.h.peer(c.p).Thirds
			c.h.peer(c.p).Thirds = []Third{{thirds[0].Here, thirds[0].There.Next()}, thirds[1]}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newHub(t)
			session, err := dial(c.x, "tcp", c.at(c.p, false), talk)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = session.Close() }()
			exchange(t, session, "one")
			kept := [2]Peer{*c.h.peer(c.p), *c.h.peer(c.q)}
			change(c)
			c.h.set()
			if n := flows(t, c.h, 6); n != 0 {
				t.Errorf("%d connections are still tracked", n)
			}
			checkSilence(t, "after "+name+" went", func(what string) {
				if _, err := session.Write([]byte(what)); err != nil {
					t.Fatal(err)
				}
			}, func() { ask(t, c.h, "udp", c.h.seen(c.q, c.y.v4), "barrier") }, c.y.heard)
			*c.h.peer(c.p), *c.h.peer(c.q) = kept[0], kept[1]
			c.h.set()
			ask(t, c.x, "udp", c.at(c.p, false), "again")
		})
	}
}

// What a provider's pods open to another provider counts as the first one's.
func TestConnectionsByTheHubAreBounded(t *testing.T) {
	const most, tried = 20, 30
	c := newHub(t)
	needsLimit(t, c.h)
	c.h.desired.Connections = 2 * most
	c.h.set()
	more := func() { startFlow(t, c.x, c.at(c.p, false), 99, "one more") }
	for range tried {
		more()
	}
	c.h.awaitRefusals(c.p.name, tried-most/2, more) // the other half is for the other pods of that provider
	ask(t, c.y, "udp", c.at(c.q, false), "the other provider has its own")
	if n := c.h.refusals(c.q.name); n != 0 {
		t.Errorf("%d packets of the other provider were refused", n)
	}
}

// A grant by a peer that is not there, or not yet, is none, and keeps nothing else from being set.
func TestGrantByNobody(t *testing.T) {
	d := example(2, 1)
	d.Peers[0].Out = append([]Grant{{From: prefixes("241.1.1.2/32"), To: prefixes("241.1.0.2/32"), By: "nobody"}}, d.Peers[0].Out...)
	for _, r := range rulesets(&d) {
		if n := len(r.chains["out_peer-0"].rules); n != 1 {
			t.Errorf("IPv6 %v: %d rules, want 1", r.six, n)
		}
	}
}
