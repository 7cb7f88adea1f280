package contact

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"liqo.io/agent/agent/recorder"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// TestWhateverHappens runs random sequences of what is said about places and of
// what happens at them. Nothing may ever be seen at a place that was not there, or
// that the lead is not about; and when all is quiet, everything must be known.
func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// rapid gives sequences up by panicking, which must not end the bubble's test,
		// and tells them from failures by the line.
		var panicked any
		synctest.Test(t, func(*testing.T) {
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
	rt    *rapid.T
	leads map[peer.Key]Lead
	ever  map[string][]host   // who was ever at a place
	said  map[peer.Key][]Lead // what was ever said of a lead
}

func newModel(rt *rapid.T) *model {
	m := &model{rt: rt, leads: make(map[peer.Key]Lead), ever: make(map[string][]host), said: make(map[peer.Key][]Lead)}
	m.bed = newBed(&testing.T{}, func(cfg *Config) { cfg.Parallel = 3 })
	return m
}

func (m *model) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(m.rt, what) }

func (m *model) url() string {
	return fmt.Sprintf("https://%c", 'p'+rune(m.draw("place", 4)))
}

func (m *model) lead() Lead {
	// More leads than places: several lead to the same.
	l := wan(fmt.Sprintf("d%d", m.draw("domain", 2)), m.url())
	l.Key.Instance = fmt.Sprint(m.draw("instance", 3))
	if m.draw("source", 2) == 0 {
		l.Key.Source, l.Key.Domain, l.Addrs = peer.Manual, "", nil
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

func (m *model) hosts() []host {
	var out []host
	for range m.draw("hosts", 3) {
		id := fmt.Sprint("k", m.draw("cluster", 3))
		out = append(out, []host{
			cluster(id), cluster(id), cluster(id), {id: peer.ClusterID(id), key: keyOf("clone")},
			cluster("self"), {id: self, key: keyOf("clone")}, {not: endpoint.ReasonNotTLS}, {not: endpoint.ReasonBadAnswer},
		}[m.draw("kind", 8)])
	}
	return out
}

func (m *model) ids() []peer.ClusterID { return []peer.ClusterID{"k0", "k1", "k2", self} }

func (m *model) run() {
	m.bed.run()
	defer m.stop()
	for range m.draw("steps", 40) {
		m.step()
		m.always()
	}
	m.records.change(func() { clear(m.records.dead) }, m.ids()...)
	wait(2 * time.Hour)
	m.always()
	for _, l := range m.leads {
		m.finally(l)
	}
	m.quiet()
}

func (m *model) step() {
	switch step := rapid.SampledFrom([]string{
		"set", "set", "set", "again", "drop", "ask", "move", "move", "slow", "die", "forget", "trust", "elsewhere",
		"wait", "wait a little", "wait long",
	}).Draw(m.rt, "step"); step {
	case "set":
		l := m.lead()
		m.leads[l.Key] = l
		m.said[l.Key] = append(m.said[l.Key], l)
		m.Set(l)
	case "again":
		for _, l := range m.leads {
			m.Set(l)
		}
	case "drop":
		k := m.lead().Key
		delete(m.leads, k)
		m.Drop(k, recorder.Absence{Said: true})
	case "ask":
		m.Ask(m.lead().Key)
	case "move":
		url, hosts := m.url(), m.hosts()
		m.ever[url] = append(m.ever[url], hosts...)
		m.world.put(url, hosts...)
	case "slow":
		url, wait := m.url(), time.Duration(m.draw("seconds", 5))*time.Second
		m.world.slows(url, wait)
	case "die":
		id := m.ids()[m.draw("ID", 3)]
		m.records.change(func() { m.records.dead[id] = !m.records.dead[id] }, id)
	case "forget":
		id := m.ids()[m.draw("ID", 3)]
		m.records.change(func() {
			delete(m.records.known, id)
			for k, s := range m.records.seen {
				if s.ClusterID == id {
					delete(m.records.seen, k)
				}
			}
		}, id)
	case "trust":
		id, key := m.ids()[m.draw("ID", 3)], []string{"clone", ""}[m.draw("key", 2)]
		if key == "" {
			key = string(id)
		}
		m.records.change(func() { m.records.known[id] = keyOf(key) }, id)
	case "elsewhere":
		id := m.ids()[m.draw("ID", 3)]
		m.records.change(func() { m.records.elsewhere[id] = !m.records.elsewhere[id] }, id)
	case "wait":
		wait(timeout)
	case "wait a little":
		wait(time.Duration(m.draw("ms", 1000)) * time.Millisecond)
	case "wait long":
		wait(15 * time.Minute)
	}
}

// always checks what must be so at any time.
func (m *model) always() {
	synctest.Wait()
	if _, most := m.world.under(""); most > 3 {
		fatalf("%d attempts at a time", most)
	}
	m.records.mu.Lock()
	defer m.records.mu.Unlock()
	for k, s := range m.records.seen {
		l, ok := m.leads[k]
		said := slices.ContainsFunc(m.said[k], func(l Lead) bool { return s.ClusterID == l.ID && s.Fingerprint == l.Fingerprint && s.URL == l.URL })
		there := slices.ContainsFunc(m.ever[s.URL], func(h host) bool { return h.id == s.ClusterID && h.key == s.Fingerprint })
		switch {
		case !ok:
			fatalf("%v was dropped, and %s is still seen", k, s.ClusterID)
		case !said && !there:
			fatalf("%s was never at %s", s.ClusterID, s.URL)
		case s.ClusterID == self && s.Fingerprint == selfKey:
			fatalf("we see ourselves")
		case !l.allows(&s):
			fatalf("%+v is about somebody else than %+v", l, s)
		case s.TTL != l.TTL:
			fatalf("TTL %v, not %v", s.TTL, l.TTL)
		}
	}
}

// finally checks what must be known of a lead when nothing has happened for long.
func (m *model) finally(l Lead) {
	m.records.mu.Lock()
	defer m.records.mu.Unlock()
	fail := func(format string, args ...any) {
		s, _ := m.State(l.Key)
		fatalf("%+v\nat its place: %+v\n%+v\n%s", l, m.world.hosts[l.URL], s, fmt.Sprintf(format, args...))
	}
	s, ok := m.State(l.Key)
	if !ok || s.Lead.URL != l.URL || s.Lead.ID != l.ID || s.Lead.Fingerprint != l.Fingerprint || s.Lead.TTL != l.TTL {
		fail("not known")
	}
	sighting, seen := m.records.seen[l.Key]
	if l.Key.Source == peer.WAN && l.isSaid() {
		if !seen || sighting.ClusterID != l.ID || sighting.Fingerprint != l.Fingerprint || sighting.URL != l.URL {
			fail("it is not seen as said: %+v", sighting)
		}
		known := m.records.known[l.ID]
		// What another lead of the domain says cannot be told from what this one does.
		likewise := false
		for k, o := range m.records.seen {
			likewise = likewise || k.Domain == l.Key.Domain && k.Source == l.Key.Source && o.ClusterID == l.ID && o.Fingerprint == known
		}
		if (known == l.Fingerprint || likewise) != (s.Reason == "") {
			fail("the recorder knows it by %s", known)
		}
		return
	}
	var clusters, fitting []host
	ours, web := false, false
	for _, h := range m.world.hosts[l.URL] {
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
	good := func(h host) bool { return h.id != self && m.records.known[h.id] == h.key }
	is := func(h host) bool { return s.ID == h.id && s.Fingerprint == h.key }
	switch {
	case len(fitting) > 0:
		switch {
		case !seen || sighting.ClusterID != s.ID || sighting.Fingerprint != s.Fingerprint || sighting.URL != l.URL:
			fail("it is seen as %+v", sighting)
		case !slices.ContainsFunc(fitting, is):
			fail("it is not there")
		case slices.ContainsFunc(fitting, func(h host) bool { return is(h) && good(h) }):
			if s.Reason != "" || s.Failures != 0 || s.Next.After(time.Now().Add(lookEvery*11/10)) {
				fail("it is good")
			}
		case s.Reason != OtherKey || slices.ContainsFunc(fitting, func(h host) bool { return h.id == s.ID && good(h) }):
			fail("it is another key, or the right one is there as well")
		}
		return
	case len(clusters) > 0:
		want := OtherKey
		if l.ID != "" && clusters[0].id != l.ID {
			want = OtherCluster
		}
		if s.Reason != want || seen || !is(clusters[0]) {
			fail("want %s; seen: %v", want, seen)
		}
	case web && s.Reason != NoCluster, !web && ours && s.Reason != Ourselves, !web && !ours && s.Reason != Unreachable:
		fail("wrong reason")
	case !web && ours && seen:
		fail("we are seen as %+v", sighting)
	}
	if s.Reason != Ourselves && (s.Failures == 0 || s.Next.After(time.Now().Add(lastRetry*11/10))) {
		fail("it is not asked again in time")
	}
}

// quiet checks that nothing happens when nothing happens, apart from the asking.
func (m *model) quiet() {
	m.mu.Lock()
	clear(m.changed)
	m.mu.Unlock()
	m.world.mu.Lock()
	m.world.calls = nil
	m.world.mu.Unlock()
	wait(time.Hour)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.changed) > 0 {
		fatalf("changes: %v", m.changed)
	}
	// Once in five minutes, with up to four questions.
	if n, most := len(m.world.calls), len(m.leads)*14*4; n > most {
		fatalf("%d questions in an hour, %d at most make sense", n, most)
	}
	for _, l := range m.leads {
		if l.isAsked() && !slices.ContainsFunc(m.world.calls, func(c call) bool { return c.place == l.URL }) {
			fatalf("%v was not asked any more", l.Key)
		}
	}
}
