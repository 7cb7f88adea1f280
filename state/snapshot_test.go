package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestSnapshot copies a database while a process writes it: each copy is sound and
// what was committed at one moment.
func TestSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	cmd := helper(t, "write-forever", path)
	must(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		if s, err := OpenReadOnly(t.Context(), path); err == nil {
			history, err := s.History(t.Context(), HistoryQuery{})
			must(t, errors.Join(err, s.Close()))
			if len(history) > 0 {
				break
			}
		}
		if time.Now().After(end) {
			t.Fatal("the writer never wrote")
		}
	}
	last := 0
	for i := range 20 {
		to := filepath.Join(t.TempDir(), fmt.Sprint(i))
		must(t, Snapshot(t.Context(), path, to))
		if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		found, err := Examine(t.Context(), to)
		if err != nil || found.Schema != SchemaVersion() || found.ClusterID != "me" {
			t.Fatalf("%+v, %v", found, err)
		}
		s, err := OpenReadOnly(t.Context(), to)
		must(t, err)
		history, err := s.History(t.Context(), HistoryQuery{})
		must(t, errors.Join(err, s.Close()))
		n, err := strconv.Atoi(history[len(history)-1].Detail)
		if must(t, err); n < last {
			t.Errorf("copy %d is as of change %d, the one before as of %d", i, n, last)
		}
		last = n
	}
	if left, _ := filepath.Glob(path + "*"); len(left) != 4 { // with -wal, -shm and the lock
		t.Errorf("%v", left)
	}
}

// TestSnapshotOfIdle: without an agent, a copy has every row, is damage to nobody,
// and salvage still finds its tables where they were.
func TestSnapshotOfIdle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	s := open(t, path, Options{Now: func() time.Time { return epoch }})
	fillEveryTable(t, s, SchemaVersion())
	must(t, s.Close())
	to := filepath.Join(t.TempDir(), "agent.db")
	must(t, Snapshot(t.Context(), path, to))
	if err := Snapshot(t.Context(), path, to); !errors.Is(err, os.ErrExist) {
		t.Errorf("onto a file that is there: %v", err)
	}
	content, err := os.ReadFile(to)
	must(t, err)
	clear(content[:pageSize])
	must(t, os.WriteFile(to, content, 0o600))
	if _, err := Examine(t.Context(), to); !errors.Is(err, ErrDamaged) {
		t.Errorf("examined damage: %v", err)
	}
	copied := open(t, to, Options{})
	if copied.Recovery() == nil {
		t.Fatal("the damage was not noticed")
	}
	checkOlder(t, copied, SchemaVersion())
}

func TestExamine(t *testing.T) {
	dir := t.TempDir()
	if _, err := Examine(t.Context(), filepath.Join(dir, "none.db")); !errors.Is(err, ErrNoDatabase) {
		t.Errorf("none: %v", err)
	}
	for schema := 1; schema <= SchemaVersion(); schema++ {
		path := older(t, schema)
		before, err := os.ReadFile(path)
		must(t, err)
		found, err := Examine(t.Context(), path)
		if err != nil || found.Schema != schema || found.ClusterID != "me" || found.Size != int64(len(before)) || (found.Writer == "1.2.3") != (schema > 3) {
			t.Errorf("schema %d: %+v, %v", schema, found, err)
		}
		after, err := os.ReadFile(path)
		must(t, err)
		if left, _ := filepath.Glob(path + "*"); len(left) != 1 || !bytes.Equal(before, after) {
			t.Errorf("schema %d: the file was changed, or has company: %v", schema, left)
		}
	}
}

func TestHold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "agent.db")
	release, err := Hold(t.Context(), path)
	must(t, err)
	if out, err := helper(t, "open", path).CombinedOutput(); err == nil || !strings.Contains(string(out), fmt.Sprintf("pid %d", os.Getpid())) {
		t.Errorf("an agent started: %v, %s", err, out)
	}
	must(t, release())
	_, kill := startHolder(t, path)
	if _, err := Hold(t.Context(), path); !errors.Is(err, ErrLocked) {
		t.Errorf("held beside an agent: %v", err)
	}
	kill()

	// Who reads, too, but for a moment. The wait for that can be ended.
	reader, busy, err := shareLock(path)
	if err != nil || busy {
		t.Fatal(busy, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Hold(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("beside a reader: %v", err)
	}
	must(t, reader.Close())
	release, err = Hold(ctx, path)
	must(t, err)
	must(t, release())
}

// TestKeepOld: an upgrade leaves the file as it was, one at most, and giving it its
// name back is all it takes to go back.
func TestKeepOld(t *testing.T) {
	path := older(t, 2)
	before, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(keptName(path, 1), noise(100), 0o640)) // of an upgrade long ago
	must(t, open(t, path, Options{}).Close())
	kept, err := filepath.Glob(path + ".schema*")
	must(t, err)
	if len(kept) != 1 || kept[0] != keptName(path, 2) {
		t.Fatalf("kept %v", kept)
	}
	after, err := os.ReadFile(kept[0])
	must(t, err)
	db, conn, err := dial(t.Context(), kept[0], "immutable=1")
	must(t, err)
	version, err := userVersion(t.Context(), conn)
	if must(t, errors.Join(err, hangUp(db, conn))); version != 2 || len(after) != len(before) {
		t.Errorf("kept schema %d of %d bytes, want 2 of %d", version, len(after), len(before))
	}
	all, err := builtinMigrations()
	must(t, err)
	_, conn, err = dial(t.Context(), path, "mode=rw")
	must(t, err)
	if err := migrate(t.Context(), conn, path, all[:2]); !errors.Is(err, ErrNewerSchema) || !strings.Contains(err.Error(), "mv "+kept[0]+" "+path) {
		t.Errorf("the older agent says: %v", err)
	}
	must(t, conn.Close())
}

func TestWriter(t *testing.T) {
	s, _ := openNew(t, Limits{})
	ctx := t.Context()
	must(t, s.SetWriter(ctx, "1.0.0"))
	n := s.Transactions()
	must(t, s.SetWriter(ctx, "1.0.0"))
	if s.Transactions() != n {
		t.Error("what was known was written")
	}
	must(t, s.SetWriter(ctx, "1.1.0"))
	if version, since, err := s.Writer(ctx); err != nil || version != "1.1.0" || since.IsZero() {
		t.Errorf("%q %v %v", version, since, err)
	}
	for _, bad := range []string{"", "a\nb", strings.Repeat("x", 100), "\x1b[31m"} {
		if err := s.SetWriter(ctx, bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	_, err := s.conn.ExecContext(ctx, "UPDATE writer SET version = 'evil' || char(27) || '[31m'")
	must(t, err)
	if got := writtenBy(ctx, s.conn); got != "evil [31m" {
		t.Errorf("shown: %q", got)
	}
}
