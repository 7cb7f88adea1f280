package state

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"liqo.io/agent/peer"
)

// schema1 copies a database that an agent with schema 1 wrote to a new place.
func schema1(t testing.TB) string {
	t.Helper()
	content, err := os.ReadFile("testdata/schema1.db")
	must(t, err)
	path := filepath.Join(t.TempDir(), "agent.db")
	must(t, os.WriteFile(path, content, 0o640))
	return path
}

// checkSchema1 compares with what that agent stored.
func checkSchema1(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	if id, err := s.ClusterID(ctx); err != nil || id != "me" {
		t.Errorf("ClusterID = %q, %v", id, err)
	}
	if origin, err := s.ClusterIDOrigin(ctx); err != nil || origin != "schema 1" {
		t.Errorf("origin = %q, %v", origin, err)
	}
	peers, err := s.Peers(ctx)
	must(t, err)
	history, err := s.History(ctx, HistoryQuery{})
	must(t, err)
	seen, err := s.Seen(ctx)
	must(t, err)
	if len(peers) != 20 || len(history) != 20 || len(seen) != 20 {
		t.Fatalf("%d peers, %d events, %d seen, want 20 of each", len(peers), len(history), len(seen))
	}
	for i, p := range peers {
		id := peer.ClusterID(fmt.Sprintf("peer-%04d", i))
		addr := fmt.Sprintf("10.0.0.%d:6447", i+1)
		if p.ID != id || p.Fingerprint != peer.FingerprintOf([]byte(id)) || len(p.Addrs) != 1 || p.Addrs[0].String() != addr || !p.FirstSeen.Equal(epoch) {
			t.Errorf("peer = %+v", p)
		}
		if sightings, err := s.Sightings(ctx, id); err != nil || len(sightings) != 1 || sightings[0].Link != "eth0" {
			t.Errorf("sightings = %+v, %v", sightings, err)
		}
		want := Ruling{}
		if i < 10 {
			want.Preferences = Preferences{Blocked: Yes, Alias: fmt.Sprint("alias ", i), Note: "note"}
		}
		if r, err := s.Ruling(ctx, id); err != nil || r != want {
			t.Errorf("%s: %+v, %v, want %+v", id, r, err, want)
		}
	}
}

