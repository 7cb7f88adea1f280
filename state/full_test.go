package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"liqo.io/agent/peer"
)

// TestDiskFull fills a tiny file system of its own. The change that does not
// fit is refused whole, reading goes on, and the same change succeeds once
// there is space.
func TestDiskFull(t *testing.T) {
	out, err := mounting(helper(t, "fill-disk", t.TempDir())).CombinedOutput()
	if errors.Is(err, syscall.EPERM) || strings.Contains(string(out), "cannot mount") {
		t.Skipf("no mount namespace to be had here: %v %s", err, out)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// mounting gives cmd namespaces in which it may mount.
func mounting(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	return cmd
}

func fillDisk(ctx context.Context, dir string) error {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m")
	}
	if err != nil {
		return fmt.Errorf("cannot mount: %w", err)
	}
	path := filepath.Join(dir, "agent.db")
	s, err := Open(ctx, path, Options{Limits: Limits{EventsPerPeer: 1 << 20, Events: 1 << 20}})
	if err != nil {
		return err
	}
	if err := s.SetClusterID(ctx, "me", "test"); err != nil {
		return err
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 512<<10), 0o600); err != nil {
		return err
	}
	stored := 0
	var refused Change
	for {
		refused = killChange(stored + 1)
		for range 50 {
			refused.Events = append(refused.Events, peer.Event{At: epoch, ID: "x", Kind: peer.EventLost, Detail: strings.Repeat("x", 400)})
		}
		if err = s.Apply(ctx, refused); err != nil {
			break
		}
		if stored++; stored > 10_000 {
			return errors.New("the disk never got full")
		}
	}
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "free some") {
		return fmt.Errorf("the error is %w", err)
	}
	if stored == 0 {
		return errors.New("nothing fitted")
	}
	for range 3 {
		if err := s.Apply(ctx, refused); !errors.Is(err, ErrFull) {
			return fmt.Errorf("again: %w", err)
		}
	}
	history, err := s.History(ctx, HistoryQuery{})
	if err != nil || len(history) != stored*51 {
		return fmt.Errorf("%d events readable on the full disk, want %d: %w", len(history), stored*51, err)
	}
	me := peer.ClusterID("me")
	switch err := s.SetClusterID(ctx, "lucky", "test"); { // a small change may still fit
	case err == nil:
		me = "lucky"
	case !errors.Is(err, ErrFull):
		return fmt.Errorf("identity: %w", err)
	}
	if err := os.Remove(ballast); err != nil {
		return err
	}
	if err := s.Apply(ctx, refused); err != nil {
		return fmt.Errorf("with space again: %w", err)
	}
	if err := errors.Join(s.Check(ctx), s.Close()); err != nil {
		return err
	}
	old, err := olderDatabase(ctx, filepath.Join(dir, "old"))
	if err != nil {
		return err
	}
	// An agent that starts on a full disk finds everything, and says what is
	// wrong when there is nothing to find yet.
	if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("filling the disk up: %w", err)
	}
	if s, err = Open(ctx, path, Options{}); err != nil {
		return fmt.Errorf("start on a full disk: %w", err)
	}
	if history, err = s.History(ctx, HistoryQuery{}); err != nil || len(history) != (stored+1)*51 {
		return fmt.Errorf("%d events after the start on a full disk: %w", len(history), err)
	}
	for range 2 {
		if err = s.SetClusterID(ctx, "another", "test"); !errors.Is(err, ErrFull) {
			return fmt.Errorf("change after the start on a full disk: %w", err)
		}
	}
	if id, err := s.ClusterID(ctx); err != nil || id != me {
		return fmt.Errorf("the cluster ID on the full disk is %q: %w", id, err)
	}
	_, err = Open(ctx, filepath.Join(dir, "sub", "agent.db"), Options{})
	if !errors.Is(err, ErrFull) {
		return fmt.Errorf("first start on a full disk: %w", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "sub", "agent.db*")); len(left) > 1 { // the lock
		return fmt.Errorf("first start on a full disk left %v", left)
	}
	if _, err := Open(ctx, old, Options{}); !errors.Is(err, ErrFull) {
		return fmt.Errorf("upgrade on a full disk: %w", err)
	}
	for _, name := range []string{buildName(old), upgradeName(old)} {
		if left, _ := filepath.Glob(name + "*"); len(left) > 0 {
			return fmt.Errorf("upgrade on a full disk left %v", left)
		}
	}
	// And when somebody cleans up, the running agent can write again.
	if err := os.Remove(ballast); err != nil {
		return err
	}
	upgraded, err := Open(ctx, old, Options{})
	if err != nil {
		return fmt.Errorf("upgrade with space again: %w", err)
	}
	id, err := upgraded.ClusterID(ctx)
	if err = errors.Join(err, upgraded.Close()); err != nil || id != "old" || upgraded.Recovery() != nil {
		return fmt.Errorf("upgraded: %q, %v: %w", id, upgraded.Recovery(), err)
	}
	if err := s.SetClusterID(ctx, "another", "test"); err != nil {
		return fmt.Errorf("after the disk was cleaned up: %w", err)
	}
	return errors.Join(s.Check(ctx), s.Close())
}

// olderDatabase makes a database of schema 1.
func olderDatabase(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "agent.db")
	all, err := builtinMigrations()
	if err == nil {
		err = makeDir(dir)
	}
	if err != nil {
		return "", err
	}
	db, conn, err := buildFile(ctx, path, all[:1])
	if err != nil {
		return "", err
	}
	_, err = conn.ExecContext(ctx, "INSERT INTO identity VALUES (1, 'old', 'test', 0)")
	return path, errors.Join(err, hangUp(db, conn))
}
