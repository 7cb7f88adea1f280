package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/peer"
)

func TestMigrations(t *testing.T) {
	all, err := builtinMigrations()
	must(t, err)
	if len(all) == 0 {
		t.Fatal("no migrations")
	}
	if _, err := readMigrations(fstest.MapFS{"0001_a.sql": {}, "0003_b.sql": {}}); err == nil {
		t.Error("a gap in the numbers was accepted")
	}
	// A step that fails leaves no trace, and the ones before it stay.
	db, conn, err := dialWriter(t.Context(), "", "")
	must(t, err)
	defer func() { must(t, hangUp(db, conn)) }()
	steps := []migration{{1, "one", "CREATE TABLE a (x)"}, {2, "two", "CREATE TABLE b (x); INSERT INTO nowhere VALUES (1)"}}
	if err := migrate(t.Context(), conn, "x", steps); err == nil {
		t.Fatal("broken migration succeeded")
	}
	var tables, version int
	must(t, conn.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_schema").Scan(&tables))
	must(t, conn.QueryRowContext(t.Context(), "PRAGMA user_version").Scan(&version))
	if tables != 1 || version != 1 {
		t.Errorf("%d tables, schema %d after a broken second step", tables, version)
	}
	steps[1].sql = "CREATE TABLE b (x)"
	must(t, migrate(t.Context(), conn, "x", steps))
	must(t, migrate(t.Context(), conn, "x", steps))
}

func TestNewerSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	s := open(t, path, Options{})
	must(t, s.SetClusterID(t.Context(), "me", "test"))
	must(t, s.SetWriter(t.Context(), "9.9.9"))
	_, err := s.conn.ExecContext(t.Context(), "PRAGMA user_version = 99")
	must(t, err)
	must(t, s.Close())
	before, err := os.ReadFile(path)
	must(t, err)
	_, writerErr := Open(t.Context(), path, Options{})
	_, readerErr := OpenReadOnly(t.Context(), path)
	for _, err := range []error{writerErr, readerErr} {
		if !errors.Is(err, ErrNewerSchema) || !strings.Contains(err.Error(), "schema 99") || !strings.Contains(err.Error(), fmt.Sprintf("up to %d", SchemaVersion())) ||
			!strings.Contains(err.Error(), "install liqo-agent 9.9.9, which wrote it, restore a backup") {
			t.Errorf("error = %v", err)
		}
	}
	after, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(before, after) {
		t.Error("the newer database was changed")
	}
}

func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	pid, kill := startHolder(t, path)
	_, err := Open(t.Context(), path, Options{})
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "pid "+strconv.Itoa(pid)) {
		t.Errorf("error = %v, want one naming pid %d", err, pid)
	}
	kill()
	s := open(t, path, Options{})
	if id, err := s.ClusterID(t.Context()); err != nil || id != "holder" {
		t.Errorf("after the first agent was killed: %q, %v", id, err)
	}
	if _, err := Open(t.Context(), path, Options{}); !errors.Is(err, ErrLocked) {
		t.Errorf("twice in one process: %v", err)
	}
}

func TestModes(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir := filepath.Join(t.TempDir(), "state")
	path := filepath.Join(dir, "agent.db")
	s := open(t, path, Options{})
	must(t, s.SetClusterID(t.Context(), "me", "test"))
	for name, want := range map[string]os.FileMode{dir: 0o750, path: 0o640, path + "-wal": 0o640, path + "-shm": 0o640, path + ".lock": 0o640} {
		info, err := os.Stat(name)
		must(t, err)
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", name, got, want)
		}
	}
}

func TestUnusablePlaces(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "agent.db"), 0o750))
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o640))
	for path, want := range map[string]string{
		filepath.Join(dir, "agent.db"):         "is not a file but a directory",
		filepath.Join(dir, "file", "agent.db"): "is not a directory",
	} {
		if _, err := Open(t.Context(), path, Options{}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "state.dir") {
			t.Errorf("Open(%s) = %v, want %q", path, err, want)
		}
	}
	foreign := filepath.Join(dir, "foreign.db")
	db, conn, err := dial(t.Context(), foreign, "")
	must(t, err)
	_, err = conn.ExecContext(t.Context(), "CREATE TABLE theirs (x)")
	must(t, err)
	must(t, hangUp(db, conn))
	if _, err := Open(t.Context(), foreign, Options{}); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("another program's database: %v", err)
	}
}

