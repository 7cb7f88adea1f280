package registry

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
)

// TestWhateverHappens runs random sequences of what is said about places and of
// what happens at them. Nothing may ever be seen at a place that was not there, or
// that the candidate is not about; and when all is quiet, everything must be known.
func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// rapid gives sequences up by panicking, which must not end the bubble's test,
		// and tells them from failures by the line.
		var panicked any
		bubble.Test(t, func(*testing.T) {
			defer func() { panicked = recover() }()
			newModel(rt).run()
		})
		if failed, ok := panicked.(failure); ok {
			rt.Fatal(string(failed))
		}
		if panicked != nil {
			panic(panicked)
		}
	})
}

// failure is what is wrong.
type failure string

func fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

type model struct {
	*bed
	rt         *rapid.T
	candidates map[peer.Key]Candidate
	ever       map[string][]box         // who was ever at a place
	said       map[peer.Key][]Candidate // what was ever said of a candidate
}

func newModel(rt *rapid.T) *model {
	m := &model{rt: rt, candidates: make(map[peer.Key]Candidate), ever: make(map[string][]box), said: make(map[peer.Key][]Candidate)}
	m.bed = newBed(&testing.T{}, func(cfg *Config) { cfg.Lookups = 3 })
	return m
}

func (m *model) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(m.rt, what) }

func (m *model) url() string {
	return fmt.Sprintf("https://%c", 'p'+rune(m.draw("place", 4)))
}

func (m *model) candidate() Candidate {
	// More candidates than places: several lead to the same.
	l := wan(fmt.Sprintf("d%d", m.draw("domain", 2)), m.url())
	l.Instance = fmt.Sprint(m.draw("instance", 3))
	if m.draw("source", 2) == 0 {
		l.Source, l.Domain, l.Addrs = peer.Manual, "", nil
	}
	switch expects := m.draw("expects", 4); {
	case expects&1 != 0:
		l = l.expecting(fmt.Sprint("k", m.draw("ID", 3)))
		fallthrough
	case expects&2 != 0:
		if expects&2 != 0 {
			l = l.holding(fmt.Sprint("k", m.draw("key", 3)))
		}
	}
	l.TTL = time.Duration(m.draw("TTL", 2)) * time.Minute
	return l
}

func (m *model) hosts() []box {
	var out []box
	for range m.draw("hosts", 3) {
		id := fmt.Sprint("k", m.draw("cluster", 3))
		out = append(out, []box{
			boxOf(id), boxOf(id), boxOf(id), {id: peer.ClusterID(id), key: keyOf("clone")},
			boxOf("self"), {id: self, key: keyOf("clone")}, {not: client.ReasonNotTLS}, {not: client.ReasonBadAnswer},
		}[m.draw("kind", 8)])
	}
	return out
}

// onLink is where a cluster answers that announces itself.
func (m *model) onLink(i int) string { return fmt.Sprintf("https://10.0.0.%d:6447", i+1) }

func (m *model) ids() []peer.ClusterID { return []peer.ClusterID{"k0", "k1", "k2", self} }

func (m *model) run() {
	m.bed.run()
	defer m.stop()
	for range m.draw("steps", 40) {
		m.step()
		m.inspect(m.always)
	}
	for i := range 3 {
		m.world.put(m.onLink(i), boxOf(fmt.Sprint("k", i)))
	}
	wait(2 * time.Hour)
	m.inspect(m.always)
	for _, l := range m.candidates {
		m.inspect(func() { m.finally(l) })
	}
	m.quiet()
}

