package statedir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/peer"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// Tests that kill what they test, or fill its disk, run this binary again with
// helperEnv set to one of the names below and a directory behind it.
const helperEnv = "LIQO_STATEDIR_TEST_HELPER"

var helpers = map[string]func(ctx context.Context, dir string) error{
	"backup": func(ctx context.Context, dir string) error {
		for {
			if _, err := BackupFile(ctx, filepath.Join(dir, "state"), "1", now, filepath.Join(dir, "out.tar"), true); err != nil {
				return err
			}
		}
	},
	"restore": func(ctx context.Context, dir string) error {
		for n := rand.IntN(2); ; n++ {
			archive, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%d.tar", n%2)))
			if err == nil {
				_, err = Restore(ctx, filepath.Join(dir, "state"), now, bytes.NewReader(archive))
			}
			if err == nil {
				// What was set aside is not to fill the disk of the test.
				var aside []string
				aside, err = filepath.Glob(filepath.Join(dir, "state", asideDir+"*"))
				for _, path := range aside {
					err = errors.Join(err, os.RemoveAll(path))
				}
			}
			if err != nil {
				return err
			}
		}
	},
	"reset": func(ctx context.Context, dir string) error {
		_, err := Clear(ctx, filepath.Join(dir, "state"), Reset{ID: "fresh", Identity: true, Parted: true})
		return err
	},
	"full": restoreOnFullDisk,
}