// TestReadOnlyPlaces runs as somebody who is not root, whom permissions stop.
func TestReadOnlyPlaces(t *testing.T) {
	dir := publicDir(t)
	dbOnly := filepath.Join(dir, "db-only")
	must(t, os.Mkdir(dbOnly, 0o777))
	must(t, os.Chmod(dbOnly, 0o777))
	s := open(t, filepath.Join(dbOnly, "agent.db"), Options{})
	must(t, s.Close())
	must(t, os.Chmod(filepath.Join(dbOnly, "agent.db"), 0o444))
	must(t, os.Chmod(filepath.Join(dbOnly, "agent.db.lock"), 0o666))
	dirOnly := filepath.Join(dir, "dir-only")
	must(t, os.Mkdir(dirOnly, 0o555))
	for _, path := range []string{filepath.Join(dbOnly, "agent.db"), filepath.Join(dirOnly, "agent.db"), filepath.Join(dirOnly, "sub", "agent.db")} {
		out, err := unprivileged(helper(t, "open", path), 65534).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "cannot be written: run the agent as the user that owns it") {
			t.Errorf("%s: %v, %s", path, err, out)
		}
	}
}

// TestReadOnly reads as an unprivileged member of the file's group, while an
// agent writes, after it was killed, and after it stopped.
func TestReadOnly(t *testing.T) {
	gid := uint32(os.Getgid())
	if os.Getuid() == 0 {
		gid = 54321
	}
	dir := filepath.Join(publicDir(t), "state")
	must(t, os.Mkdir(dir, 0o750))
	must(t, os.Chown(dir, -1, int(gid)))
	must(t, os.Chmod(dir, 0o750|os.ModeSetgid))
	path := filepath.Join(dir, "agent.db")
	read := func(when, want string) {
		t.Helper()
		out, err := unprivileged(helper(t, "read", path), gid).CombinedOutput()
		if !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s, want %q", when, err, out, want)
		}
	}
	read("before the first start", "has the agent ever run")
	_, kill := startHolder(t, path)
	defer kill()
	read("while the agent runs", "cluster holder\n")
	kill()
	if _, err := os.Stat(path + "-wal"); err != nil {
		t.Fatalf("this test wants a left-over write-ahead log: %v", err)
	}
	read("after the agent was killed", "cluster holder\n")
	s := open(t, path, Options{})
	must(t, s.SetClusterID(t.Context(), "stopped", "test"))
	must(t, s.Close())
	if _, err := os.Stat(path + "-wal"); err == nil {
		t.Fatal("a clean stop left the write-ahead log")
	}
	read("after the agent stopped", "cluster stopped\n")
	if files, err := filepath.Glob(path + "-*"); err != nil || len(files) > 0 {
		t.Errorf("reading left %v, %v", files, err)
	}
	must(t, os.Chmod(path, 0o600))
	if os.Getuid() == 0 {
		read("without permission", "member of the group")
	}
	must(t, os.WriteFile(path, []byte(strings.Repeat("x", 8192)), 0o640))
	must(t, os.Chmod(path, 0o640))
	read("damaged", "is damaged: start the agent")
}