func (m *model) step() {
	switch step := rapid.SampledFrom([]string{
		"set", "set", "set", "again", "drop", "move", "move", "slow", "die", "revive", "forget", "trust", "announce", "announce", "leave",
		"wait", "wait a little", "wait long",
	}).Draw(m.rt, "step"); step {
	case "set":
		l := m.candidate()
		m.candidates[l.Key()] = l
		m.said[l.Key()] = append(m.said[l.Key()], l)
		m.SetCandidate(l)
	case "again":
		for _, l := range m.candidates {
			m.SetCandidate(l)
		}
	case "drop":
		k := m.candidate().Key()
		delete(m.candidates, k)
		m.DropCandidate(k, Absence{Evidence: Withdrawn})
	case "move":
		url, hosts := m.url(), m.hosts()
		m.ever[url] = append(m.ever[url], hosts...)
		m.world.put(url, hosts...)
	case "slow":
		url, wait := m.url(), time.Duration(m.draw("seconds", 5))*time.Second
		m.world.slows(url, wait)
	case "die":
		i := m.draw("ID", 3)
		m.world.put(m.onLink(i))
	case "revive":
		i := m.draw("ID", 3)
		m.world.put(m.onLink(i), boxOf(fmt.Sprint("k", i)))
	case "forget":
		if err := m.Forget(context.Background(), m.ids()[m.draw("ID", 3)]); err != nil {
			fatalf("forget: %v", err)
		}
	case "trust":
		id, key := m.ids()[m.draw("ID", 3)], []string{"clone", ""}[m.draw("key", 2)]
		if _, err := m.Adopt(context.Background(), id, keyOf(cmp.Or(key, string(id)))); err != nil {
			fatalf("adopt: %v", err)
		}
	case "announce":
		i := m.draw("ID", 3)
		s := peer.Sighting{Source: peer.LAN, Link: "eth0", Instance: fmt.Sprint("k", i), ClusterID: m.ids()[i], Fingerprint: keyOf(fmt.Sprint("k", i)),
			Addrs: []netip.AddrPort{netip.MustParseAddrPort(m.onLink(i)[len("https://"):])}}
		if err := m.See(context.Background(), s); err != nil {
			fatalf("see: %v", err)
		}
	case "leave":
		m.leaves(fmt.Sprint("k", m.draw("ID", 3)))
	case "wait":
		wait(timeout)
	case "wait a little":
		wait(time.Duration(m.draw("ms", 1000)) * time.Millisecond)
	case "wait long":
		wait(15 * time.Minute)
	}
}

// always checks what must be so at any time. It reads the machine: see inspect.
func (m *model) always() {
	if _, most := m.world.under(""); most > 3 {
		fatalf("%d attempts at a time", most)
	}
	for k, s := range m.machine.seen {
		if k.Source == peer.LAN {
			continue
		}
		l, ok := m.candidates[k]
		said := slices.ContainsFunc(m.said[k], func(l Candidate) bool {
			return s.ClusterID == l.ClusterID && s.Fingerprint == l.Fingerprint && s.URL == l.URL
		})
		there := slices.ContainsFunc(m.ever[s.URL], func(h box) bool { return h.id == s.ClusterID && h.key == s.Fingerprint })
		switch {
		case !ok:
			fatalf("%v was dropped, and %s is still seen", k, s.ClusterID)
		case !said && !there:
			fatalf("%s was never at %s", s.ClusterID, s.URL)
		case s.ClusterID == self && s.Fingerprint == selfKey:
			fatalf("we see ourselves")
		case !l.allows(s.Sighting):
			fatalf("%+v is about somebody else than %+v", l, *s.Sighting)
		case s.TTL != l.TTL:
			fatalf("TTL %v, not %v", s.TTL, l.TTL)
		}
	}
}

