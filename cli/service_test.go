package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/service"
)

// machine is a systemd that does as a test says.
type machine struct {
	installed service.Installed
	status    service.Status
	err       error
	did       []string
}

func (m *machine) do(what string) error {
	m.did = append(m.did, what)
	return m.err
}

func (m *machine) Install(_ context.Context, start bool) (service.Installed, error) {
	what := "install"
	if start {
		what = "install and start"
	}
	return m.installed, m.do(what)
}
func (m *machine) Uninstall(context.Context) error                      { return m.do("uninstall") }
func (m *machine) Start(context.Context) error                          { return m.do("start") }
func (m *machine) Stop(context.Context) error                           { return m.do("stop") }
func (m *machine) Restart(context.Context) error                        { return m.do("restart") }
func (m *machine) Status(context.Context) (service.Status, error)       { return m.status, m.err }
func (m *machine) services() (services, error)                          { return m, nil }
func (m *machine) run(args ...string) (stdout, stderr string, code int) { return m.runIn(nil, args...) }

func (m *machine) runIn(environ []string, args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	app := New(Options{Version: "1.2.3", Stdout: &out, Stderr: &errs, Environ: environ, Now: time.Now})
	app.services = m.services
	err := app.Run(context.Background(), append([]string{Name}, args...))
	code = Report(&errs, err)
	return out.String(), errs.String(), code
}