// TestReadersAndWriter opens and reads all the time while an agent comes
// and goes: no reader fails, and no agent is turned away by one.
func TestReadersAndWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	s := open(t, path, Options{})
	must(t, s.SetClusterID(t.Context(), "me", "test"))
	must(t, s.Close())
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				r, err := OpenReadOnly(t.Context(), path)
				if err != nil {
					t.Errorf("OpenReadOnly: %v", err)
					return
				}
				if id, err := r.ClusterID(t.Context()); err != nil || id != "me" {
					t.Errorf("ClusterID = %q, %v", id, err)
				}
				if err := r.SetClusterID(t.Context(), "other", "x"); !errors.Is(err, ErrReadOnly) {
					t.Errorf("a reader writes: %v", err)
				}
				if err := r.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				time.Sleep(time.Since(start)) // half the time nobody reads
			}
		})
	}
	for n := range 40 {
		s, err := Open(t.Context(), path, Options{})
		if err != nil {
			t.Errorf("Open: %v", err)
			break
		}
		for i := range 5 {
			if err := s.Apply(t.Context(), killChange(1+n*5+i)); err != nil {
				t.Errorf("Apply: %v", err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	stop()
	readers.Wait()
}

// filledPeers is how many peers fill stores, each with three events.
const filledPeers = 50

// fill makes a database of some hundred kilobytes with an identity and
// decisions, and closes it.
func fill(t testing.TB, path string) {
	t.Helper()
	s := open(t, path, Options{})
	must(t, s.SetClusterID(t.Context(), "me", "test"))
	var c Change
	for i := range filledPeers {
		c.Peers = append(c.Peers, testPeer(fmt.Sprintf("peer-%04d", i), fmt.Sprintf("10.0.0.%d:6447", i+1)))
		for range 3 {
			c.Events = append(c.Events, peer.Event{At: epoch, ID: c.Peers[i].ID, Kind: peer.EventAppeared, Detail: strings.Repeat("x", maxDetailLength)})
		}
	}
	must(t, s.Apply(t.Context(), c))
	for i := range 10 {
		id := peer.ClusterID(fmt.Sprintf("peer-%04d", i))
		must(t, s.SetRuling(t.Context(), id, testRuling(id)))
		must(t, s.AddInvite(t.Context(), testInvite(i)))
		must(t, s.SetSearchDomain(t.Context(), testDomain(fmt.Sprintf("d%d.example", i))))
	}
	must(t, s.RememberConfig(t.Context(), []byte(`{"x":1}`)))
	must(t, s.Close())
}

// TestDamage damages a database in the ways disks do. The damaged file is set
// aside byte for byte, and identity and decisions survive whatever leaves
// their own pages alone.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	sound := filepath.Join(dir, "sound.db")
	fill(t, sound)
	good, err := os.ReadFile(sound)
	must(t, err)
	for _, tc := range []struct {
		name   string
		damage func(b []byte) []byte
		saved  bool // identity and all ten decisions
	}{
		{"header zeroed", func(b []byte) []byte { clear(b[:100]); return b }, true},
		{"first page zeroed", func(b []byte) []byte { clear(b[:pageSize]); return b }, true},
		{"first page noise", func(b []byte) []byte { return append(noise(pageSize), b[pageSize:]...) }, true},
		{"schema version negative", func(b []byte) []byte { b[60] = 0xff; return b }, true},
		{"schema version zero", func(b []byte) []byte { b[63] = 0; return b }, true},
		{"second half lost", func(b []byte) []byte { return b[:len(b)/2] }, true},
		{"odd length", func(b []byte) []byte { return b[:len(b)-1234] }, true},
		{"last pages noise", func(b []byte) []byte { return append(b[:len(b)-20*pageSize], noise(20*pageSize)...) }, true},
		{"every 16th page zeroed", func(b []byte) []byte {
			for at := 15 * pageSize; at < len(b); at += 16 * pageSize {
				clear(b[at : at+pageSize])
			}
			return b
		}, true},
		{"text", func([]byte) []byte { return []byte("this is not a database\n") }, false},
		{"noise", func(b []byte) []byte { return noise(len(b)) }, false},
		{"zeros", func(b []byte) []byte { return make([]byte, len(b)) }, false},
		{"empty", func([]byte) []byte { return nil }, false},
		{"one byte", func([]byte) []byte { return []byte{'S'} }, false},
		{"magic only", func([]byte) []byte { return sqliteMagic }, false},
		{"magic and noise", func([]byte) []byte { return append(slices.Clone(sqliteMagic), noise(9000)...) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agent.db")
			bad := tc.damage(slices.Clone(good))
			must(t, os.WriteFile(path, bad, 0o640))
			s := open(t, path, Options{Now: func() time.Time { return epoch }})
			r := s.Recovery()
			if r == nil {
				t.Fatal("the damage was not noticed")
			}
			if want := path + ".damaged-20261104T100000Z"; r.Aside != want || s.Recovered() != want {
				t.Errorf("set aside as %s, want %s", r.Aside, want)
			}
			aside, err := os.ReadFile(r.Aside)
			must(t, err)
			if !bytes.Equal(aside, bad) {
				t.Error("the damaged file was changed")
			}
			if tc.saved {
				if id, err := s.ClusterID(t.Context()); err != nil || id != "me" || !r.Identity() {
					t.Errorf("ClusterID = %q, %v", id, err)
				}
				domains, err := s.SearchDomains(t.Context())
				must(t, err)
				content, _, err := s.RememberedConfig(t.Context())
				must(t, err)
				if len(domains) != 10 || string(content) != `{"x":1}` {
					t.Errorf("%d search domains, ClusterConfig %s", len(domains), content)
				}
				for i := range min(10, len(domains)) {
					if want := testDomain(fmt.Sprintf("d%d.example", i)); !cmp.Equal(domains[i], want) {
						t.Errorf("search domain %d = %+v", i, domains[i])
					}
					id := peer.ClusterID(fmt.Sprintf("peer-%04d", i))
					if r, err := s.Ruling(t.Context(), id); err != nil || r != testRuling(id) {
						t.Errorf("ruling %d = %+v, %v", i, r, err)
					}
					if invite, found, err := s.Invite(t.Context(), testInvite(i).ID); err != nil || !found || invite != testInvite(i) {
						t.Errorf("invite %d = %+v, %v", i, invite, err)
					}
				}
			}
			t.Log(r)
			must(t, s.Check(t.Context()))
			must(t, s.Apply(t.Context(), killChange(1)))
			must(t, s.Close())
			if again := open(t, path, Options{}); again.Recovery() != nil {
				t.Errorf("the next start repairs again: %s", again.Recovery())
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), SalvagePrefix+"*")); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
		})
	}
}

