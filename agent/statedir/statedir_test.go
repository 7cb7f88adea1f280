package statedir

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/peer"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lived is a state directory that an agent with that ID has used, and stopped.
func lived(t testing.TB, dir string, id peer.ClusterID) peer.Fingerprint {
	t.Helper()
	s, err := state.Open(t.Context(), filepath.Join(dir, Database), state.Options{})
	must(t, err)
	must(t, s.SetClusterID(t.Context(), id, "test"))
	must(t, s.SetRuling(t.Context(), "barn", state.Ruling{Preferences: state.Preferences{Alias: "of " + string(id)}}))
	must(t, s.Close())
	key, err := trust.LoadOrCreateKey(dir)
	must(t, err)
	return key.Fingerprint()
}

// whose is the ID and the key of a state directory.
func whose(t testing.TB, dir string) (id peer.ClusterID, fp peer.Fingerprint) {
	t.Helper()
	found, err := state.Examine(t.Context(), filepath.Join(dir, Database))
	must(t, err)
	key, err := trust.LoadOrCreateKey(dir)
	must(t, err)
	return found.ClusterID, key.Fingerprint()
}

// content is every file of a directory tree but the lock.
func content(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == lockFile {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[rel] = string(data)
		return err
	}))
	return out
}

func backup(t testing.TB, dir string) []byte {
	t.Helper()
	var out bytes.Buffer
	_, err := Backup(t.Context(), dir, "1.2.3", now, t.TempDir(), &out)
	must(t, err)
	return out.Bytes()
}

