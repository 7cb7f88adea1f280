package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/peer"
)

// olderSchemas are those that there is a database of in testdata.
var olderSchemas = []int{1, 2, 3, 4, 5, 6, 7, 8, 9}

// older copies a database that an agent of that schema wrote to a new place.
func older(t testing.TB, schema int) string {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("testdata/schema%d.db", schema))
	must(t, err)
	path := filepath.Join(t.TempDir(), "agent.db")
	must(t, os.WriteFile(path, content, 0o640))
	return path
}

// checkOlder compares with what that agent stored.
func checkOlder(t *testing.T, s *Store, schema int) {
	t.Helper()
	ctx := t.Context()
	if id, err := s.ClusterID(ctx); err != nil || id != "me" {
		t.Errorf("ClusterID = %q, %v", id, err)
	}
	if origin, err := s.ClusterIDOrigin(ctx); err != nil || origin != fmt.Sprint("schema ", schema) {
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
		sightings, err := s.Sightings(ctx, id)
		must(t, err)
		if len(sightings) != 1 || sightings[0].Link != "eth0" || sightings[0].Domain != "" ||
			schema > 1 && !sightings[0].Equal(testSighting(testPeer(string(id), addr), "eth0")) {
			t.Errorf("sightings = %+v", sightings)
		}
		want := olderRuling(id, i, schema)
		if r, err := s.Ruling(ctx, id); err != nil || r != want {
			t.Errorf("%s: %+v, %v, want %+v", id, r, err, want)
		}
	}
}

// olderRuling is what was decided about the i-th peer of an older database.
func olderRuling(id peer.ClusterID, i, schema int) Ruling {
	switch {
	case i >= 10:
		return Ruling{}
	case schema == 1:
		return Ruling{Preferences: Preferences{Blocked: Yes, Alias: fmt.Sprint("alias ", i), Note: "note"}}
	}
	r := testRuling(id)
	if schema < 10 {
		r.Preferences.CPU, r.Preferences.Memory, r.Preferences.ByLiqo = "", "", false
	}
	if schema < 8 {
		r.Pin.NotBefore, r.Pin.NotAfter, r.Pin.Suspended = time.Time{}, time.Time{}, time.Time{}
	}
	if schema < 5 {
		r.Pin.Host, r.Pin.Domain, r.Preferences.BlockedHosts = "", "", ""
	}
	if schema < 6 {
		r.Peering.NodeName = ""
	}
	return r
}

func TestUpgrade(t *testing.T) {
	for _, schema := range olderSchemas {
		t.Run(fmt.Sprint("schema ", schema), func(t *testing.T) { testUpgrade(t, schema) })
	}
}

