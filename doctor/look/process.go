package look

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// PeerPID returns the process that listens on a unix socket, and its user.
func PeerPID(ctx context.Context, socket string) (pid, uid int, err error) {
	d := net.Dialer{Timeout: 2 * time.Second}
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || credErr != nil {
		return 0, 0, errors.Join(err, credErr)
	}
	return int(cred.Pid), int(cred.Uid), nil
}

// Limits are what a process may use up, and what it does. What is unknown is 0.
type Limits struct {
	Files, MaxFiles uint64 // open now; at most
	// Memory is the resident set, MemoryMax the limit of the control group it is in,
	// in bytes; 0 = none.
	Memory, MemoryMax uint64
	// OOMKills counts how often the limit had it killed.
	OOMKills uint64
}

// LimitsOf reads the limits of a process from /proc and the control groups.
func LimitsOf(pid int) (Limits, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	raw, err := readFile(filepath.Join(dir, "limits"))
	if err != nil {
		return Limits{}, fmt.Errorf("read the limits of process %d: %w", pid, err)
	}
	var out Limits
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				out.MaxFiles, _ = strconv.ParseUint(f[0], 10, 64) // "unlimited" is 0
			}
		}
	}
	if fds, err := os.ReadDir(filepath.Join(dir, "fd")); err == nil {
		out.Files = uint64(len(fds))
	}
	if raw, err := readFile(filepath.Join(dir, "status")); err == nil {
		out.Memory = Number(raw, "VmRSS:") << 10
	}
	raw, err = readFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return out, nil // a kernel without control groups limits nothing with them
	}
	if _, group, ok := strings.Cut(strings.TrimSpace(string(raw)), "0::"); ok {
		group = filepath.Join("/sys/fs/cgroup", filepath.Clean("/"+strings.SplitN(group, "\n", 2)[0]))
		if raw, err := readFile(filepath.Join(group, "memory.max")); err == nil {
			out.MemoryMax, _ = strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64) // "max" is 0
		}
		if raw, err := readFile(filepath.Join(group, "memory.events")); err == nil {
			out.OOMKills = Number(raw, "oom_kill")
		}
	}
	return out, nil
}

// Number returns the number behind a name at the beginning of a line, as in
// /proc/meminfo, where it is in KiB; 0 when there is none.
func Number(raw []byte, name string) uint64 {
	for line := range bytes.Lines(raw) {
		if f := strings.Fields(string(line)); len(f) >= 2 && f[0] == name {
			n, _ := strconv.ParseUint(f[1], 10, 64) // 0 is "unknown" here
			return n
		}
	}
	return 0
}

// Memory returns how much memory the machine has and could give to a program now, in
// bytes.
func Memory() (total, available uint64, err error) {
	raw, err := readFile("/proc/meminfo")
	if err != nil {
		return 0, 0, fmt.Errorf("see how much memory there is: %w", err)
	}
	return Number(raw, "MemTotal:") << 10, Number(raw, "MemAvailable:") << 10, nil
}

// ARPTable says how full the kernel's ARP table is, in all network namespaces together.
type ARPTable struct {
	Entries, Most uint64 // Entries that were made by hand need no room
	Forced        bool   // the kernel has had to look for room
}

// ReadARPTable reads it. Only the initial network namespace has it.
func ReadARPTable() (ARPTable, error) {
	var t ARPTable
	raw, err := readFile("/proc/net/stat/arp_cache")
	if err == nil {
		t, err = parseARPTable(raw)
	}
	if err == nil {
		raw, err = readFile("/proc/sys/net/ipv4/neigh/default/gc_thresh3")
	}
	if err == nil {
		t.Most, err = strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	}
	if err != nil {
		return ARPTable{}, fmt.Errorf("see how full the ARP table is: %w", err)
	}
	return t, nil
}

// parseARPTable reads /proc/net/stat/arp_cache: a line of names, and one of hexadecimal numbers for each processor. All of these have the
// same number of entries.
func parseARPTable(raw []byte) (t ARPTable, err error) {
	var names []string
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names[:min(len(names), len(fields))] {
			n, err := strconv.ParseUint(fields[i], 16, 64)
			switch {
			case err != nil:
				return t, err
			case name == "entries":
				t.Entries = n
			case name == "forced_gc_runs":
				t.Forced = t.Forced || n > 0
			}
		}
	}
	return t, nil
}

// Unit is the agent's service as systemd sees it.
type Unit struct {
	Loaded   bool   // there is such a unit
	Active   string // active, inactive, failed, activating, ...
	Enabled  string // enabled, disabled, masked, static, ...
	Result   string // why it ended: success, exit-code, watchdog, oom-kill, ...
	Restarts int    // by itself, since it was started
}

// ErrNoSystemd: this machine was not started by systemd.
var ErrNoSystemd = errors.New("this machine does not run systemd")

// UnitOf asks systemd about a unit.
func UnitOf(ctx context.Context, name string) (Unit, error) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return Unit{}, ErrNoSystemd
	}
	raw, err := Command(ctx, 64<<10, "systemctl", "show", name, "--property=LoadState,ActiveState,UnitFileState,NRestarts,Result")
	if err != nil {
		return Unit{}, err
	}
	return ParseUnit(string(raw)), nil
}

// ParseUnit reads what `systemctl show` writes.
func ParseUnit(text string) Unit {
	var out Unit
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "LoadState":
			out.Loaded = value == "loaded" || value == "masked"
		case "ActiveState":
			out.Active = value
		case "UnitFileState":
			out.Enabled = value
		case "Result":
			out.Result = value
		case "NRestarts":
			out.Restarts, _ = strconv.Atoi(value) // 0 when it is not said
		}
	}
	return out
}
