package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// unitName is what systemd calls the service.
const unitName = Name + ".service"

// installedPath is where the unit is written: the place of the administrator.
const installedPath = "/etc/systemd/system/" + unitName

// configDir is where the configuration belongs.
const configDir = "/etc/" + Name

// packagedPaths are where packages put theirs.
var packagedPaths = []string{"/usr/lib/systemd/system/" + unitName, "/lib/systemd/system/" + unitName}

// The kinds of errors.
var (
	// ErrNotRoot: it takes root.
	ErrNotRoot = errors.New("only root may do this")
	// ErrNoSystemd: this machine was not booted with systemd.
	ErrNoSystemd = errors.New("systemd does not run here")
	// ErrPackaged: a package has installed the service.
	ErrPackaged = errors.New("installed by a package")
	// ErrNotInstalled: there is no such service.
	ErrNotInstalled = errors.New("not installed")
	// ErrBinary: the binary cannot be run by the service where it is.
	ErrBinary = errors.New("the binary cannot be used")
)

// Error is an error with advice. It unwraps to its Kind and its Cause.
type Error struct {
	Message string
	Advice  string
	Kind    error
	Cause   error
}

// Error returns what happened.
func (e *Error) Error() string { return e.Message }

// Try returns what to do next, or "".
func (e *Error) Try() string { return e.Advice }

// Unwrap returns kind and cause.
func (e *Error) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Kind, e.Cause}, func(err error) bool { return err == nil })
}

// Manager installs and controls the service. It is for one goroutine.
type Manager struct {
	binary string
	root   string // in front of all paths, for tests
	euid   int
	booted func() bool
	run    func(ctx context.Context, stdin, name string, args ...string) (string, error)
}

// New returns the Manager for the binary at path, which is that of this process when it is "". Nothing is touched.
func New(path string) (*Manager, error) {
	if path == "" {
		var err error
		if path, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find the path of this program: %w", err)
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find the path of this program: %w", err)
	}
	return &Manager{binary: path, euid: os.Geteuid(), booted: booted, run: run}, nil
}

// booted is sd_booted(3).
func booted() bool {
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// StartCommand is what starts the agent on this machine.
func StartCommand() string { return startCommand("", booted()) }

func startCommand(root string, booted bool) string {
	for _, path := range append([]string{installedPath}, packagedPaths...) {
		if _, err := os.Stat(root + path); err == nil && booted {
			return "sudo systemctl start " + Name
		}
	}
	return "sudo liqo-agent run"
}

// Installed says what Install has done.
type Installed struct {
	Path     string `json:"path"`     // of the unit
	Binary   string `json:"binary"`   // what it runs
	Account  bool   `json:"account"`  // user and group were made
	Changed  bool   `json:"changed"`  // the unit is new or another one than before
	Replaced string `json:"replaced"` // where the unit from before was set aside; "" when there was none, or the same
	Started  bool   `json:"started"`
}

// Install writes the unit, makes user and group when they are missing, enables the service, and starts it if asked.
// It may be repeated: then a unit that differs is set aside, and replaced. A running service goes on running as it is
// until it is restarted.
func (m *Manager) Install(ctx context.Context, start bool) (Installed, error) {
	out := Installed{Path: installedPath, Binary: m.binary}
	if err := m.allowed("service install"); err != nil {
		return out, err
	}
	if path := m.packaged(); path != "" {
		return out, &Error{Kind: ErrPackaged, Message: fmt.Sprintf("a package has installed the service already (%s)", path),
			Advice: "sudo liqo-agent service start"}
	}
	if err := m.usable(); err != nil {
		return out, err
	}
	// systemd would make it, too, but for the service's user: what the agent obeys is root's to write.
	if err := os.MkdirAll(m.root+configDir, 0o755); err != nil {
		return out, fmt.Errorf("make the directory for the configuration: %w", err)
	}
	var err error
	if out.Account, err = m.account(ctx); err != nil {
		return out, err
	}
	if out.Changed, out.Replaced, err = m.place(ctx); err != nil {
		return out, err
	}
	if start {
		if err := m.Start(ctx); err != nil {
			return out, err
		}
		out.Started = true
	}
	return out, nil
}

// place puts the unit in its place and enables it.
func (m *Manager) place(ctx context.Context) (changed bool, replaced string, err error) {
	path := m.root + installedPath
	old, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, "", fmt.Errorf("read the unit that is there: %w", err)
	case string(old) == Unit(m.binary):
		return false, "", m.enable(ctx)
	default:
		replaced = installedPath + ".old"
		if err := os.Rename(path, m.root+replaced); err != nil {
			return false, "", fmt.Errorf("set the unit aside that is there: %w", err)
		}
	}
	if err := os.WriteFile(path, []byte(Unit(m.binary)), 0o644); err != nil {
		return false, replaced, fmt.Errorf("write the unit: %w", err)
	}
	return true, replaced, m.enable(ctx)
}

