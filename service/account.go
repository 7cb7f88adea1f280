package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"
)

// commandTimeout bounds what is run. A restart may take what the unit has for TimeoutStopSec and TimeoutStartSec.
const commandTimeout = 2 * time.Minute

// account makes the user and the group unless they are there, and reports whether it had to.
func (m *Manager) account(ctx context.Context) (made bool, err error) {
	user, err := m.listed("/etc/passwd")
	if err != nil {
		return false, err
	}
	group, err := m.listed("/etc/group")
	if err != nil || user && group {
		return false, err
	}
	_, err = m.run(ctx, sysusers, "systemd-sysusers", "-")
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, exec.ErrNotFound) {
		return false, fmt.Errorf("make the user %s: %w", Name, err)
	}
	// Without systemd-sysusers, as on some small images.
	if !group {
		if _, err := m.run(ctx, "", "groupadd", "--system", Name); err != nil {
			return false, noAccount("group", "groupadd --system "+Name, err)
		}
	}
	if !user {
		args := []string{"--system", "--gid", Name, "--no-create-home", "--home-dir", "/var/lib/" + Name, "--shell", "/usr/sbin/nologin", Name}
		if _, err := m.run(ctx, "", "useradd", args...); err != nil {
			return false, noAccount("user", "useradd "+strings.Join(args, " "), err)
		}
	}
	return true, nil
}

func noAccount(what, command string, err error) error {
	return &Error{Cause: err, Message: fmt.Sprintf("the %s %s could not be made: %v", what, Name, err), Advice: "sudo " + command}
}

// listed reports whether a file such as /etc/passwd has our name. Accounts from elsewhere (LDAP) do not count: the
// service must start without a network.
func (m *Manager) listed(file string) (bool, error) {
	text, err := os.ReadFile(m.root + file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look for user and group: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, Name+":") {
			return true, nil
		}
	}
	return false, nil
}

// run runs a program and returns its output. The error has what it said.
func run(ctx context.Context, stdin, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if said := strings.TrimSpace(errs.String()); said != "" {
			return "", fmt.Errorf("%s: %w: %s", name, err, said)
		}
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return out.String(), nil
}