func TestBackupAndRestore(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	fp := lived(t, from, "first")
	rotated, err := trust.LoadOrCreateKey(from)
	must(t, err)
	rotated, err = trust.Rotate(from, rotated)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(from, FleetFile), []byte("certificate"), 0o644))
	if rotated.Fingerprint() == fp {
		t.Fatal("the key was not rotated")
	}
	before := content(t, from)

	path := filepath.Join(t.TempDir(), "b.tar")
	m, err := BackupFile(t.Context(), from, "1.2.3", now, path, false)
	must(t, err)
	if m.ClusterID != "first" || m.Fingerprint != rotated.Fingerprint().String() || m.Schema != state.SchemaVersion() || m.Version != "1.2.3" || len(m.Files) != 4 {
		t.Errorf("manifest %+v", m)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left %v", left)
	}
	if diff := cmp.Diff(before, content(t, from)); diff != "" {
		t.Errorf("the state was changed: %s", diff)
	}
	if _, err := BackupFile(t.Context(), from, "1.2.3", now, path, false); !errors.Is(err, ErrExists) {
		t.Errorf("overwritten: %v", err)
	}
	if _, err := BackupFile(t.Context(), from, "1.2.3", now, path, true); err != nil {
		t.Errorf("with force: %v", err)
	}

	lived(t, to, "second")
	set := content(t, to)
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	done, err := Restore(t.Context(), to, now, file)
	must(t, err)
	if id, key := whose(t, to); id != "first" || key != rotated.Fingerprint() {
		t.Errorf("restored %s %s", id, key)
	}
	restored, err := trust.LoadOrCreateKey(to)
	must(t, err)
	if len(restored.Successions()) != 1 || restored.ChainProblem() != nil || done.Problem != "" {
		t.Errorf("the chain is gone: %v, %q", restored.ChainProblem(), done.Problem)
	}
	if diff := cmp.Diff(set, content(t, done.Aside)); diff != "" {
		t.Errorf("set aside (-was +is): %s", diff)
	}
	if id, _, err := Claim(to); err != nil || id != "first" {
		t.Errorf("claims %q, %v", id, err)
	}
	for name, mode := range map[string]fs.FileMode{Database: 0o640, trust.KeyFile: 0o600, trust.ChainFile: 0o600, FleetFile: 0o644} {
		if info, err := os.Stat(filepath.Join(to, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	s, err := state.Open(t.Context(), filepath.Join(to, Database), state.Options{})
	must(t, err)
	defer s.Close()
	if _, err := Restore(t.Context(), to, now, bytes.NewReader(nil)); !errors.Is(err, state.ErrLocked) {
		t.Errorf("beside an agent: %v", err)
	}
	if rulings, err := s.Rulings(t.Context()); err != nil || rulings["barn"].Preferences.Alias != "of first" {
		t.Errorf("%+v, %v", rulings, err)
	}
	if _, err := Backup(t.Context(), to, "1.2.3", now, t.TempDir(), io.Discard); err != nil {
		t.Errorf("beside an agent: %v", err)
	}
}

// TestBackupRefuses what would help nobody.
func TestBackupRefuses(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"no key":           func(dir string) error { return os.Remove(filepath.Join(dir, trust.KeyFile)) },
		"no database":      func(dir string) error { return os.Remove(filepath.Join(dir, Database)) },
		"key spoiled":      func(dir string) error { return os.WriteFile(filepath.Join(dir, trust.KeyFile), []byte("x"), 0o600) },
		"database spoiled": func(dir string) error { return os.WriteFile(filepath.Join(dir, Database), make([]byte, 9000), 0o600) },
		"fleet is too long": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, FleetFile), make([]byte, 300<<10), 0o600)
		},
	} {
		dir, out := t.TempDir(), filepath.Join(t.TempDir(), "b.tar")
		lived(t, dir, "me")
		must(t, spoil(dir))
		if _, err := BackupFile(t.Context(), dir, "1", now, out, false); err == nil {
			t.Errorf("%s: was taken", name)
		}
		if left, _ := os.ReadDir(filepath.Dir(out)); len(left) != 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

// entry is one file of a forged archive.
type entry struct {
	header tar.Header
	body   []byte
}

// forge makes an archive from a good one.
func forge(t testing.TB, good []byte, change func(*Manifest, []entry) []entry) []byte {
	t.Helper()
	var entries []entry
	for in := tar.NewReader(bytes.NewReader(good)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		body, err := io.ReadAll(in)
		must(t, err)
		entries = append(entries, entry{*h, body})
	}
	var m Manifest
	must(t, json.Unmarshal(entries[0].body, &m))
	entries = change(&m, entries)
	if entries[0].header.Name == manifestName {
		entries[0].body, _ = json.Marshal(m)
		entries[0].header.Size = int64(len(entries[0].body))
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		must(t, w.WriteHeader(&e.header))
		_, _ = w.Write(e.body)
	}
	_ = w.Close()
	return out.Bytes()
}

// TestHostileArchives: none changes anything, inside the directory or outside.
func TestHostileArchives(t *testing.T) {
	source := t.TempDir()
	lived(t, source, "first")
	good := backup(t, source)
	other := t.TempDir()
	lived(t, other, "other")
	foreign := forgeable(t, backup(t, other))
	for name, archive := range map[string][]byte{
		"empty":    nil,
		"no tar":   []byte(strings.Repeat("x", 2000)),
		"cut":      good[:len(good)/2],
		"bit":      flip(good, len(good)/2),
		"format 2": forge(t, good, func(m *Manifest, e []entry) []entry { m.Format = 2; return e }),
		"traversal": forge(t, good, func(m *Manifest, e []entry) []entry {
			m.Files[0].Name = "../evil"
			e[1].header.Name = "../evil"
			return e
		}),
		"absolute": forge(t, good, func(m *Manifest, e []entry) []entry { e[1].header.Name = "/etc/evil"; return e }),
		"link": forge(t, good, func(m *Manifest, e []entry) []entry {
			e[1].header.Typeflag, e[1].header.Linkname, e[1].header.Size, e[1].body = tar.TypeSymlink, "/etc/passwd", 0, nil
			return e
		}),
		"huge":     forge(t, good, func(m *Manifest, e []entry) []entry { m.Files[0].Size = 2 << 30; return e }),
		"negative": forge(t, good, func(m *Manifest, e []entry) []entry { m.Files[0].Size = -1; return e }),
		"more than said": forge(t, good, func(m *Manifest, e []entry) []entry {
			e[2].body = append(e[2].body, '\n')
			e[2].header.Size++
			return e
		}),
		"another file": forge(t, good, func(m *Manifest, e []entry) []entry {
			return append(e, entry{tar.Header{Name: "extra", Typeflag: tar.TypeReg}, nil})
		}),
		"twice":         forge(t, good, func(m *Manifest, e []entry) []entry { m.Files = append(m.Files, m.Files[0]); return append(e, e[1]) }),
		"without a key": forge(t, good, func(m *Manifest, e []entry) []entry { m.Files = m.Files[:1]; return e[:2] }),
		"other key": forge(t, good, func(m *Manifest, e []entry) []entry {
			m.Files[1], e[2] = foreign.m.Files[1], foreign.e[2]
			return e
		}),
		"other database": forge(t, good, func(m *Manifest, e []entry) []entry {
			m.Files[0], e[1] = foreign.m.Files[0], foreign.e[1]
			return e
		}),
		"other fingerprint": forge(t, good, func(m *Manifest, e []entry) []entry { m.Fingerprint = foreign.m.Fingerprint; return e }),
		"other ID":          forge(t, good, func(m *Manifest, e []entry) []entry { m.ClusterID = "other"; return e }),
		"bad ID":            forge(t, good, func(m *Manifest, e []entry) []entry { m.ClusterID = "../x"; return e }),
		"big manifest":      forge(t, good, func(m *Manifest, e []entry) []entry { m.Version = strings.Repeat("v", maxManifest); return e }),
	} {
		parent := t.TempDir()
		dir := filepath.Join(parent, "state")
		fp := lived(t, dir, "second")
		before := content(t, parent)
		_, err := Restore(t.Context(), dir, now, bytes.NewReader(archive))
		if !errors.Is(err, ErrArchive) {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(before, content(t, parent)); diff != "" {
			t.Errorf("%s: something changed: %s", name, diff)
		}
		if id, key := whose(t, dir); id != "second" || key != fp {
			t.Errorf("%s: now it is %s", name, id)
		}
	}
}

type taken struct {
	m Manifest
	e []entry
}

func forgeable(t testing.TB, archive []byte) (out taken) {
	forge(t, archive, func(m *Manifest, e []entry) []entry { out = taken{*m, slices.Clone(e)}; return e })
	return out
}

func flip(data []byte, at int) []byte {
	out := slices.Clone(data)
	out[at] ^= 1
	return out
}

// TestNewerBackup is refused, and says which version is needed.
func TestNewerBackup(t *testing.T) {
	source := t.TempDir()
	lived(t, source, "first")
	good := forgeable(t, backup(t, source))
	database := slices.Clone(good.e[1].body)
	database[63] = 99 // the user version, in the header of SQLite's file format
	path := filepath.Join(t.TempDir(), "x")
	must(t, os.WriteFile(path, database, 0o600))
	file, err := sum(path)
	must(t, err)
	archive := forge(t, backup(t, source), func(m *Manifest, e []entry) []entry {
		m.Schema, m.Version = 99, "9.9.9"
		file.Name = Database
		m.Files[0], e[1].body = file, database
		return e
	})
	_, err = Restore(t.Context(), t.TempDir(), now, bytes.NewReader(archive))
	if !errors.Is(err, state.ErrNewerSchema) || !strings.Contains(err.Error(), "install liqo-agent 9.9.9") {
		t.Errorf("%v", err)
	}
}

// TestCarryOutCutOff cuts a restore off after every operation on the disk.
func TestCarryOutCutOff(t *testing.T) {
	source := t.TempDir()
	fp := lived(t, source, "first")
	archive := backup(t, source)
	for done := range 12 {
		dir := t.TempDir()
		lived(t, dir, "second")
		must(t, os.WriteFile(filepath.Join(dir, Database+"-wal"), nil, 0o640))
		must(t, os.Mkdir(filepath.Join(dir, restoreDir), 0o700))
		r, err := stage(context.Background(), dir, now, bytes.NewReader(archive))
		must(t, err)
		var c commit
		_, err = readJSON(filepath.Join(dir, restoreDir, commitFile), &c)
		must(t, err)
		// What carryOut does, up to here.
		var steps [][2]string
		present, err := names(dir)
		must(t, err)
		for _, name := range present {
			if replaced(name) {
				steps = append(steps, [2]string{filepath.Join(dir, name), filepath.Join(r.Aside, name)})
			}
		}
		for _, name := range c.Files {
			steps = append(steps, [2]string{filepath.Join(dir, restoreDir, name), filepath.Join(dir, name)})
		}
		must(t, os.Mkdir(r.Aside, 0o700))
		for _, step := range steps[:min(done, len(steps))] {
			must(t, os.Rename(step[0], step[1]))
		}
		must(t, Resume(t.Context(), dir))
		must(t, Resume(t.Context(), dir))
		if id, key := whose(t, dir); id != "first" || key != fp {
			t.Errorf("cut off after %d: %s", done, id)
		}
		if id, _ := whose(t, r.Aside); id != "second" {
			t.Errorf("cut off after %d: set aside is %s", done, id)
		}
		if _, err := os.Stat(filepath.Join(dir, restoreDir)); !os.IsNotExist(err) {
			t.Errorf("cut off after %d: %v", done, err)
		}
	}
}

func TestClear(t *testing.T) {
	for _, r := range []Reset{{ID: "me"}, {ID: "new", Identity: true}} {
		dir := t.TempDir()
		fp := lived(t, dir, "me")
		for _, name := range []string{Database + ".damaged-20260101T000000Z", Database + ".schema2", "admission.key", ".cluster.key.123", "notes.txt"} {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
		}
		must(t, os.MkdirAll(filepath.Join(dir, "before-restore-1", "x"), 0o700))
		must(t, os.MkdirAll(filepath.Join(dir, "kubelet"), 0o700))
		must(t, BeginReset(dir, r))
		if pending, found, err := PendingReset(dir); err != nil || !found || pending.ID != r.ID {
			t.Errorf("%+v %t %v", pending, found, err)
		}
		for range 2 {
			left, err := Clear(t.Context(), dir, r)
			if err != nil || !slices.Equal(left, []string{"notes.txt"}) {
				t.Errorf("left %v, %v", left, err)
			}
		}
		want := []string{claimFile, "notes.txt"}
		if !r.Identity {
			want = append(want, trust.KeyFile)
		}
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(content(t, dir))); !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", r, got, want)
		}
		if id, origin, err := Claim(dir); err != nil || id != r.ID || origin != "reset" {
			t.Errorf("claims %q %q %v", id, origin, err)
		}
		key, err := trust.LoadOrCreateKey(dir)
		if must(t, err); (key.Fingerprint() == fp) == r.Identity {
			t.Errorf("%+v: key %s, was %s", r, key.Fingerprint(), fp)
		}
		must(t, Claimed(dir))
		must(t, Claimed(dir))
		if id, _, err := Claim(dir); err != nil || id != "" {
			t.Errorf("still claims %q, %v", id, err)
		}
	}
}

