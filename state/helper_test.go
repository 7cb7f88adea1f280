package state

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"liqo.io/agent/peer"
)

// Tests that need another process run this binary again with helperEnv set to
// one of the names below and the database path behind it.
const helperEnv = "LIQO_STATE_TEST_HELPER"

var helpers = map[string]func(ctx context.Context, path string) error{
	"write-forever": writeForever,
	"hold":          hold,
	"read":          readAll,
	"open":          justOpen,
	"fill-disk":     fillDisk,
	"cut-power":     cutPower,
}

func TestMain(m *testing.M) {
	name, path, ok := strings.Cut(os.Getenv(helperEnv), "=")
	if !ok {
		os.Exit(m.Run())
	}
	if err := helpers[name](context.Background(), path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// helper prepares a run of this binary as one of the helpers.
func helper(t testing.TB, name, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"="+name+"="+path)
	cmd.Dir = "/"
	return cmd
}

// unprivileged makes cmd run as a user who is not root, in the group gid.
func unprivileged(cmd *exec.Cmd, gid uint32) *exec.Cmd {
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: gid}}
	}
	return cmd
}

// publicDir is a temporary directory that other users can reach.
func publicDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "liqo-state-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	return dir
}

// hold opens the database, says so, and keeps it until it is killed.
func hold(ctx context.Context, path string) error {
	s, err := Open(ctx, path, Options{})
	if err != nil {
		return err
	}
	if err := s.SetClusterID(ctx, "holder", "test"); err != nil {
		return err
	}
	fmt.Println("holding")
	time.Sleep(time.Hour)
	return s.Close()
}

func readAll(ctx context.Context, path string) error {
	s, err := OpenReadOnly(ctx, path)
	if err != nil {
		return err
	}
	id, err := s.ClusterID(ctx)
	if err != nil {
		return err
	}
	if _, err := s.Peers(ctx); err != nil {
		return err
	}
	fmt.Println("cluster", id)
	return s.Close()
}

func justOpen(ctx context.Context, path string) error {
	s, err := Open(ctx, path, Options{})
	if err != nil {
		return err
	}
	return s.Close()
}

// startHolder runs a process that has the database open, and returns it with
// a function that kills it.
func startHolder(t testing.TB, path string) (pid int, kill func()) {
	t.Helper()
	cmd := helper(t, "hold", path)
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "holding\n" {
		t.Fatalf("helper said %q, %v", line, err)
	}
	return cmd.Process.Pid, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// What only tests ask for.

func (s *Store) ClusterIDOrigin(ctx context.Context) (string, error) {
	r, err := s.self(ctx, identityTable)
	return r.origin, err
}

func (s *Store) Writer(ctx context.Context) (version string, since time.Time, err error) {
	r, err := s.self(ctx, writerTable)
	return r.text, r.at, err
}

func (s *Store) Ruling(ctx context.Context, id peer.ClusterID) (Ruling, error) {
	all, err := s.Rulings(ctx)
	return all[id], err
}

func (s *Store) Preferences(ctx context.Context, id peer.ClusterID) (Preferences, error) {
	r, err := s.Ruling(ctx, id)
	return r.Preferences, err
}

func (s *Store) UpdatePreferences(ctx context.Context, id peer.ClusterID, edit func(*Preferences)) error {
	r, err := s.Ruling(ctx, id)
	if err != nil {
		return err
	}
	edit(&r.Preferences)
	return s.SetRuling(ctx, id, r)
}

func (s *Store) SetAlias(ctx context.Context, id peer.ClusterID, alias string) error {
	return s.UpdatePreferences(ctx, id, func(p *Preferences) { p.Alias = alias })
}

func (s *Store) Endpoints(ctx context.Context, id peer.ClusterID) (endpoints []endpointRow, err error) {
	err = s.read(ctx, func(ctx context.Context) (err error) {
		endpoints, err = s.endpoints(ctx, "WHERE cluster_id = ? ORDER BY gone_at IS NOT NULL, gone_at DESC, ip, zone, port", string(id))
		return err
	})
	return endpoints, err
}

func (s *Store) Sightings(ctx context.Context, id peer.ClusterID) (sightings []peer.Sighting, err error) {
	rows, err := sightingTable.rows(ctx, s, "WHERE cluster_id = ?", string(id))
	for _, row := range rows {
		sightings = append(sightings, row.Sighting)
	}
	return sightings, err
}