// enable has the service start at boot, and systemd read the unit as it is now.
func (m *Manager) enable(ctx context.Context) error {
	if err := m.systemctl(ctx, "enable", "--quiet", unitName); err != nil {
		return fmt.Errorf("enable the service: %w", err)
	}
	return m.reload(ctx)
}

func (m *Manager) reload(ctx context.Context) error {
	if err := m.systemctl(ctx, "daemon-reload"); err != nil {
		return fmt.Errorf("have systemd read its units again: %w", err)
	}
	return nil
}

func (m *Manager) systemctl(ctx context.Context, args ...string) error {
	_, err := m.run(ctx, "", "systemctl", args...)
	return err
}

// Uninstall stops the service, disables it and removes the unit. State, configuration, user and group stay.
func (m *Manager) Uninstall(ctx context.Context) error {
	if err := m.allowed("service uninstall"); err != nil {
		return err
	}
	path := m.root + installedPath
	_, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && m.packaged() != "":
		return &Error{Kind: ErrPackaged, Message: fmt.Sprintf("the service came with a package (%s)", m.packaged()),
			Advice: "remove the package liqo-agent, for example: sudo apt remove liqo-agent"}
	case errors.Is(err, fs.ErrNotExist):
		return notInstalled()
	case err != nil:
		return fmt.Errorf("look for the unit: %w", err)
	}
	if err := m.systemctl(ctx, "stop", unitName); err != nil {
		return fmt.Errorf("stop the service: %w", err)
	}
	if err := m.systemctl(ctx, "disable", "--quiet", unitName); err != nil {
		return fmt.Errorf("disable the service: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the unit: %w", err)
	}
	if err := m.reload(ctx); err != nil {
		return err
	}
	// A failure that is remembered would show a unit that is gone; there is mostly none.
	_ = m.systemctl(ctx, "reset-failed", unitName)
	return nil
}

// Start starts the service and waits until the agent is ready.
func (m *Manager) Start(ctx context.Context) error { return m.do(ctx, "start") }

// Stop stops the service and waits until it has said goodbye.
func (m *Manager) Stop(ctx context.Context) error { return m.do(ctx, "stop") }

// Restart stops the service, if it runs, and starts it.
func (m *Manager) Restart(ctx context.Context) error { return m.do(ctx, "restart") }

func (m *Manager) do(ctx context.Context, verb string) error {
	if err := m.allowed("service " + verb); err != nil {
		return err
	}
	st, err := m.Status(ctx)
	if err != nil {
		return err
	}
	if !st.Installed {
		return notInstalled()
	}
	if err := m.systemctl(ctx, verb, unitName); err != nil {
		return &Error{Cause: err, Message: fmt.Sprintf("the service did not %s: %v", verb, err),
			Advice: "journalctl -u " + Name + " -n 50 --no-pager"}
	}
	return nil
}

func notInstalled() error {
	return &Error{Kind: ErrNotInstalled, Message: "the service is not installed", Advice: "sudo liqo-agent service install --start"}
}

// allowed says what is in the way of changing anything.
func (m *Manager) allowed(command string) error {
	if !m.booted() {
		return noSystemd()
	}
	if m.euid != 0 {
		return &Error{Kind: ErrNotRoot, Message: "only root may change services", Advice: "sudo liqo-agent " + command}
	}
	return nil
}

func noSystemd() error {
	return &Error{Kind: ErrNoSystemd, Message: "this machine does not run systemd, and services are systemd's here",
		Advice: "have your init system run this: liqo-agent run"}
}

// packaged returns the unit that a package installed, or "".
func (m *Manager) packaged() string {
	for _, path := range packagedPaths {
		if _, err := os.Lstat(m.root + path); err == nil {
			return path
		}
	}
	return ""
}

// plain is a path that needs no quoting in a unit, where quotes, spaces, dollars and backslashes mean something.
var plain = regexp.MustCompile(`^/[A-Za-z0-9/._+@%:,=~-]+$`)

// usable says why the service could not run the binary where it is.
func (m *Manager) usable() error {
	if !plain.MatchString(m.binary) {
		return &Error{Kind: ErrBinary, Message: fmt.Sprintf("a unit cannot name %q: it has characters that systemd takes for its own", m.binary),
			Advice: elsewhere(m.binary)}
	}
	for _, hidden := range []string{"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"} {
		if strings.HasPrefix(m.binary, hidden) {
			return &Error{Kind: ErrBinary, Message: fmt.Sprintf("the service does not see what is below %s, where this program is (%s)", hidden, m.binary),
				Advice: elsewhere(m.binary)}
		}
	}
	return nil
}

func elsewhere(binary string) string {
	return fmt.Sprintf("sudo install -m 0755 '%s' /usr/local/bin/%s && sudo /usr/local/bin/%s service install", binary, Name, Name)
}