func TestCheck(t *testing.T) {
	said := func(r Report) string {
		var out []string
		for _, f := range r.Findings {
			out = append(out, f.Severity+" "+f.Text)
			if f.Remedy == "" {
				out = append(out, "without a remedy")
			}
		}
		return strings.Join(out, "; ")
	}
	for _, tc := range []struct {
		name  string
		spoil func(dir string) error
		sound bool
		want  string
	}{
		{"sound", func(string) error { return nil }, true, ""},
		{"key readable", func(dir string) error { return os.Chmod(dir+"/"+trust.KeyFile, 0o644) }, false, "others can read the key"},
		{"directory open", func(dir string) error { return os.Chmod(dir, 0o777) }, false, "others than its owner can replace"},
		{"database writable", func(dir string) error { return os.Chmod(dir+"/"+Database, 0o666) }, false, "others can write it"},
		{"no key", func(dir string) error { return os.Remove(dir + "/" + trust.KeyFile) }, true, "no cluster key"},
		{"key spoiled", func(dir string) error { return os.WriteFile(dir+"/"+trust.KeyFile, []byte("x"), 0o600) }, false, "no complete PEM"},
		{"chain spoiled", func(dir string) error { return os.WriteFile(dir+"/"+trust.ChainFile, []byte("x"), 0o600) }, true, trust.ChainFile},
		{"database spoiled", func(dir string) error { return os.WriteFile(dir+"/"+Database, make([]byte, 5000), 0o640) }, false, "is damaged"},
		{"no database", func(dir string) error { return os.Remove(dir + "/" + Database) }, true, "no database yet"},
		{"restore cut off", func(dir string) error { return os.Mkdir(dir+"/"+restoreDir, 0o700) }, false, "a restore was cut off"},
		{"reset cut off", func(dir string) error { return BeginReset(dir, Reset{}) }, true, "a reset is under way"},
	} {
		dir := t.TempDir()
		must(t, os.Chmod(dir, 0o750))
		fp := lived(t, dir, "me")
		must(t, tc.spoil(dir))
		r, err := Check(t.Context(), dir)
		if err != nil || r.Sound != tc.sound || (tc.want == "") != (len(r.Findings) == 0) || !strings.Contains(said(r), tc.want) || strings.Contains(said(r), "without a remedy") {
			t.Errorf("%s: sound %t, %q, %v", tc.name, r.Sound, said(r), err)
		}
		if tc.name == "sound" && (r.Database.ClusterID != "me" || r.Key.Fingerprint != fp.String() || r.FreeBytes <= 0 || r.UsedBytes <= 0 || len(r.Files) != 3) {
			t.Errorf("%+v", r)
		}
	}
	if _, err := Check(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// FuzzRestore: whatever is restored, the state is whole afterwards, the old one or
// the new one, and nothing outside it is touched.
func FuzzRestore(f *testing.F) {
	source := f.TempDir()
	lived(f, source, "first")
	good := backup(f, source)
	f.Add(good)
	f.Add(good[:700])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, archive []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "state")
		must(t, os.Mkdir(dir, 0o750))
		_, err := Restore(t.Context(), dir, now, bytes.NewReader(archive))
		entries, readErr := os.ReadDir(parent)
		must(t, readErr)
		if len(entries) != 1 {
			t.Errorf("outside: %v", entries)
		}
		got := slices.Sorted(maps.Keys(content(t, dir)))
		if err != nil && len(got) > 0 {
			t.Errorf("after %v there is %v", err, got)
		}
		if err == nil && !slices.Contains(got, Database) {
			t.Errorf("restored %v", got)
		}
	})
}
