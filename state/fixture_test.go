package state

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"liqo.io/agent/peer"
)

var update = flag.Bool("update", false, "write the database of the present schema into testdata, if there is none yet")

// fixture is the database that an agent of a schema left behind.
func fixture(schema int) string { return fmt.Sprintf("testdata/schema%d.db", schema) }

// fillEveryTable stores at least one row in every table, as checkOlder knows them.
func fillEveryTable(t testing.TB, s *Store, schema int) {
	t.Helper()
	ctx := t.Context()
	must(t, s.SetClusterID(ctx, "me", fmt.Sprint("schema ", schema)))
	var c Change
	c.Sightings = make(map[peer.ClusterID][]peer.Sighting)
	for i := range 20 {
		p := testPeer(fmt.Sprintf("peer-%04d", i), fmt.Sprintf("10.0.0.%d:6447", i+1))
		c.Peers = append(c.Peers, p)
		c.Sightings[p.ID] = []peer.Sighting{testSighting(p, "eth0")}
		c.Events = append(c.Events, peer.Event{At: epoch, ID: p.ID, Kind: peer.EventAppeared, Detail: "appeared"})
	}
	must(t, s.Apply(ctx, c))
	for i := range 10 {
		id := peer.ClusterID(fmt.Sprintf("peer-%04d", i))
		must(t, s.SetRuling(ctx, id, testRuling(id)))
	}
	for i := range 2 {
		must(t, s.AddInvite(ctx, testInvite(i)))
	}
	must(t, s.SetSearchDomain(ctx, testDomain("example.com")))
	must(t, s.SetWriter(ctx, "1.2.3"))
	for i := range 3 {
		id := peer.ClusterID(fmt.Sprintf("peer-%04d", i))
		must(t, s.SetNetwork(ctx, id, testBlocks(i)))
	}
	must(t, s.RememberConfig(ctx, []byte(`{"schema":"kept"}`)))
}

// TestFixtures: of every schema there was there is a database with a row in every
// table. Who adds a migration adds one by: go test ./state -run TestFixtures -update
func TestFixtures(t *testing.T) {
	all, err := builtinMigrations()
	must(t, err)
	for schema := 1; schema <= len(all); schema++ {
		path := fixture(schema)
		if _, err := os.Stat(path); os.IsNotExist(err) && schema == len(all) && *update {
			made := filepath.Join(t.TempDir(), "agent.db")
			s := open(t, made, Options{Now: func() time.Time { return epoch }})
			fillEveryTable(t, s, schema)
			must(t, s.Close())
			must(t, copyFile(made, path))
		}
		absolute, err := filepath.Abs(path)
		must(t, err)
		db, conn, err := dial(t.Context(), absolute, "immutable=1")
		must(t, err)
		if have, err := userVersion(t.Context(), conn); err != nil || have != schema {
			t.Errorf("%s has schema %d, %v: a migration needs a database that was written before it", path, have, err)
		}
		var tables []string
		must(t, query(t.Context(), conn, func(scan func(...any) error) error {
			var name string
			err := scan(&name)
			tables = append(tables, name)
			return err
		}, "SELECT name FROM sqlite_schema WHERE type = 'table'"))
		for _, table := range tables {
			var n int
			if must(t, conn.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n)); n == 0 {
				t.Errorf("%s: table %s is empty", path, table)
			}
		}
		must(t, hangUp(db, conn))
	}
}