// noise is the same for every run of a length.
func noise(n int) []byte {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// TestLostMainFile: the write-ahead log alone is evidence, not a fresh start.
func TestLostMainFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	_, kill := startHolder(t, path)
	kill()
	must(t, os.Remove(path))
	s := open(t, path, Options{})
	if s.Recovery() == nil {
		t.Fatal("not noticed")
	}
	if _, err := os.Stat(s.Recovery().Aside + "-wal"); err != nil {
		t.Error(err)
	}
	if id, err := s.ClusterID(t.Context()); err != nil || id != "holder" {
		t.Errorf("ClusterID from the write-ahead log = %q, %v", id, err)
	}
}

// TestRecoveryNamesBackup: what is lost is in a backup, and the newest in the state
// directory is named.
func TestRecoveryNamesBackup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	must(t, os.WriteFile(path, noise(9000), 0o640))
	if text := open(t, path, Options{}).Recovery().String(); !strings.HasSuffix(text, "restore a backup (liqo-agent state restore)") {
		t.Errorf("without a backup: %s", text)
	}
	path = filepath.Join(t.TempDir(), "agent.db")
	must(t, os.WriteFile(path, noise(9000), 0o640))
	for i, name := range []string{keptName(path, 2), filepath.Join(filepath.Dir(path), "barn.tar"), filepath.Join(filepath.Dir(path), "notes.txt")} {
		must(t, os.WriteFile(name, nil, 0o640))
		must(t, os.Chtimes(name, epoch, epoch.Add(time.Duration(i)*time.Hour)))
	}
	if text := open(t, path, Options{}).Recovery().String(); !strings.HasSuffix(text, "the newest one here is "+filepath.Join(filepath.Dir(path), "barn.tar")+")") {
		t.Errorf("with two: %s", text)
	}
}

// TestDamageWhileRunning finds damage in a file too large for the check at
// Open: Check reports it, and the next Open repairs it.
func TestDamageWhileRunning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	fill(t, path)
	s := open(t, path, Options{})
	var page int
	must(t, s.conn.QueryRowContext(t.Context(), "SELECT rootpage FROM sqlite_schema WHERE name = 'events_at'").Scan(&page))
	var c Change
	for i := range 4000 {
		c.Events = append(c.Events, peer.Event{At: epoch, ID: peer.ClusterID(fmt.Sprintf("x%d", i/500)), Kind: peer.EventLost, Detail: strings.Repeat("x", maxDetailLength)})
	}
	must(t, s.Apply(t.Context(), c))
	must(t, s.Close())
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	if info, err := f.Stat(); err != nil || info.Size() < 2*quickCheckLimit {
		t.Fatalf("the file is too small for this test: %v, %v", info.Size(), err)
	}
	_, err = f.WriteAt(noise(pageSize), int64(page-1)*pageSize)
	must(t, errors.Join(err, f.Close()))

	s = open(t, path, Options{})
	if s.Recovery() != nil {
		t.Fatal("found at Open: this test is about what Open does not look at")
	}
	if err := s.Check(t.Context()); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "restart the agent") {
		t.Errorf("Check = %v", err)
	}
	if _, err := s.Prune(t.Context(), time.Hour); !errors.Is(err, ErrDamaged) {
		t.Errorf("Prune over the damage = %v", err)
	}
	must(t, s.Close())
	s = open(t, path, Options{})
	if r := s.Recovery(); r == nil || !r.Identity() || r.Kept["preferences"] != 10 || r.Kept["peers"] != filledPeers || r.Kept["events"] != 4000+3*filledPeers {
		t.Errorf("Recovered = %v", r)
	}
	must(t, s.Check(t.Context()))
	must(t, s.Close())
	if s := open(t, path, Options{}); s.Recovery() != nil {
		t.Errorf("repaired again: %v", s.Recovery())
	}
}

