package socket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
)

// helperSocket makes the test binary a client of the socket it names, so that
// it can be run as another user.
const helperSocket = "LIQO_AGENT_TEST_SOCKET"

func newLevel() *slog.LevelVar { return new(slog.LevelVar) }
func discard() *slog.Logger    { return slog.New(slog.DiscardHandler) }

func helperMain(path string) {
	_, err := client.New(path).RotateKey(context.Background())
	var e *control.Error
	switch {
	case err == nil:
		_, err := client.New(path).BeginReset(context.Background(), control.ResetOptions{Stop: true})
		if errors.Is(err, control.ErrPermission) {
			fmt.Println("allowed, but for a reset:", err)
			return
		}
		fmt.Println("allowed")
	case errors.As(err, &e):
		fmt.Printf("%v|%s|%s\n", errors.Is(err, control.ErrPermission), e.Error(), e.Try())
	default:
		fmt.Println(err)
	}
}

func TestPermission(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	nogroup, err := user.LookupGroup("nogroup")
	if err != nil {
		t.Skipf("needs group nogroup: %v", err)
	}
	gid, err := strconv.ParseUint(nogroup.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "control")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	helper := copyOfTestBinary(t, dir)
	path := filepath.Join(dir, "agent.sock")
	m := &memory{}
	s := NewServer(ServerConfig{Path: path, Group: "nogroup", Backend: m, Level: newLevel(), Logger: discard()})
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	for _, tc := range []struct {
		name     string
		uid, gid uint32
		want     string
		by       string
	}{
		// Who it was is found out from the kernel, by name where there is one.
		{"root", 0, 0, "allowed", "rotate user root (command line), reset {Identity:false Stop:true All:false CRDs:false}"},
		{"member", 54321, uint32(gid), "allowed, but for a reset: only root and the agent's own user may reset or stop the agent; members of the group decide about peers", "rotate user number 54321 (command line)"},
		{"stranger", 54321, 54321, "true|no permission to use " + path + "|sudo usermod -aG nogroup $USER, then log in again; or use sudo", ""},
	} {
		cmd := exec.CommandContext(t.Context(), helper)
		cmd.Env = append(os.Environ(), helperSocket+"="+path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tc.uid, Gid: tc.gid}}
		out, err := cmd.Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != tc.want {
			t.Errorf("%s: %q, %v; want %q", tc.name, got, err, tc.want)
		}
		if heard := strings.Join(m.heard(), ", "); heard != tc.by {
			t.Errorf("%s: the backend heard %q, want %q", tc.name, heard, tc.by)
		}
	}
}

func TestNotRunning(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "agent.sock"), filepath.Join(t.TempDir(), "none", "agent.sock")} {
		_, err := client.New(path).Status(t.Context())
		var e *control.Error
		if !errors.Is(err, control.ErrNotRunning) || !errors.As(err, &e) {
			t.Fatalf("error = %v", err)
		}
		if want := "the agent is not running (nothing answers on " + path + ")"; e.Error() != want || e.Try() != "sudo liqo-agent run" {
			t.Errorf("%q, try %q", e.Error(), e.Try())
		}
	}
}

func copyOfTestBinary(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	path := filepath.Join(dir, "helper")
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}
