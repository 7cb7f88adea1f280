package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/cli/command"
	"liqo.io/agent/service"
)

// fakeSystemd is a systemd that does as a test says.
type fakeSystemd struct {
	installed service.Installed
	status    service.Status
	err       error
	did       []string
}

func (m *fakeSystemd) do(what string) error {
	m.did = append(m.did, what)
	return m.err
}

func (m *fakeSystemd) Install(_ context.Context, start bool) (service.Installed, error) {
	what := "install"
	if start {
		what = "install and start"
	}
	return m.installed, m.do(what)
}
func (m *fakeSystemd) Uninstall(context.Context) error                { return m.do("uninstall") }
func (m *fakeSystemd) Start(context.Context) error                    { return m.do("start") }
func (m *fakeSystemd) Stop(context.Context) error                     { return m.do("stop") }
func (m *fakeSystemd) Restart(context.Context) error                  { return m.do("restart") }
func (m *fakeSystemd) Status(context.Context) (service.Status, error) { return m.status, m.err }
func (m *fakeSystemd) services() (services, error)                    { return m, nil }
func (m *fakeSystemd) run(args ...string) (stdout, stderr string, code int) {
	return m.runIn(nil, args...)
}

func (m *fakeSystemd) runIn(environ []string, args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	app := newApp(command.Options{Version: "1.2.3", Stdout: &out, Stderr: &errs, Environ: environ, Now: time.Now}, machine{services: m.services})
	err := app.Run(context.Background(), append([]string{command.Name}, args...))
	code = command.Report(&errs, err)
	return out.String(), errs.String(), code
}

func TestServiceCommands(t *testing.T) {
	const unit = "/etc/systemd/system/liqo-agent.service"
	missing := &service.Error{Kind: service.ErrNotInstalled, Message: "the service is not installed", Advice: "sudo liqo-agent service install --start"}
	for _, tc := range []struct {
		name    string
		machine fakeSystemd
		args    string
		did     string
		stdout  string
		stderr  string
		code    int
	}{
		{"install", fakeSystemd{installed: service.Installed{Path: unit, Account: true, Changed: true}}, "service install", "install",
			"Created the user and the group liqo-agent.\nWrote " + unit + ".\nThe service starts at boot. To start it now: sudo liqo-agent service start\n", "", 0},
		{"install and start", fakeSystemd{installed: service.Installed{Path: unit, Changed: true, Started: true}}, "service install --start", "install and start",
			"Wrote " + unit + ".\nThe service is running, and starts at boot.\n", "", 0},
		{"install again", fakeSystemd{installed: service.Installed{Path: unit}}, "service install", "install",
			unit + " is up to date.\nThe service starts at boot. To start it now: sudo liqo-agent service start\n", "", 0},
		{"install over another", fakeSystemd{installed: service.Installed{Path: unit, Changed: true, Replaced: unit + ".old"}}, "service install", "install",
			"Replaced " + unit + "; the old unit is " + unit + ".old.\nThe service starts at boot. To start it now: sudo liqo-agent service start\n", "", 0},
		{"install as nobody", fakeSystemd{err: &service.Error{Kind: service.ErrNotRoot, Message: "only root may change services", Advice: "sudo liqo-agent service install"}},
			"service install", "install", "", "liqo-agent: only root may change services\ntry: sudo liqo-agent service install\n", command.ExitError},
		{"uninstall", fakeSystemd{}, "service uninstall", "uninstall",
			"Removed the service. The state stays in /var/lib/liqo-agent, the configuration in /etc/liqo-agent.\n", "", 0},
		{"uninstall nothing", fakeSystemd{err: missing}, "service uninstall", "uninstall", "",
			"liqo-agent: the service is not installed\ntry: sudo liqo-agent service install --start\n", command.ExitNotFound},
		{"start", fakeSystemd{}, "service start", "start", "The service is running.\n", "", 0},
		{"start nothing", fakeSystemd{err: missing}, "service start", "start", "",
			"liqo-agent: the service is not installed\ntry: sudo liqo-agent service install --start\n", command.ExitNotFound},
		{"stop", fakeSystemd{}, "service stop", "stop", "The service is stopped.\n", "", 0},
		{"restart", fakeSystemd{}, "service restart", "restart", "The service is running.\n", "", 0},
		{"status of one that runs", fakeSystemd{status: service.Status{Installed: true, Running: true, PID: 7, Enabled: true, Text: "barn: 2 peers\x1b[31m"}}, "service status", "",
			"The service is running (process 7), and starts at boot.\nbarn: 2 peers", "", 0},
		{"status of one that does not", fakeSystemd{status: service.Status{Installed: true, State: "inactive"}}, "service status", "", "",
			"liqo-agent: the service is not running, and does not start at boot\ntry: sudo liqo-agent service start, or journalctl -u liqo-agent -n 50 --no-pager\n", command.ExitNotRunning},
		{"status of nothing", fakeSystemd{}, "service status", "", "", "liqo-agent: the service is not installed\ntry: sudo liqo-agent service install --start\n", command.ExitNotFound},
		{"status without systemd", fakeSystemd{err: &service.Error{Kind: service.ErrNoSystemd, Message: "no systemd", Advice: "liqo-agent run"}}, "service status", "", "",
			"liqo-agent: no systemd\ntry: liqo-agent run\n", command.ExitError},
		{"status as JSON", fakeSystemd{status: service.Status{Installed: true, State: "failed", Result: "watchdog"}}, "service status -o json", "",
			"{\n  \"installed\": true,\n  \"running\": false,\n  \"state\": \"failed\",", "liqo-agent: the service is not running: it failed (watchdog)", command.ExitNotRunning},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := tc.machine.run(strings.Fields(tc.args)...)
			if did := strings.Join(tc.machine.did, ", "); did != tc.did {
				t.Errorf("did %q, want %q", did, tc.did)
			}
			if !strings.HasPrefix(stdout, tc.stdout) || tc.stdout == "" && stdout != "" || strings.Contains(stdout, "\x1b") {
				t.Errorf("wrote\n%s\nwant\n%s", stdout, tc.stdout)
			}
			if !strings.HasPrefix(stderr, tc.stderr) || tc.stderr == "" && stderr != "" {
				t.Errorf("said\n%s\nwant\n%s", stderr, tc.stderr)
			}
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
		})
	}
}

func TestServiceUnit(t *testing.T) {
	m := &fakeSystemd{err: errors.New("systemd is not needed for that")}
	stdout, stderr, code := m.run("service", "unit")
	if stdout != service.Unit(service.PackagedPath) || stderr != "" || code != 0 {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
	if stdout, _, _ := m.run("service", "unit", "--binary", "/opt/a"); stdout != service.Unit("/opt/a") {
		t.Errorf("with another binary:\n%s", stdout)
	}
}