func testUpgrade(t *testing.T, schema int) {
	path := older(t, schema)
	s := open(t, path, Options{})
	if s.Recovery() != nil {
		t.Fatalf("taken for damaged: %v", s.Recovery())
	}
	checkOlder(t, s, schema)
	must(t, s.Check(t.Context()))
	want := testRuling("peer-0003")
	want.Preferences.Alias = "alias 3"
	must(t, s.SetRuling(t.Context(), "peer-0003", want))
	domain := testDomain("example.com")
	must(t, s.SetSearchDomain(t.Context(), domain))
	must(t, s.Close())
	r, err := OpenReadOnly(t.Context(), path)
	must(t, err)
	got, err := r.Ruling(t.Context(), "peer-0003")
	if must(t, err); got != want {
		t.Errorf("after the upgrade: %+v, want %+v", got, want)
	}
	if domains, err := r.SearchDomains(t.Context()); err != nil || len(domains) != 1 || !cmp.Equal(domains[0], domain) {
		t.Errorf("search domains after the upgrade: %+v, %v", domains, err)
	}
	if invites, err := r.Invites(t.Context()); err != nil || len(invites) != min(schema, 3)-1 {
		t.Errorf("invites after the upgrade: %+v, %v", invites, err)
	}
	must(t, r.Close())
	if left, _ := filepath.Glob(path + "*"); len(left) != 3 { // and the lock, and the file as it was
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
	path := older(t, 2)
	for _, name := range []string{buildName(path), upgradeName(path)} {
		for _, suffix := range sideFiles {
			must(t, os.WriteFile(name+suffix, noise(5000), 0o640))
		}
	}
	s := open(t, path, Options{})
	checkOlder(t, s, 2)

	path = older(t, 1)
	before, err := os.ReadFile(path)
	must(t, err)
	all, err := builtinMigrations()
	must(t, err)
	broken := slices.Clone(all)
	broken[len(broken)-1].sql += "; INSERT INTO nowhere VALUES (1)"
	old := &Store{path: path, logger: slog.New(slog.DiscardHandler)}
	if err := old.upgrade(t.Context(), 1, broken); err == nil || !strings.Contains(err.Error(), "nowhere") {
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
	for _, schema := range olderSchemas {
		path := older(t, schema)
		before, err := os.ReadFile(path)
		must(t, err)
		checkOlder(t, open(t, path, Options{Memory: true}), schema)
		after, err := os.ReadFile(path)
		must(t, err)
		if !bytes.Equal(before, after) {
			t.Errorf("schema %d: the file was changed", schema)
		}
	}
}

// TestEveryTableIsDescribed: what salvage and upgrade carry over is everything.
func TestEveryTableIsDescribed(t *testing.T) {
	s, _ := openNew(t, Limits{})
	var names []string
	must(t, query(t.Context(), s.conn, func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		names = append(names, name)
		return err
	}, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"))
	var described []string
	for _, one := range tables {
		described = append(described, one.about().name)
		columns := strings.Split(one.about().list, ", ")
		must(t, query(t.Context(), s.conn, func(scan func(...any) error) error {
			var name string
			if err := scan(&name); err != nil || !slices.Contains(columns, name) {
				t.Errorf("column %s of table %s is not described: %v", name, one.about().name, err)
			}
			return nil
		}, "SELECT name FROM pragma_table_info(?)", one.about().name))
	}
	if slices.Sort(described); !slices.Equal(names, described) {
		t.Errorf("tables %v, described %v", names, described)
	}
}

// TestDamagedOlder: the damage was done before the upgrade.
func TestDamagedOlder(t *testing.T) {
	for name, damage := range map[string]func([]byte){
		"first page lost":  func(b []byte) { clear(b[:pageSize]) },
		"last page noise":  func(b []byte) { copy(b[len(b)-pageSize:], noise(pageSize)) },
		"events page lost": func(b []byte) { clear(b[6*pageSize : 7*pageSize]) },
	} {
		for _, schema := range olderSchemas {
			t.Run(fmt.Sprintf("schema %d, %s", schema, name), func(t *testing.T) {
				path := older(t, schema)
				content, err := os.ReadFile(path)
				must(t, err)
				damage(content)
				must(t, os.WriteFile(path, content, 0o640))
				s := open(t, path, Options{})
				if s.Recovery() == nil || !s.Recovery().Identity() {
					t.Fatalf("Recovery = %v", s.Recovery())
				}
				must(t, s.Check(t.Context()))
				// No page of the old file is taken for one of a table that it did not have.
				if domains, err := s.SearchDomains(t.Context()); err != nil || schema < 3 && len(domains) > 0 {
					t.Errorf("search domains = %+v, %v", domains, err)
				}
				if _, found, err := s.RememberedConfig(t.Context()); err != nil || schema < 3 && found {
					t.Errorf("a ClusterConfig was found: %t, %v", found, err)
				}
				if version, _, err := s.Writer(t.Context()); err != nil || schema < 4 && version != "" {
					t.Errorf("a writer was found: %q, %v", version, err)
				}
				if name == "first page lost" || schema == 1 && name == "last page noise" { // there it is the index of aliases
					checkOlder(t, s, schema)
					return
				}
				for i := range 10 {
					id := peer.ClusterID(fmt.Sprintf("peer-%04d", i))
					r, err := s.Ruling(t.Context(), id)
					must(t, err)
					if want := olderRuling(id, i, schema); r.Preferences != want.Preferences || r.Pin != want.Pin {
						t.Errorf("ruling %d = %+v, want %+v", i, r, want)
					}
				}
			})
		}
	}
}

// schemaPages returns the numbers of the pages of a sound database that hold
// its list of tables: page 1 and, when the list is long, those that it points
// to (SQLite's file format, section 1.6).
func schemaPages(database []byte) []int {
	const (
		header       = 100 // of the database, before that of page 1
		interiorTree = 0x05
	)
	numbers := []int{1}
	if database[header] != interiorTree {
		return numbers
	}
	cells := int(binary.BigEndian.Uint16(database[header+3:]))
	for i := range cells {
		cell := binary.BigEndian.Uint16(database[header+12+2*i:])
		numbers = append(numbers, int(binary.BigEndian.Uint32(database[cell:])))
	}
	return append(numbers, int(binary.BigEndian.Uint32(database[header+8:])))
}

// TestDamagedAfterUpgrade: where the tables of an upgraded file begin is known.
func TestDamagedAfterUpgrade(t *testing.T) {
	for _, schema := range olderSchemas {
		t.Run(fmt.Sprint("schema ", schema), func(t *testing.T) { testDamagedAfterUpgrade(t, schema) })
	}
}

func testDamagedAfterUpgrade(t *testing.T, schema int) {
	path := older(t, schema)
	db, conn, err := dialWriter(t.Context(), path, shared)
	must(t, err)
	must(t, inTransaction(t.Context(), conn, func() error {
		for range 80 { // so that there are pages behind those that tables begin at
			_, err := conn.ExecContext(t.Context(), "INSERT INTO events (at, cluster_id, kind, detail) VALUES (1, 'p', 'lost', ?)", strings.Repeat("x", maxDetailLength))
			if err != nil {
				return err
			}
		}
		return nil
	}))
	must(t, hangUp(db, conn))
	s := open(t, path, Options{})
	want := testRuling("peer-0003")
	must(t, s.SetRuling(t.Context(), "peer-0003", want))
	domain := testDomain("example.com")
	must(t, s.SetSearchDomain(t.Context(), domain))
	must(t, s.RememberConfig(t.Context(), []byte(`{"x":1}`)))
	must(t, s.Close())
	content, err := os.ReadFile(path)
	must(t, err)
	for _, n := range schemaPages(content) {
		clear(content[(n-1)*pageSize : n*pageSize])
	}
	must(t, os.WriteFile(path, content, 0o640))
	s = open(t, path, Options{})
	if got, err := s.Ruling(t.Context(), "peer-0003"); err != nil || got != want || s.Recovery() == nil || s.Recovery().Kept["events"] != 20+80 {
		t.Errorf("%+v, %v; %v", got, err, s.Recovery())
	}
	if domains, err := s.SearchDomains(t.Context()); err != nil || len(domains) != 1 || !cmp.Equal(domains[0], domain) {
		t.Errorf("search domains = %+v, %v", domains, err)
	}
	if content, found, err := s.RememberedConfig(t.Context()); err != nil || !found || string(content) != `{"x":1}` {
		t.Errorf("ClusterConfig = %s, %v", content, err)
	}
	if sightings, err := s.Sightings(t.Context(), "peer-0007"); err != nil || len(sightings) != 1 {
		t.Errorf("sightings = %+v, %v", sightings, err)
	}
}

// TestDamagedOlderLarge: at the pages where new tables begin, a larger file of the
// schema before has rows of others. They are not taken for those of new tables.
func TestDamagedOlderLarge(t *testing.T) {
	path := older(t, 2)
	db, conn, err := dialWriter(t.Context(), path, shared)
	must(t, err)
	must(t, inTransaction(t.Context(), conn, func() error {
		for i := range 400 {
			id := fmt.Sprintf("extra-%04d", i)
			for _, one := range []op{
				{"INSERT INTO peers VALUES (?, 'n', 'liqo', NULL, 'LAN', '', '1', 'eth0', 1, 1, 1)", []any{id}},
				{"INSERT INTO sightings VALUES (?, 'LAN', 'eth0', ?, '1', '2', NULL, '3', '', '', 5, 6)", []any{id, id}},
				{"INSERT INTO preferences (cluster_id, auto_connect, auto_accept, blocked, alias, changed_at) VALUES (?, 1, 1, 1, ?, 9)", []any{id, fmt.Sprint(i)}},
				{"INSERT INTO events (at, cluster_id, kind, detail) VALUES (1, ?, 'lost', 'x')", []any{id}},
			} {
				if _, err := conn.ExecContext(t.Context(), one.query, one.args...); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	must(t, hangUp(db, conn))
	content, err := os.ReadFile(path)
	must(t, err)
	if len(content) < 40*pageSize {
		t.Fatalf("this test wants a larger file than %d pages", len(content)/pageSize)
	}
	clear(content[:pageSize])
	must(t, os.WriteFile(path, content, 0o640))
	s := open(t, path, Options{})
	domains, err := s.SearchDomains(t.Context())
	must(t, err)
	_, found, err := s.RememberedConfig(t.Context())
	must(t, err)
	if len(domains) > 0 || found {
		t.Errorf("found in the rows of others: search domains %+v, a ClusterConfig %t", domains, found)
	}
	rulings, err := s.Rulings(t.Context())
	must(t, err)
	if len(rulings) != 410 || rulings["peer-0003"] != olderRuling("peer-0003", 3, 2) {
		t.Errorf("%d rulings, %+v", len(rulings), rulings["peer-0003"])
	}
	for i := range 400 {
		id := peer.ClusterID(fmt.Sprintf("extra-%04d", i))
		seen, err := s.Sightings(t.Context(), id)
		must(t, err)
		if len(seen) != 1 || seen[0].Instance != string(id) || seen[0].Domain != "" || seen[0].ClusterName != "1" {
			t.Fatalf("sightings of %s: %+v", id, seen)
		}
	}
	must(t, s.Check(t.Context()))
}

// TestUpgradeNamesHosts: the host name that vouched for a key was only in words once.
func TestUpgradeNamesHosts(t *testing.T) {
	path := older(t, 4)
	db, conn, err := dialWriter(t.Context(), path, shared)
	must(t, err)
	for id, detail := range map[string]string{
		"peer-0000": "the public certificate of barn.example.org",
		"peer-0001": "followed the key's rotation from 12ab",
	} {
		_, err := conn.ExecContext(t.Context(), "UPDATE trust SET method = ?, detail = ? WHERE cluster_id = ?", string(peer.TrustRoots), detail, id)
		must(t, err)
	}
	must(t, hangUp(db, conn))
	rulings, err := open(t, path, Options{}).Rulings(t.Context())
	must(t, err)
	for id, want := range map[peer.ClusterID][2]string{"peer-0000": {"barn.example.org", "."}, "peer-0001": {"", "."}, "peer-0002": {"", ""}} {
		if pin := rulings[id].Pin; [2]string{pin.Host, pin.Domain} != want {
			t.Errorf("%s: host %q, domain %q, want %q", id, pin.Host, pin.Domain, want)
		}
	}
}
