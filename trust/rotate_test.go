package trust

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/peer"
)

func mustLoad(t testing.TB, dir string) *Key {
	t.Helper()
	k, err := LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	if k.ChainProblem() != nil {
		t.Fatal(k.ChainProblem())
	}
	return k
}

func mustRotate(t testing.TB, dir string, old *Key) *Key {
	t.Helper()
	k, err := Rotate(dir, old)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// shownBy is what peers see of k.
func shownBy(t testing.TB, k *Key) Shown {
	t.Helper()
	shown, err := Verify(chainOf(t, NewIssuer(k, fixedID("a"))), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return shown
}

func TestRotate(t *testing.T) {
	dir := t.TempDir()
	keys := []*Key{mustLoad(t, dir)}
	for range maxSuccessions + 3 {
		keys = append(keys, mustRotate(t, dir, keys[len(keys)-1]))
	}
	last := keys[len(keys)-1]
	if len(last.Successions()) != maxSuccessions {
		t.Errorf("%d succession certificates", len(last.Successions()))
	}
	loaded := mustLoad(t, dir)
	if loaded.Fingerprint() != last.Fingerprint() || !slices.EqualFunc(loaded.Successions(), last.Successions(), (*x509.Certificate).Equal) {
		t.Error("what is loaded is not what Rotate returned")
	}
	shown := shownBy(t, loaded)
	for i, old := range keys[:len(keys)-1] {
		if got, want := shown.Succeeds(old.Fingerprint()), i >= len(keys)-1-maxSuccessions; got != want {
			t.Errorf("key %d of %d: succeeded %v, want %v", i, len(keys)-1, got, want)
		}
	}

	// The old private keys are gone, and nothing else is there.
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Errorf("files %v", entries)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info, err)
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, old := range keys[:len(keys)-1] {
			secret, err := encodeKey(old)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(data, secret) {
				t.Errorf("%s holds an old key", e.Name())
			}
		}
	}
	if n := bytes.Count(mustRead(t, filepath.Join(dir, ChainFile)), []byte("-----BEGIN CERTIFICATE")); n != maxSuccessions {
		t.Errorf("%d certificates in the chain file", n)
	}
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A disk that loses power: what was not synced may be there or not, in any
// combination.
type disk struct {
	t       *testing.T
	synced  map[string][]byte // files, by inode: the path under which they were created
	names   map[string]string // durable directory entries: path to inode
	live    map[string]string // directory entries as programs see them
	pending []func(map[string]string)
}

func newDisk(t *testing.T, dir string) *disk {
	t.Helper()
	d := &disk{t: t, synced: map[string][]byte{}, names: map[string]string{}, live: map[string]string{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		d.synced[path], d.names[path], d.live[path] = mustRead(t, path), path, path
	}
	return d
}

func (d *disk) entry(change func(map[string]string)) {
	change(d.live)
	d.pending = append(d.pending, change)
}

// saw takes note of an operation that was done on the real disk. temp is the
// last file created.
func (d *disk) saw(op, path string, temp *string) {
	switch op {
	case "create":
		*temp = path
		d.entry(func(names map[string]string) { names[path] = path })
	case "sync":
		d.synced[path] = mustRead(d.t, path)
	case "rename":
		from := *temp
		d.entry(func(names map[string]string) {
			names[path] = from
			delete(names, from)
		})
	case "syncdir":
		for _, change := range d.pending {
			change(d.names)
		}
		d.pending = nil
	default:
		d.t.Errorf("unknown operation %q", op)
	}
}

// afterCrash returns directories as they may be found after a power cut now.
func (d *disk) afterCrash() []string {
	var dirs []string
	for subset := range 1 << len(d.pending) {
		names := map[string]string{}
		for path, inode := range d.names {
			names[path] = inode
		}
		for i, change := range d.pending {
			if subset&(1<<i) != 0 {
				change(names)
			}
		}
		dir := d.t.TempDir()
		for path, inode := range names {
			// What was never synced is empty, which is the worst of it.
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), d.synced[inode], 0o600); err != nil {
				d.t.Fatal(err)
			}
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// Whenever the power fails or the process dies, the next start finds one of the
// two keys with all the certificates that lead to it, and can rotate.
func TestRotationSurvivesCrashes(t *testing.T) {
	for before := range 4 {
		dir := t.TempDir()
		keys := []*Key{mustLoad(t, dir)}
		for range before {
			keys = append(keys, mustRotate(t, dir, keys[len(keys)-1]))
		}
		old := keys[len(keys)-1]
		disk := newDisk(t, dir)
		var found []string
		var temp string
		operations := 0
		next, err := rotate(dir, old, func(op, path string) {
			operations++
			disk.saw(op, path, &temp)
			found = append(found, disk.afterCrash()...)
		})
		if err != nil {
			t.Fatal(err)
		}
		if operations != 8 {
			t.Errorf("%d operations were watched", operations)
		}
		seen := map[peer.Fingerprint]int{}
		for _, crashed := range found {
			key := mustLoad(t, crashed)
			seen[key.Fingerprint()]++
			earlier := keys
			if key.Fingerprint() == old.Fingerprint() {
				earlier = keys[:before]
			} else if key.Fingerprint() != next.Fingerprint() {
				t.Fatalf("neither key but %v", key.Fingerprint())
			}
			if got := len(key.Successions()); got != len(earlier) {
				t.Errorf("%d certificates for %d earlier keys", got, len(earlier))
			}
			shown := shownBy(t, key)
			for _, k := range earlier {
				if !shown.Succeeds(k.Fingerprint()) {
					t.Errorf("after a crash the key does not succeed an earlier one")
				}
			}
			again := mustRotate(t, crashed, key)
			if !shownBy(t, again).Succeeds(key.Fingerprint()) {
				t.Error("rotation after the crash leads nowhere")
			}
			if entries, err := os.ReadDir(crashed); err != nil || len(entries) != 2 {
				t.Errorf("files after the crash and another rotation: %v, %v", entries, err)
			}
		}
		if seen[old.Fingerprint()] == 0 || seen[next.Fingerprint()] == 0 {
			t.Errorf("the crashes were all on one side: %v", seen)
		}
	}
}

// TestRotateForever is no test but the process that TestRotationSurvivesKill
// kills: it rotates the key in a directory and prints each that it has got.
func TestRotateForever(t *testing.T) {
	dir := os.Getenv("TRUST_TEST_ROTATE")
	if dir == "" {
		t.Skip("runs in a process of its own only")
	}
	for key := mustLoad(t, dir); ; key = mustRotate(t, dir, key) {
		fmt.Println("key", key.Fingerprint())
	}
}

func TestRotationSurvivesKill(t *testing.T) {
	dir := t.TempDir()
	for range 10 {
		last := rotateUntilKilled(t, dir)
		key := mustLoad(t, dir)
		// It may have come further than it told.
		if shown := shownBy(t, key); key.Fingerprint() != last && !shown.Succeeds(last) {
			t.Fatalf("the key found, %v, does not succeed %v", key.Fingerprint(), last)
		}
		key = mustRotate(t, dir, key)
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 || !shownBy(t, key).Succeeds(last) {
			t.Fatalf("not whole after another rotation: %v, %v", entries, err)
		}
	}
}

// rotateUntilKilled returns the last key that the killed process told of.
func rotateUntilKilled(t *testing.T, dir string) peer.Fingerprint {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRotateForever$", "-test.v")
	cmd.Env = append(os.Environ(), "TRUST_TEST_ROTATE="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var last peer.Fingerprint
	var all strings.Builder
	rotations := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&all, lines.Text())
		_, digits, ok := strings.Cut(lines.Text(), "key ")
		if !ok {
			continue
		}
		if last, err = peer.ParseFingerprint(digits); err != nil {
			t.Fatal(err)
		}
		if rotations++; rotations == 3 {
			// Anywhere in one of the next rotations.
			time.AfterFunc(rand.N(5*time.Millisecond), func() { _ = cmd.Process.Kill() })
		}
	}
	if err := cmd.Wait(); err == nil || rotations < 3 {
		t.Fatalf("ended by itself after %d keys: %v\n%s", rotations, err, all.String())
	}
	return last
}

func TestRotateRefuses(t *testing.T) {
	t.Run("another key is in use", func(t *testing.T) {
		dir := t.TempDir()
		first := mustLoad(t, dir)
		second := mustRotate(t, dir, first)
		if _, err := Rotate(dir, first); !errors.Is(err, ErrKeyAccess) || !strings.Contains(err.Error(), "rotated or replaced meanwhile") {
			t.Errorf("error %v", err)
		}
		if got := mustLoad(t, dir); got.Fingerprint() != second.Fingerprint() {
			t.Error("the key changed")
		}
	})
	t.Run("no key", func(t *testing.T) {
		if _, err := Rotate(t.TempDir(), mustKey(t)); !errors.Is(err, ErrKeyAccess) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("no permission", func(t *testing.T) {
		dir := openDir(t)
		key := mustLoad(t, dir)
		if err := os.Chmod(dir, 0o555); err != nil {
			t.Fatal(err)
		}
		before := mustRead(t, filepath.Join(dir, KeyFile))
		var err error
		asNobody(t, func() { _, err = Rotate(dir, key) })
		if !errors.Is(err, ErrKeyAccess) {
			t.Errorf("error %v", err)
		}
		if !bytes.Equal(before, mustRead(t, filepath.Join(dir, KeyFile))) {
			t.Error("the key changed")
		}
	})
	t.Run("the chain cannot be replaced", func(t *testing.T) {
		dir := t.TempDir()
		key := mustLoad(t, dir)
		if err := os.Mkdir(filepath.Join(dir, ChainFile), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := Rotate(dir, key); !errors.Is(err, ErrKeyAccess) || !strings.Contains(err.Error(), ChainFile) {
			t.Errorf("error %v", err)
		}
		again, err := LoadOrCreateKey(dir)
		if err != nil || again.Fingerprint() != key.Fingerprint() || again.ChainProblem() == nil {
			t.Errorf("%v, %v", again, err)
		}
	})
	t.Run("another process is at it", func(t *testing.T) {
		dir := t.TempDir()
		key := mustLoad(t, dir)
		unlock, err := lockDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Rotate(dir, key); !errors.Is(err, ErrKeyAccess) || !strings.Contains(err.Error(), "another process") {
			t.Errorf("error %v", err)
		}
		unlock()
		mustRotate(t, dir, key)
	})
	t.Run("many at once", func(t *testing.T) {
		dir := t.TempDir()
		key := mustLoad(t, dir)
		var mu sync.Mutex
		var done []*Key
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				next, err := Rotate(dir, key)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					done = append(done, next)
				} else if !errors.Is(err, ErrKeyAccess) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(done) != 1 || mustLoad(t, dir).Fingerprint() != done[0].Fingerprint() {
			t.Errorf("%d rotations of one key", len(done))
		}
	})
}

// A key that is mounted through a link is replaced where it is.
func TestRotateBehindSymbolicLink(t *testing.T) {
	real, dir := t.TempDir(), t.TempDir()
	old := mustLoad(t, real)
	link := filepath.Join(dir, KeyFile)
	if err := os.Symlink(filepath.Join(real, KeyFile), link); err != nil {
		t.Fatal(err)
	}
	next := mustRotate(t, dir, old)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info, err)
	}
	if got := mustLoad(t, dir); got.Fingerprint() != next.Fingerprint() || len(got.Successions()) != 1 {
		t.Error("the new key is not found through the link")
	}
	assertAlone(t, real)
}

// Temporary files of a crashed start may hold the key.
func TestRotateRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	key := mustLoad(t, dir)
	if err := os.Link(filepath.Join(dir, KeyFile), filepath.Join(dir, "."+KeyFile+".123")); err != nil {
		t.Fatal(err)
	}
	mustRotate(t, dir, key)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("files %v, %v", entries, err)
	}
}