// finally checks what must be known of a candidate when nothing has happened for long.
func (m *model) finally(l Candidate) {
	fail := func(format string, args ...any) {
		s, _ := m.Candidate(l.Key())
		fatalf("%+v\nat its place: %+v\n%+v\n%s", l, m.world.boxes[l.URL], s, fmt.Sprintf(format, args...))
	}
	s, ok := m.Candidate(l.Key())
	if !ok || s.Candidate.URL != l.URL || s.Candidate.ClusterID != l.ClusterID || s.Candidate.Fingerprint != l.Fingerprint || s.Candidate.TTL != l.TTL {
		fail("not known")
	}
	sighting, seen := m.sighting(l.Key()), m.machine.seen[l.Key()] != nil
	if l.Source == peer.WAN && l.identified() {
		if !seen || sighting.ClusterID != l.ClusterID || sighting.Fingerprint != l.Fingerprint || sighting.URL != l.URL {
			fail("it is not seen as said: %+v", sighting)
		}
		p, _ := m.Peer(l.ClusterID)
		there := slices.ContainsFunc(m.world.boxes[l.URL], func(h box) bool { return h.id == l.ClusterID && h.key == l.Fingerprint })
		known := m.machine.known(l.ClusterID)
		switch good := known == l.Fingerprint && p.Phase == peer.PhasePresent; {
		case good != (s.Reason == ""), there && known == l.Fingerprint && !good:
			fail("it is known by %s, and %s: %s", known, p.Phase, p.Reason)
		case !known.IsZero() && known != l.Fingerprint && s.Reason != OtherKey:
			fail("it is known by another key, %s", known)
		case there && known.IsZero():
			fail("nobody is known")
		}
		return
	}
	var clusters, fitting []box
	ours, web := false, false
	for _, h := range m.world.boxes[l.URL] {
		switch {
		case h.not != "":
			web = true
		case h.key == selfKey:
			ours = true
		default:
			clusters = append(clusters, h)
			if l.allows(&peer.Sighting{ClusterID: h.id, Fingerprint: h.key}) {
				fitting = append(fitting, h)
			}
		}
	}
	good := func(h box) bool { return h.id != self && m.machine.known(h.id) == h.key }
	is := func(h box) bool { return s.ID == h.id && s.Fingerprint == h.key }
	switch {
	case len(fitting) > 0:
		switch {
		case !seen || sighting.ClusterID != s.ID || sighting.Fingerprint != s.Fingerprint || sighting.URL != l.URL:
			fail("it is seen as %+v", sighting)
		case !slices.ContainsFunc(fitting, is):
			fail("it is not there")
		case slices.ContainsFunc(fitting, func(h box) bool { return is(h) && good(h) }):
			if s.Reason != "" || s.Failures != 0 || s.Next.After(time.Now().Add(lookEvery*11/10)) {
				fail("it is good")
			}
		case s.Reason != OtherKey || slices.ContainsFunc(fitting, func(h box) bool { return h.id == s.ID && good(h) }):
			fail("it is another key, or the right one is there as well")
		}
		return
	case len(clusters) > 0:
		want := OtherKey
		if l.ClusterID != "" && clusters[0].id != l.ClusterID {
			want = OtherCluster
		}
		if s.Reason != want || seen || !is(clusters[0]) {
			fail("want %s; seen: %v", want, seen)
		}
	case web && s.Reason != NotACluster, !web && ours && s.Reason != ThisCluster, !web && !ours && s.Reason != Unreachable:
		fail("wrong reason")
	case !web && ours && seen:
		fail("we are seen as %+v", sighting)
	}
	if s.Reason != ThisCluster && (s.Failures == 0 || s.Next.After(time.Now().Add(lastRetry*11/10))) {
		fail("it is not asked again in time")
	}
}

// quiet checks that nothing happens when nothing happens, apart from the asking.
func (m *model) quiet() {
	m.mu.Lock()
	clear(m.changed)
	m.mu.Unlock()
	m.world.mu.Lock()
	m.world.questions = nil
	m.world.mu.Unlock()
	wait(time.Hour)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.changed) > 0 {
		fatalf("changes: %v", m.changed)
	}
	// Once in five minutes, with up to four questions.
	if n, most := len(m.world.questions), len(m.candidates)*14*4; n > most {
		fatalf("%d questions in an hour, %d at most make sense", n, most)
	}
	for _, l := range m.candidates {
		if l.probed() && !slices.ContainsFunc(m.world.questions, func(c question) bool { return c.place == l.URL }) {
			fatalf("%v was not asked any more", l.Key())
		}
	}
}