func TestServiceCommands(t *testing.T) {
	const unit = "/etc/systemd/system/liqo-agent.service"
	missing := &service.Error{Kind: service.ErrNotInstalled, Message: "the service is not installed", Advice: "sudo liqo-agent service install --start"}
	for _, tc := range []struct {
		name    string
		machine machine
		args    string
		did     string
		stdout  string
		stderr  string
		code    int
	}{
		{"install", machine{installed: service.Installed{Path: unit, Account: true, Changed: true}}, "service install", "install",
			"Made the user and the group liqo-agent.\nWrote " + unit + ".\nThe service starts at boot. To start it now: sudo liqo-agent service start\n", "", 0},
		{"install and start", machine{installed: service.Installed{Path: unit, Changed: true, Started: true}}, "service install --start", "install and start",
			"Wrote " + unit + ".\nThe service runs, and starts at boot.\n", "", 0},
		{"install again", machine{installed: service.Installed{Path: unit}}, "service install", "install",
			unit + " is as it should be.\nThe service starts at boot. To start it now: sudo liqo-agent service start\n", "", 0},
		{"install over another", machine{installed: service.Installed{Path: unit, Changed: true, Replaced: unit + ".old"}}, "service install", "install",
			"Replaced " + unit + "; the one from before is " + unit + ".old.\nThe service starts at boot. To start it now: sudo liqo-agent service start\n", "", 0},
		{"install as nobody", machine{err: &service.Error{Kind: service.ErrNotRoot, Message: "only root may change services", Advice: "sudo liqo-agent service install"}},
			"service install", "install", "", "liqo-agent: only root may change services\ntry: sudo liqo-agent service install\n", ExitError},
		{"uninstall", machine{}, "service uninstall", "uninstall",
			"The service is removed. What the agent knows is kept in /var/lib/liqo-agent, its configuration in /etc/liqo-agent.\n", "", 0},
		{"uninstall nothing", machine{err: missing}, "service uninstall", "uninstall", "",
			"liqo-agent: the service is not installed\ntry: sudo liqo-agent service install --start\n", ExitNotFound},
		{"start", machine{}, "service start", "start", "The service runs.\n", "", 0},
		{"start nothing", machine{err: missing}, "service start", "start", "",
			"liqo-agent: the service is not installed\ntry: sudo liqo-agent service install --start\n", ExitNotFound},
		{"stop", machine{}, "service stop", "stop", "The service is stopped.\n", "", 0},
		{"restart", machine{}, "service restart", "restart", "The service runs.\n", "", 0},
		{"status of one that runs", machine{status: service.Status{Installed: true, Running: true, PID: 7, Enabled: true, Text: "barn: 2 peers\x1b[31m"}}, "service status", "",
			"The service is running (process 7), and starts at boot.\nbarn: 2 peers", "", 0},
		{"status of one that does not", machine{status: service.Status{Installed: true, State: "inactive"}}, "service status", "", "",
			"liqo-agent: the service is not running, and does not start at boot\ntry: sudo liqo-agent service start, or journalctl -u liqo-agent -n 50 --no-pager\n", ExitNotRunning},
		{"status of nothing", machine{}, "service status", "", "", "liqo-agent: the service is not installed\ntry: sudo liqo-agent service install --start\n", ExitNotFound},
		{"status without systemd", machine{err: &service.Error{Kind: service.ErrNoSystemd, Message: "no systemd", Advice: "liqo-agent run"}}, "service status", "", "",
			"liqo-agent: no systemd\ntry: liqo-agent run\n", ExitError},
		{"status as JSON", machine{status: service.Status{Installed: true, State: "failed", Result: "watchdog"}}, "service status -o json", "",
			"{\n  \"installed\": true,\n  \"running\": false,\n  \"state\": \"failed\",", "liqo-agent: the service is not running: it failed (watchdog)", ExitNotRunning},
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
	m := &machine{err: errors.New("systemd is not needed for that")}
	stdout, stderr, code := m.run("service", "unit")
	if stdout != service.Unit(service.PackagedPath) || stderr != "" || code != 0 {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
	if stdout, _, _ := m.run("service", "unit", "--binary", "/opt/a"); stdout != service.Unit("/opt/a") {
		t.Errorf("with another binary:\n%s", stdout)
	}
}

// reloads answers a reload as a test says.
type reloads struct {
	answer control.Reload
	err    error
}

func (r reloads) Reload(context.Context) (control.Reload, error) { return r.answer, r.err }
func (r reloads) Generation() int64                              { return r.answer.Generation }

func TestConfigReload(t *testing.T) {
	for _, tc := range []struct {
		name           string
		reloads        reloads
		args           string
		stdout, stderr string
		code           int
	}{
		{"nothing", reloads{}, "", "No setting has changed.\n", "", 0},
		{"some", reloads{answer: control.Reload{Changed: []string{"log.level", "endpoint.listen", "sharing.enable"}, Restart: []string{"endpoint.listen"}}}, "",
			"Changed, and in effect: log.level, sharing.enable\nWaits for a restart of the agent: endpoint.listen\n", "", 0},
		{"later only", reloads{answer: control.Reload{Restart: []string{"endpoint.listen"}}}, "", "Waits for a restart of the agent: endpoint.listen\n", "", 0},
		{"JSON", reloads{answer: control.Reload{Path: "/x", Changed: []string{"log.level"}, Generation: 1}}, "-o json",
			"{\n  \"path\": \"/x\",\n  \"changed\": [\n    \"log.level\"\n  ],\n  \"restart\": [],\n  \"rebuilding\": false,\n  \"generation\": 1\n}\n", "", 0},
		{"bad", reloads{err: &control.Error{Kind: control.ErrInvalid, Message: "the old settings stay in use: bad configuration: x", Advice: "mend the file"}}, "",
			"", "liqo-agent: the old settings stay in use: bad configuration: x\ntry: mend the file\n", ExitError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "agent.sock")
			server := control.NewServer(control.ServerConfig{Path: socket, Backend: &memory{}, Reloader: tc.reloads, Level: new(slog.LevelVar), Logger: slog.New(slog.DiscardHandler)})
			if err := server.Listen(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- server.Run(ctx) }()
			defer func() {
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			stdout, stderr, code := new(machine).runIn([]string{"LIQO_AGENT_STATE_SOCKET=" + socket}, append([]string{"config", "reload"}, strings.Fields(tc.args)...)...)
			if stdout != tc.stdout || stderr != tc.stderr || code != tc.code {
				t.Errorf("exit code %d\n%s--- stderr\n%s", code, stdout, stderr)
			}
		})
	}
	_, stderr, code := new(machine).run("config", "reload", "--socket", filepath.Join(t.TempDir(), "none"))
	if code != ExitNotRunning || !strings.Contains(stderr, "the agent is not running") {
		t.Errorf("without an agent: exit code %d, %s", code, stderr)
	}
}