func TestUpgrade(t *testing.T) {
	path := schema1(t)
	s := open(t, path, Options{})
	if s.Recovery() != nil {
		t.Fatalf("taken for damaged: %v", s.Recovery())
	}
	checkSchema1(t, s)
	must(t, s.Check(t.Context()))
	want := testRuling("peer-0003")
	want.Preferences.Alias = "alias 3"
	must(t, s.SetRuling(t.Context(), "peer-0003", want))
	must(t, s.Close())
	r, err := OpenReadOnly(t.Context(), path)
	must(t, err)
	got, err := r.Ruling(t.Context(), "peer-0003")
	if must(t, err); got != want {
		t.Errorf("after the upgrade: %+v, want %+v", got, want)
	}
	must(t, r.Close())
	if left, _ := filepath.Glob(path + "*"); len(left) != 2 { // and the lock
		t.Errorf("left %v", left)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestUpgradeFromLog: a killed agent of schema 1 left half of its memory in the
// write-ahead log.
func TestUpgradeFromLog(t *testing.T) {
	all, err := builtinMigrations()
	must(t, err)
	path := filepath.Join(t.TempDir(), "agent.db")
	db, conn, err := buildFile(t.Context(), path, all[:1])
	must(t, err)
	_, err = conn.ExecContext(t.Context(), "INSERT INTO identity VALUES (1, 'logged', 'test', 0)")
	must(t, err)
	killed := filepath.Join(t.TempDir(), "agent.db") // before the log is folded in
	must(t, copyDatabase(path, killed))
	must(t, hangUp(db, conn))
	if info, err := os.Stat(killed + "-wal"); err != nil || info.Size() == 0 {
		t.Fatalf("this test wants a write-ahead log: %v", err)
	}
	s := open(t, killed, Options{})
	if id, err := s.ClusterID(t.Context()); err != nil || id != "logged" || s.Recovery() != nil {
		t.Errorf("ClusterID = %q, %v, %v", id, err, s.Recovery())
	}
	must(t, s.Check(t.Context()))
}

// TestUpgradeInterrupted: an agent that died while upgrading leaves the old file
// and scraps that mean nothing; one that fails leaves the old file.
func TestUpgradeInterrupted(t *testing.T) {
	path := schema1(t)
	for _, name := range []string{buildName(path), upgradeName(path)} {
		for _, suffix := range sideFiles {
			must(t, os.WriteFile(name+suffix, noise(5000), 0o640))
		}
	}
	s := open(t, path, Options{})
	checkSchema1(t, s)

	path = schema1(t)
	before, err := os.ReadFile(path)
	must(t, err)
	all, err := builtinMigrations()
	must(t, err)
	broken := slices.Clone(all)
	broken[len(broken)-1].sql += "; INSERT INTO nowhere VALUES (1)"
	old := &Store{path: path}
	if err := old.upgrade(t.Context(), broken); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("broken upgrade: %v", err)
	}
	after, err := os.ReadFile(path)
	must(t, err)
	if left, _ := filepath.Glob(path + "*"); !bytes.Equal(before, after) || len(left) != 1 {
		t.Errorf("the old file changed: %t; left: %v", !bytes.Equal(before, after), left)
	}
}

// TestMemoryRemembersOlder: an agent that cannot write its disk cannot upgrade
// the file, and knows what is in it all the same.
func TestMemoryRemembersOlder(t *testing.T) {
	path := schema1(t)
	before, err := os.ReadFile(path)
	must(t, err)
	checkSchema1(t, open(t, path, Options{Memory: true}))
	after, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(before, after) {
		t.Error("the file was changed")
	}
}

// TestSalvageKnowsAllTables: what salvage and upgrade carry over is everything.
func TestSalvageKnowsAllTables(t *testing.T) {
	s, _ := openNew(t, Limits{})
	var tables []string
	must(t, query(t.Context(), s.conn, func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		tables = append(tables, name)
		return err
	}, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"))
	if want := slices.Sorted(slices.Values(salvaged)); !slices.Equal(tables, want) {
		t.Errorf("tables %v, salvaged %v", tables, want)
	}
}

// TestDamagedOlder: the damage was done before the upgrade.
func TestDamagedOlder(t *testing.T) {
	for name, damage := range map[string]func([]byte){
		"first page lost":  func(b []byte) { clear(b[:pageSize]) },
		"last page noise":  func(b []byte) { copy(b[len(b)-pageSize:], noise(pageSize)) }, // the index of aliases
		"events page lost": func(b []byte) { clear(b[6*pageSize : 7*pageSize]) },
	} {
		t.Run(name, func(t *testing.T) {
			path := schema1(t)
			content, err := os.ReadFile(path)
			must(t, err)
			damage(content)
			must(t, os.WriteFile(path, content, 0o640))
			s := open(t, path, Options{})
			if s.Recovery() == nil || !s.Recovery().Identity() {
				t.Fatalf("Recovery = %v", s.Recovery())
			}
			must(t, s.Check(t.Context()))
			if strings.HasPrefix(name, "events") {
				for i := range 10 {
					p, err := s.Preferences(t.Context(), peer.ClusterID(fmt.Sprintf("peer-%04d", i)))
					if want := (Preferences{Blocked: Yes, Alias: fmt.Sprint("alias ", i), Note: "note"}); err != nil || p != want {
						t.Errorf("preferences %d = %+v, %v", i, p, err)
					}
				}
				return
			}
			checkSchema1(t, s)
		})
	}
}

// TestDamagedAfterUpgrade: where the tables of an upgraded file begin is known.
func TestDamagedAfterUpgrade(t *testing.T) {
	path := schema1(t)
	db, conn, err := dialWriter(t.Context(), path, shared)
	must(t, err)
	for range 200 { // so that there are pages behind those that tables begin at
		_, err := conn.ExecContext(t.Context(), "INSERT INTO events (at, cluster_id, kind, detail) VALUES (1, 'p', 'lost', ?)", strings.Repeat("x", 200))
		must(t, err)
	}
	must(t, hangUp(db, conn))
	s := open(t, path, Options{})
	want := testRuling("peer-0003")
	must(t, s.SetRuling(t.Context(), "peer-0003", want))
	must(t, s.Close())
	content, err := os.ReadFile(path)
	must(t, err)
	for _, n := range schemaPages(content) {
		clear(content[(n-1)*pageSize : n*pageSize])
	}
	must(t, os.WriteFile(path, content, 0o640))
	s = open(t, path, Options{})
	if got, err := s.Ruling(t.Context(), "peer-0003"); err != nil || got != want || s.Recovery() == nil || s.Recovery().Kept["events"] != 220 {
		t.Errorf("%+v, %v; %v", got, err, s.Recovery())
	}
}
