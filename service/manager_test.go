package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// world is a machine of files, whose systemctl writes down what it was asked.
type world struct {
	t     *testing.T
	m     *Manager
	did   []string
	fail  map[string]error // by how the command begins
	shows string           // what systemctl show prints
}

// What systemctl is asked to do with a unit that was written.
const (
	enable = "systemctl enable --quiet liqo-agent.service"
	reload = "systemctl daemon-reload"
)

const stopped = "LoadState=loaded\nActiveState=inactive\n"

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, fail: make(map[string]error), shows: stopped}
	w.m = &Manager{binary: "/usr/local/bin/liqo-agent", root: t.TempDir(), booted: func() bool { return true }, run: w.run}
	if err := os.MkdirAll(filepath.Dir(w.m.root+installedPath), 0o755); err != nil {
		t.Fatal(err)
	}
	w.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
	w.write("/etc/group", "root:x:0:\n")
	return w
}

func (w *world) write(path, text string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.m.root+path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.m.root+path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(path string) string {
	text, err := os.ReadFile(w.m.root + path)
	if err != nil {
		return ""
	}
	return string(text)
}

// TestStartCommand: where the agent is a service, nobody is told to start a second one.
func TestStartCommand(t *testing.T) {
	w := newWorld(t)
	const byHand, bySystemd = "sudo liqo-agent run", "sudo systemctl start liqo-agent"
	if got := startCommand(w.m.root, true); got != byHand {
		t.Errorf("nothing is installed: %s", got)
	}
	for _, path := range append([]string{installedPath}, packagedPaths...) {
		w := newWorld(t)
		w.write(path, "[Service]\n")
		if got := startCommand(w.m.root, true); got != bySystemd {
			t.Errorf("%s: %s", path, got)
		}
		if got := startCommand(w.m.root, false); got != byHand {
			t.Errorf("%s without systemd: %s", path, got)
		}
	}
}

func (w *world) run(_ context.Context, stdin, name string, args ...string) (string, error) {
	command := strings.Join(append([]string{name}, args...), " ")
	if name == "systemctl" && args[0] == "show" {
		return w.shows, nil
	}
	if name == "systemd-sysusers" && stdin != Sysusers() {
		w.t.Errorf("systemd-sysusers got %q", stdin)
	}
	w.did = append(w.did, command)
	return "", w.failure(command)
}

func (w *world) failure(command string) error {
	for prefix, err := range w.fail {
		if strings.HasPrefix(command, prefix) {
			return err
		}
	}
	return nil
}

func (w *world) expect(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.did); diff != "" {
		w.t.Errorf("what was done (-want +got):\n%s", diff)
	}
	w.did = nil
}