func TestMain(m *testing.M) {
	name, dir, ok := strings.Cut(os.Getenv(helperEnv), "=")
	if !ok {
		os.Exit(m.Run())
	}
	fmt.Println("begun")
	if err := helpers[name](context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func helper(t testing.TB, name, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"="+name+"="+dir)
	return cmd
}

// kill runs a helper and kills it a moment after its work has begun: on a busy machine, the start of the program takes longer
// than that.
func kill(t testing.TB, name, dir string, patience time.Duration) {
	t.Helper()
	cmd := helper(t, name, dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Errorf("%s did not begin: %v", name, err)
	}
	time.Sleep(rand.N(patience)) // most of these land in the work
	_ = cmd.Process.Kill()
	if _ = cmd.Wait(); stderr.Len() > 0 {
		t.Fatalf("%s: %s", name, &stderr)
	}
}

// longer is how long a helper may work: soon, and more when a busy machine did not get anywhere in all rounds.
func longer(round, rounds int, soon time.Duration) time.Duration {
	if round >= rounds {
		return 20 * soon * time.Duration(1+(round-rounds)/10)
	}
	return soon
}

// TestKilledBackup: the file is a whole backup whenever it is killed.
func TestKilledBackup(t *testing.T) {
	dir := t.TempDir()
	fp := lived(t, filepath.Join(dir, "state"), "me")
	const rounds = 15
	made := 0
	for round := 0; round < rounds || made == 0 && round < 60+rounds; round++ {
		kill(t, "backup", dir, longer(round, rounds, 60*time.Millisecond))
		f, err := os.Open(filepath.Join(dir, "out.tar"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		must(t, err)
		made++
		to := t.TempDir()
		_, err = Restore(t.Context(), to, now, f)
		must(t, errors.Join(err, f.Close()))
		if id, key := whose(t, to); id != "me" || key != fp {
			t.Fatalf("%s %s", id, key)
		}
	}
	if made == 0 {
		t.Error("no backup was ever made")
	}
	must(t, func() error {
		_, err := BackupFile(t.Context(), filepath.Join(dir, "state"), "1", now, filepath.Join(dir, "out.tar"), true)
		return err
	}())
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestKilledRestore: the state is the one of the first backup or the one of the
// second, with the key that belongs to it, whenever it is killed.
func TestKilledRestore(t *testing.T) {
	dir := t.TempDir()
	keys := make(map[peer.ClusterID]peer.Fingerprint)
	for n, id := range []peer.ClusterID{"first", "second"} {
		source := t.TempDir()
		keys[id] = lived(t, source, id)
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.tar", n)), backup(t, source), 0o600))
	}
	to := filepath.Join(dir, "state")
	keys["third"] = lived(t, to, "third")
	const rounds = 60
	seen := make(map[peer.ClusterID]int)
	for round := 0; round < rounds || (seen["first"] == 0 || seen["second"] == 0) && round < 120+rounds; round++ {
		kill(t, "restore", dir, longer(round, rounds, 60*time.Millisecond))
		must(t, Resume(t.Context(), to))
		id, key := whose(t, to)
		if keys[id] != key {
			t.Fatalf("%s has the key of another", id)
		}
		if claimed, _, err := Claim(to); err != nil || id != "third" && claimed != id {
			t.Fatalf("%s claims %q, %v", id, claimed, err)
		}
		seen[id]++
	}
	if seen["first"] == 0 || seen["second"] == 0 {
		t.Errorf("restored: %v", seen)
	}
}

// TestKilledReset: once it is begun, it ends, in however many attempts.
func TestKilledReset(t *testing.T) {
	for range 15 {
		dir := t.TempDir()
		to := filepath.Join(dir, "state")
		fp := lived(t, to, "me")
		kill(t, "reset", dir, 10*time.Millisecond) // which is about how long it takes
		r, found, err := PendingReset(to)
		must(t, err)
		if found {
			_, err = Clear(t.Context(), to, r)
			must(t, err)
		}
		if id, _, err := Claim(to); err != nil || id != "" && id != "fresh" {
			t.Fatalf("claims %q, %v", id, err)
		} else if id == "" {
			if was, key := whose(t, to); was != "me" || key != fp {
				t.Fatalf("it was not begun, and it is %s", was)
			}
			continue
		}
		if left := content(t, to); len(left) != 1 {
			t.Fatalf("left %v", left)
		}
	}
}

// TestFullDisk: a restore that does not fit changes nothing.
func TestFullDisk(t *testing.T) {
	cmd := helper(t, "full", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || strings.Contains(string(out), "cannot mount") {
		t.Skipf("no mount namespace to be had here: %v %s", err, out)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func restoreOnFullDisk(ctx context.Context, dir string) error {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m")
	}
	if err != nil {
		return fmt.Errorf("cannot mount: %w", err)
	}
	to := filepath.Join(dir, "state")
	store, err := state.Open(ctx, filepath.Join(to, Database), state.Options{})
	if err == nil {
		err = errors.Join(store.SetClusterID(ctx, "me", "test"), store.Close())
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(to, "cluster.key"), []byte("a key"), 0o600)
	}
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	source, err := os.MkdirTemp(os.Getenv("TMPDIR"), "source") // on another disk
	if err != nil {
		return err
	}
	defer os.RemoveAll(source) //nolint:errcheck // of the test's
	if source, err = makeSource(ctx, source); err != nil {
		return err
	}
	if _, err := Backup(ctx, source, "1", now, source, &archive); err != nil {
		return err
	}
	_ = os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 2<<20), 0o600) // as much as fits
	if _, err := Restore(ctx, to, now, bytes.NewReader(archive.Bytes())); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("restored on a full disk: %w", err)
	}
	found, err := state.Examine(ctx, filepath.Join(to, Database))
	if err != nil || found.ClusterID != "me" {
		return fmt.Errorf("afterwards it is %q: %w", found.ClusterID, err)
	}
	if _, err := os.Stat(filepath.Join(to, restoreDir)); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("something is left: %w", err)
	}
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		return err
	}
	if _, err := Restore(ctx, to, now, bytes.NewReader(archive.Bytes())); err != nil {
		return fmt.Errorf("with space again: %w", err)
	}
	return nil
}

// makeSource makes a state directory to be backed up.
func makeSource(ctx context.Context, dir string) (string, error) {
	store, err := state.Open(ctx, filepath.Join(dir, Database), state.Options{})
	if err != nil {
		return dir, err
	}
	err = errors.Join(store.SetClusterID(ctx, "source", "test"), store.Close())
	if err == nil {
		err = newKey(dir)
	}
	return dir, err
}

func newKey(dir string) error {
	_, err := trust.LoadOrCreateKey(dir)
	return err
}
