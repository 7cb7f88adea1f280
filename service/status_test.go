package service

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseStatus(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       Status
		says       string
	}{
		{"running", "LoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\nFragmentPath=/etc/systemd/system/liqo-agent.service\nMainPID=71\n" +
			"StateChangeTimestamp=@1795331000\nNRestarts=2\nResult=success\nStatusText=barn: 3 peers\nMemoryCurrent=41943040\nNewInLaterReleases=x=y\n",
			Status{Installed: true, Running: true, State: "active", SubState: "running", Enabled: true, Path: installedPath, PID: 71,
				Since: time.Unix(1795331000, 0).UTC(), Restarts: 2, Result: "success", Text: "barn: 3 peers", Memory: 41943040},
			"The service is running (process 71, since " + time.Unix(1795331000, 0).Local().Format("2006-01-02 15:04:05") + "), and starts at boot. systemd had to start it again 2 times.\nbarn: 3 peers"},
		{"packaged, reloading", "LoadState=loaded\nActiveState=reloading\nUnitFileState=disabled\nFragmentPath=/usr/lib/systemd/system/liqo-agent.service\nMainPID=71\nMemoryCurrent=[not set]\n",
			Status{Installed: true, Running: true, State: "reloading", Path: packagedPaths[0], Packaged: true, PID: 71},
			"The service is running (process 71), and does not start at boot."},
		{"stopped", "LoadState=loaded\nActiveState=inactive\nSubState=dead\nUnitFileState=enabled\nMainPID=0\nMemoryCurrent=18446744073709551615\nStateChangeTimestamp=\n",
			Status{Installed: true, State: "inactive", SubState: "dead", Enabled: true}, "The service is not running, and starts at boot."},
		{"hung", "LoadState=loaded\nActiveState=activating\nSubState=auto-restart\nUnitFileState=enabled\nResult=watchdog\nNRestarts=1\n",
			Status{Installed: true, State: "activating", SubState: "auto-restart", Enabled: true, Result: "watchdog", Restarts: 1},
			"The service is not running: it failed (watchdog), and systemd starts it again soon, and starts at boot. systemd had to start it again once."},
		{"failed", "LoadState=loaded\nActiveState=failed\nSubState=failed\nResult=exit-code\n",
			Status{Installed: true, State: "failed", SubState: "failed", Result: "exit-code"}, "The service is not running: it failed (exit-code), and does not start at boot."},
		{"starting", "LoadState=loaded\nActiveState=activating\nSubState=start\n",
			Status{Installed: true, State: "activating", SubState: "start"}, "The service is not running: activating, and does not start at boot."},
		{"not there", "LoadState=not-found\nActiveState=inactive\n", Status{State: "inactive"}, "The service is not installed."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseStatus(tc.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if got.String() != tc.says {
				t.Errorf("says %q\nwant %q", got, tc.says)
			}
		})
	}
	if _, err := parseStatus("no such thing\n"); err == nil {
		t.Error("nonsense is taken for an answer")
	}
}

func TestStatusWithoutSystemd(t *testing.T) {
	m := &Manager{booted: func() bool { return false }}
	if _, err := m.Status(t.Context()); err == nil {
		t.Error("there is a status without a systemd")
	}
}