// TestUnfinishedCreation: an agent that died while making its first database, or
// saving what could be read of a damaged one, leaves files under other names, which
// mean nothing.
func TestUnfinishedCreation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	for _, suffix := range sideFiles {
		must(t, os.WriteFile(buildName(path)+suffix, noise(5000), 0o640))
	}
	salvages := filepath.Join(filepath.Dir(path), SalvagePrefix)
	must(t, errors.Join(os.Mkdir(salvages+"1", 0o700), os.Mkdir(salvages+"2", 0o700)))
	must(t, os.WriteFile(filepath.Join(salvages+"1", "as-is"), noise(5000), 0o600))
	if s := open(t, path, Options{}); s.Recovery() != nil {
		t.Errorf("Recovered = %v", s.Recovery())
	}
	for _, name := range []string{buildName(path) + "*", salvages + "*"} {
		if left, _ := filepath.Glob(name); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
	}
}

// FuzzOpen patches random bytes into a sound database. Whatever they hit, Open
// and every read end without a panic, in a result or an error.
func FuzzOpen(f *testing.F) {
	sound := filepath.Join(f.TempDir(), "agent.db")
	s := open(f, sound, Options{})
	must(f, s.SetClusterID(f.Context(), "me", "test"))
	must(f, s.Apply(f.Context(), killChange(1)))
	must(f, s.SetRuling(f.Context(), killPeer(1), testRuling(killPeer(1))))
	must(f, s.AddInvite(f.Context(), testInvite(1)))
	must(f, s.Close())
	good, err := os.ReadFile(sound)
	must(f, err)
	f.Add([]byte{0, 0, 0}, uint16(0))
	f.Add([]byte{0xff, 0xff}, uint16(16))
	f.Add([]byte{0xff, 0xff}, uint16(60)) // the schema version becomes negative
	f.Add(noise(300), uint16(100))
	f.Add(noise(300), uint16(pageSize))
	f.Add(noise(pageSize), uint16(3*pageSize-8))
	f.Fuzz(func(t *testing.T, patch []byte, at uint16) {
		path := filepath.Join(t.TempDir(), "agent.db")
		b := slices.Clone(good)
		copy(b[int(at)%len(b):], patch)
		must(t, os.WriteFile(path, b, 0o640))
		s, err := Open(t.Context(), path, Options{})
		if err != nil {
			return
		}
		_, _ = s.Peers(t.Context())
		_, _ = s.Sightings(t.Context(), killPeer(1))
		_, _ = s.History(t.Context(), HistoryQuery{})
		rulings, _ := s.Rulings(t.Context())
		for id, r := range rulings {
			if want := testRuling(killPeer(1)).Pin; r.Pin.ID != "" && r.Pin.ID != id {
				t.Errorf("%s has the pin of %s, want at most %s", id, r.Pin.ID, want.ID)
			}
		}
		_, _ = s.Invites(t.Context())
		_ = s.Apply(t.Context(), killChange(2))
		_, _ = s.Prune(t.Context(), 0)
		_ = s.Close()
	})
}

func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "agent.db")
	fill(b, path)
	for b.Loop() {
		s, err := Open(b.Context(), path, Options{})
		must(b, err)
		must(b, s.Close())
	}
}

// BenchmarkApplyUnchanged is the cost of a Change that says nothing new about
// 1,000 peers, and ms-first that of storing them.
func BenchmarkApplyUnchanged(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "agent.db"), Options{})
	c := Change{Sightings: map[peer.ClusterID][]peer.Sighting{}}
	for i := range 1000 {
		p := testPeer(fmt.Sprintf("peer-%04d", i), fmt.Sprintf("10.0.%d.%d:6447", i/250, i%250+1))
		c.Peers = append(c.Peers, p)
		c.Sightings[p.ID] = []peer.Sighting{testSighting(p, "eth0")}
	}
	start := time.Now()
	must(b, s.Apply(b.Context(), c))
	first := time.Since(start)
	for b.Loop() {
		must(b, s.Apply(b.Context(), c))
	}
	b.ReportMetric(float64(first.Milliseconds()), "ms-first")
}
