package service

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Status is how the service is, as systemd sees it. It is the JSON of service status.
type Status struct {
	Installed bool      `json:"installed"`
	Running   bool      `json:"running"`          // ready, or reloading
	State     string    `json:"state"`            // of systemd: active, reloading, inactive, failed, activating, deactivating
	SubState  string    `json:"subState"`         // of systemd: running, dead, auto-restart, ...
	Enabled   bool      `json:"enabled"`          // starts at boot
	Path      string    `json:"path"`             // of the unit; "" when there is none
	Packaged  bool      `json:"packaged"`         // a package installed it
	PID       int       `json:"pid"`              // 0 when none runs
	Since     time.Time `json:"since,omitzero"`   // when State began; not known before systemd 251
	Restarts  int       `json:"restarts"`         // by systemd, since somebody started it
	Result    string    `json:"result"`           // of the last run: success, exit-code, signal, watchdog, timeout, oom-kill, ...
	Text      string    `json:"text"`             // what the agent says about itself
	Memory    uint64    `json:"memory,omitempty"` // bytes, where systemd counts them
}

// properties are what systemd is asked for.
var properties = []string{"LoadState", "ActiveState", "SubState", "UnitFileState", "FragmentPath", "MainPID",
	"StateChangeTimestamp", "NRestarts", "Result", "StatusText", "MemoryCurrent"}

// Status asks systemd how the service is. It needs no root.
func (m *Manager) Status(ctx context.Context) (Status, error) {
	if !m.booted() {
		return Status{}, noSystemd()
	}
	show := []string{"show", "--property=" + strings.Join(properties, ","), unitName}
	text, err := m.run(ctx, "", "systemctl", append(show, "--timestamp=unix")...)
	if err != nil { // before systemd 251 there is no such format, and Since is not known
		text, err = m.run(ctx, "", "systemctl", show...)
	}
	if err != nil {
		return Status{}, fmt.Errorf("ask systemd about %s: %w", unitName, err)
	}
	return parseStatus(text)
}

// parseStatus reads the output of systemctl show. Unknown properties are left out: there are more with each release.
func parseStatus(text string) (Status, error) {
	values := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			values[name] = value
		}
	}
	if values["ActiveState"] == "" {
		return Status{}, errors.New("systemd's answer does not say whether the service is active")
	}
	st := Status{
		Installed: values["LoadState"] != "not-found", State: values["ActiveState"], SubState: values["SubState"],
		Enabled: strings.HasPrefix(values["UnitFileState"], "enabled"), Path: values["FragmentPath"],
		Result: values["Result"], Text: values["StatusText"],
	}
	st.Running = st.State == "active" || st.State == "reloading"
	st.Packaged = st.Path != "" && st.Path != installedPath
	// What is not set reads as "[not set]", or is left out: zero says so.
	st.PID, _ = strconv.Atoi(values["MainPID"])
	st.Restarts, _ = strconv.Atoi(values["NRestarts"])
	st.Memory = known(values["MemoryCurrent"])
	if seconds, err := strconv.ParseInt(strings.TrimPrefix(values["StateChangeTimestamp"], "@"), 10, 64); err == nil && seconds > 0 {
		st.Since = time.Unix(seconds, 0).UTC()
	}
	return st, nil
}

// known is a number, 0 when systemd does not know it: it then shows the largest one there is, or words.
func known(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 1<<64-1 {
		return 0
	}
	return n
}

// String is the status in a sentence or two.
func (s Status) String() string {
	if !s.Installed {
		return "The service is not installed."
	}
	var b strings.Builder
	switch {
	case s.Running:
		fmt.Fprintf(&b, "The service is running (process %d", s.PID)
		if !s.Since.IsZero() {
			fmt.Fprintf(&b, ", since %s", s.Since.Local().Format("2006-01-02 15:04:05"))
		}
		b.WriteString(")")
	case s.SubState == "auto-restart":
		fmt.Fprintf(&b, "The service is not running: it failed (%s), and systemd starts it again soon", s.Result)
	case s.State == "failed":
		fmt.Fprintf(&b, "The service is not running: it failed (%s)", s.Result)
	case s.State == "inactive":
		b.WriteString("The service is not running")
	default:
		fmt.Fprintf(&b, "The service is not running: %s", s.State)
	}
	if s.Enabled {
		b.WriteString(", and starts at boot.")
	} else {
		b.WriteString(", and does not start at boot.")
	}
	switch {
	case s.Restarts == 1:
		b.WriteString(" systemd had to start it again once.")
	case s.Restarts > 1:
		fmt.Fprintf(&b, " systemd had to start it again %d times.", s.Restarts)
	}
	if s.Text != "" {
		fmt.Fprintf(&b, "\n%s", s.Text)
	}
	return b.String()
}
