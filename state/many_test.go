package state

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"liqo.io/agent/peer"
)

// many makes a database with n peers that nobody sees any more, and one that is there.
// Of these, the ones with greater numbers were seen later.
func many(tb testing.TB, path string, n int) {
	s := open(tb, path, Options{})
	p := testPeer("00000000-1111-4111-8111-111111111111", "10.0.0.1:6447")
	must(tb, s.Apply(tb.Context(), Change{Peers: []peer.Peer{p}, Sightings: map[peer.ClusterID][]peer.Sighting{p.ID: {testSighting(p, "eth0")}}}))
	must(tb, s.Close())
	db, err := sql.Open("sqlite", path)
	must(tb, err)
	for table, columns := range map[string]string{
		"peers":     "name || i, namespace, fingerprint, source, url, version, links, ttl, first_seen, last_seen + i",
		"endpoints": "ip, zone, port, fingerprint, source, link, first_seen, gone_at",
	} {
		_, err := db.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
			INSERT INTO `+table+` SELECT printf('%08d-1111-4111-8111-111111111111', i), `+columns+` FROM `+table+`, n WHERE cluster_id = ?`, n, string(p.ID))
		must(tb, err)
	}
	must(tb, db.Close())
}

func numbered(i int) peer.ClusterID {
	return peer.ClusterID(fmt.Sprintf("%08d-1111-4111-8111-111111111111", i))
}

// What matters from the start is told apart from what is only remembered, of which as
// many are read as asked for, those seen last.
func TestStandingAndOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	const n = fewPeers + 30
	many(t, path, n)
	s := open(t, path, Options{})
	must(t, s.SetAlias(t.Context(), numbered(7), "attic"))
	must(t, s.UpdatePreferences(t.Context(), "never-seen", func(p *Preferences) { p.Note = "x" }))
	ids := func(peers []peer.Peer, err error) (out []peer.ClusterID) {
		t.Helper()
		must(t, err)
		for _, p := range peers {
			if len(p.Addrs) != 1 || p.Phase != peer.PhaseLost || (p.Alias == "attic") != (p.ID == numbered(7)) {
				t.Errorf("%+v", p)
			}
			out = append(out, p.ID)
		}
		return out
	}
	if got := ids(s.Standing(t.Context())); !slices.Equal(got, []peer.ClusterID{numbered(0), numbered(7)}) {
		t.Errorf("standing: %v", got)
	}
	if got := ids(s.Others(t.Context(), 3)); !slices.Equal(got, []peer.ClusterID{numbered(n - 2), numbered(n - 1), numbered(n)}) {
		t.Errorf("others: %v", got)
	}
	if got := ids(s.Others(t.Context(), 2*n)); len(got) != n-1 || slices.Contains(got, numbered(7)) || slices.Contains(got, numbered(0)) {
		t.Errorf("all others: %v", got)
	}
	if got := ids(s.Others(t.Context(), 0)); len(got) != 0 {
		t.Errorf("no others: %v", got)
	}
	must(t, s.Close())
	path = filepath.Join(t.TempDir(), "agent.db")
	many(t, path, 30)
	s = open(t, path, Options{})
	if got, err := s.Standing(t.Context()); err != nil || len(got) != 31 {
		t.Errorf("of few peers: %d, %v", len(got), err)
	}
	if got, err := s.Others(t.Context(), n); err != nil || len(got) != 0 {
		t.Errorf("other than all of few peers: %d, %v", len(got), err)
	}
}

// BenchmarkRemembered is what a start reads among 100,000 remembered peers: what
// matters at once, and 10,000 that were seen last.
func BenchmarkRemembered(b *testing.B) {
	path := filepath.Join(b.TempDir(), "agent.db")
	many(b, path, 100_000)
	var opening, standing, others time.Duration
	for b.Loop() {
		at := time.Now()
		s, err := Open(b.Context(), path, Options{})
		must(b, err)
		opened := time.Now()
		if peers, err := s.Standing(b.Context()); err != nil || len(peers) != 1 {
			b.Fatalf("%d peers, %v", len(peers), err)
		}
		stood := time.Now()
		if peers, err := s.Others(b.Context(), 10_000); err != nil || len(peers) != 10_000 {
			b.Fatalf("%d peers, %v", len(peers), err)
		}
		opening, standing, others = opening+opened.Sub(at), standing+stood.Sub(opened), others+time.Since(stood)
		must(b, s.Close())
	}
	for unit, d := range map[string]time.Duration{"ms-open": opening, "ms-standing": standing, "ms-others": others} {
		b.ReportMetric(float64(d.Microseconds())/1000/float64(b.N), unit)
	}
}