func TestInstall(t *testing.T) {
	w := newWorld(t)
	done, err := w.m.Install(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	want := Installed{Path: installedPath, Binary: w.m.binary, Account: true, Changed: true, Started: true}
	if diff := cmp.Diff(want, done); diff != "" {
		t.Error(diff)
	}
	w.expect("systemd-sysusers -", enable, reload, "systemctl start liqo-agent.service")
	if info, err := os.Stat(w.m.root + configDir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("directory of the configuration: %v, %v", info, err)
	}

	// Again, with the account there: nothing but what makes sure that it starts at boot.
	w.write("/etc/passwd", "liqo-agent:x:999:999::/:/bin/false\n")
	w.write("/etc/group", "liqo-agent:x:999:\n")
	if done, err = w.m.Install(t.Context(), false); err != nil || done.Changed || done.Account || done.Replaced != "" {
		t.Errorf("second time: %+v, %v", done, err)
	}
	w.expect(enable, reload)

	// An older or edited unit is set aside.
	w.write(installedPath, "[Unit]\n")
	if done, err = w.m.Install(t.Context(), false); err != nil || !done.Changed || done.Replaced != installedPath+".old" {
		t.Errorf("over another unit: %+v, %v", done, err)
	}
	w.expect(enable, reload)
	if w.read(installedPath) != Unit(w.m.binary) || w.read(installedPath+".old") != "[Unit]\n" {
		t.Error("the unit was not replaced, or not kept")
	}
}

func TestInstallWithoutSysusers(t *testing.T) {
	w := newWorld(t)
	w.fail["systemd-sysusers"] = fmt.Errorf("systemd-sysusers: %w", exec.ErrNotFound)
	if _, err := w.m.Install(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	w.expect("systemd-sysusers -", "groupadd --system liqo-agent",
		"useradd --system --gid liqo-agent --no-create-home --home-dir /var/lib/liqo-agent --shell /usr/sbin/nologin liqo-agent", enable, reload)

	w.write("/etc/group", "liqo-agent:x:999:\n")
	w.fail["useradd"] = errors.New("useradd: cannot lock /etc/passwd")
	_, err := w.m.Install(t.Context(), false)
	var advised *Error
	if !errors.As(err, &advised) || !strings.Contains(err.Error(), "cannot lock") || !strings.HasPrefix(advised.Try(), "sudo useradd --system") {
		t.Errorf("error %v", err)
	}
}

func TestInstallRefused(t *testing.T) {
	for _, tc := range []struct {
		name  string
		given func(*world)
		kind  error
		try   string
	}{
		{"not root", func(w *world) { w.m.euid = 1000 }, ErrNotRoot, "sudo liqo-agent service install"},
		{"no systemd", func(w *world) { w.m.booted = func() bool { return false } }, ErrNoSystemd, "liqo-agent run"},
		{"packaged", func(w *world) { w.write("/lib/systemd/system/liqo-agent.service", "") }, ErrPackaged, "service start"},
		{"packaged elsewhere", func(w *world) { w.write("/usr/lib/systemd/system/liqo-agent.service", "") }, ErrPackaged, "service start"},
		{"in a home", func(w *world) { w.m.binary = "/home/alice/liqo-agent" }, ErrBinary, "sudo install -m 0755 '/home/alice/liqo-agent' /usr/local/bin/liqo-agent"},
		{"in /tmp", func(w *world) { w.m.binary = "/tmp/liqo-agent" }, ErrBinary, "sudo install"},
		{"a space", func(w *world) { w.m.binary = "/opt/my agent" }, ErrBinary, "sudo install"},
		{"a line break", func(w *world) { w.m.binary = "/opt/x\nExecStartPre=/bin/sh" }, ErrBinary, "sudo install"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			tc.given(w)
			_, err := w.m.Install(t.Context(), true)
			var advised *Error
			if !errors.Is(err, tc.kind) || !errors.As(err, &advised) || !strings.Contains(advised.Try(), tc.try) {
				t.Errorf("error %v, want %v; try %q", err, tc.kind, tc.try)
			}
			w.expect()
			if w.read(installedPath) != "" {
				t.Error("a unit was written")
			}
		})
	}
}

func TestUninstall(t *testing.T) {
	w := newWorld(t)
	if err := w.m.Uninstall(t.Context()); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("nothing there: %v", err)
	}
	w.write("/usr/lib/systemd/system/liqo-agent.service", "")
	if err := w.m.Uninstall(t.Context()); !errors.Is(err, ErrPackaged) {
		t.Errorf("packaged: %v", err)
	}
	w.expect()
	w.write(installedPath, Unit(w.m.binary))
	w.fail["systemctl reset-failed"] = errors.New("not loaded")
	if err := w.m.Uninstall(t.Context()); err != nil {
		t.Error(err)
	}
	w.expect("systemctl stop liqo-agent.service", "systemctl disable --quiet liqo-agent.service", reload, "systemctl reset-failed liqo-agent.service")

	w.write(installedPath, Unit(w.m.binary))
	w.fail["systemctl stop"] = errors.New("timeout")
	if err := w.m.Uninstall(t.Context()); err == nil || w.read(installedPath) == "" {
		t.Errorf("one that does not stop is removed: %v", err)
	}
}

func TestVerbs(t *testing.T) {
	for verb, do := range map[string]func(*Manager, context.Context) error{"start": (*Manager).Start, "stop": (*Manager).Stop, "restart": (*Manager).Restart} {
		w := newWorld(t)
		if err := do(w.m, t.Context()); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
		w.expect("systemctl " + verb + " liqo-agent.service")
		w.shows = "LoadState=not-found\nActiveState=inactive\n"
		if err := do(w.m, t.Context()); !errors.Is(err, ErrNotInstalled) {
			t.Errorf("%s without a unit: %v", verb, err)
		}
		w.expect()
		w.shows = stopped
		w.fail["systemctl "+verb] = errors.New("exit status 1")
		err := do(w.m, t.Context())
		var advised *Error
		if !errors.As(err, &advised) || !strings.Contains(advised.Try(), "journalctl -u liqo-agent") {
			t.Errorf("%s that fails: %v", verb, err)
		}
		w.m.euid = 1
		if err := do(w.m, t.Context()); !errors.Is(err, ErrNotRoot) {
			t.Errorf("%s by somebody: %v", verb, err)
		}
	}
}
