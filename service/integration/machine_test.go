package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	systemdPath = "/lib/systemd/systemd"
	// The child's job: the control group to boot in, and an empty directory for its files.
	groupVariable = "LIQO_TEST_BOOT_GROUP"
	filesVariable = "LIQO_TEST_BOOT_FILES"
	groupPrefix   = "liqo-service-test-"
)

func TestMain(m *testing.M) {
	if group := os.Getenv(groupVariable); group != "" {
		fmt.Fprintln(os.Stderr, "boot:", boot(group, os.Getenv(filesVariable))) // it returns only if it fails
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// machine is a systemd with its namespaces.
type machine struct {
	t   *testing.T
	pid int
}

// needs skips the test, with the reason, where systemd cannot be booted.
func needs(t *testing.T) (cgroups string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("booting systemd in namespaces takes root")
	}
	for _, program := range []string{systemdPath, "/usr/bin/nsenter", "/usr/bin/systemctl", "/usr/bin/journalctl"} {
		if _, err := os.Stat(program); err != nil {
			t.Skipf("this machine has no systemd to boot: %v", err)
		}
	}
	cgroups, err := unifiedCgroups()
	if err != nil {
		t.Skipf("systemd needs a control group of version 2 to boot in: %v", err)
	}
	return cgroups
}

// unifiedCgroups is where the hierarchy of version 2 is mounted, and may be written to.
func unifiedCgroups() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if !ok || !strings.HasPrefix(after, "cgroup2 ") || len(fields) < 6 {
			continue
		}
		if err := unix.Access(fields[4], unix.W_OK); err != nil {
			return "", fmt.Errorf("%s: %w", fields[4], err)
		}
		return fields[4], nil
	}
	return "", errors.New("none is mounted")
}

// newMachine boots a machine that ends with the test.
func newMachine(t *testing.T) *machine {
	t.Helper()
	cgroups := needs(t)
	leftovers(cgroups)
	group := filepath.Join(cgroups, groupPrefix+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("no control group can be made here: %v", err)
	}
	var said bytes.Buffer
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{groupVariable + "=" + group, filesVariable + "=" + t.TempDir(), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	// Pdeathsig is about the thread that starts the process.
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	if err := cmd.Start(); err != nil {
		remove(group)
		t.Skipf("namespaces cannot be made here: %v", err)
	}
	m := &machine{t: t, pid: cmd.Process.Pid}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the journal:\n%s", m.try("journalctl", "--no-pager", "-o", "short-monotonic"))
		}
		_ = cmd.Process.Kill() // it may have ended by itself
		<-ended
		remove(group)
	})
	deadline := time.Now().Add(2 * time.Minute)
	for {
		select {
		case err := <-ended:
			ended <- err
			t.Skipf("systemd does not boot here: %v\n%s", err, said.String())
		case <-time.After(50 * time.Millisecond):
		}
		// running, or degraded by some unit of no interest.
		if state := strings.TrimSpace(m.try("systemctl", "is-system-running")); state == "running" || state == "degraded" {
			return m
		} else if time.Now().After(deadline) {
			t.Fatalf("systemd has not booted after two minutes: %s\n%s\n%s", state, m.try("systemctl", "list-jobs", "--no-pager"), said.String())
		}
	}
}

// leftovers removes the control groups of earlier runs that were killed.
func leftovers(cgroups string) {
	old, err := filepath.Glob(filepath.Join(cgroups, groupPrefix+"*"))
	if err != nil {
		return // the pattern is fixed
	}
	for _, group := range old {
		if pid := strings.TrimPrefix(filepath.Base(group), groupPrefix); pid != "" {
			if _, err := os.Stat("/proc/" + pid); errors.Is(err, fs.ErrNotExist) {
				remove(group)
			}
		}
	}
}

// remove removes a control group with all below. Its processes are dead or about to be.
func remove(group string) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		var groups []string
		_ = filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				groups = append(groups, path)
			}
			return nil // what is gone needs no removing
		})
		for i := len(groups) - 1; i >= 0; i-- {
			_ = unix.Rmdir(groups[i]) // looked at again below
		}
		if _, err := os.Stat(group); errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// boot is the first process of the namespaces: it makes the machine's view of the files, and becomes systemd.
func boot(group, base string) error {
	runtime.LockOSThread() // namespaces belong to threads, and this one becomes the process
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("control group namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	root, err := files(base)
	if err != nil {
		return err
	}
	if err := pristine(root); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := os.Mkdir("run/old", 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "run/old"); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/run/old", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	if err := unix.Sethostname([]byte("barn")); err != nil {
		return err
	}
	environ := []string{"container=liqo-test", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return unix.Exec(systemdPath, []string{systemdPath, "--system", "--log-target=journal", "--show-status=no"}, environ)
}

// files mounts a copy-on-write view of this machine's files below base, with what a booting system finds, and returns
// where. All of it is in memory, and seen by nobody else.
func files(base string) (string, error) {
	if err := unix.Mount("tmpfs", base, "tmpfs", 0, "mode=755"); err != nil {
		return "", fmt.Errorf("memory for the files: %w", err)
	}
	for _, dir := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			return "", err
		}
	}
	root := filepath.Join(base, "root")
	options := fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s", filepath.Join(base, "upper"), filepath.Join(base, "work"))
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		return "", fmt.Errorf("copy-on-write view of /: %w", err)
	}
	for _, m := range []struct {
		kind, at, options string
		flags             uintptr
	}{
		{"proc", "proc", "", 0}, {"sysfs", "sys", "", unix.MS_RDONLY}, {"cgroup2", "sys/fs/cgroup", "", 0},
		{"tmpfs", "run", "mode=755", 0}, {"tmpfs", "tmp", "mode=1777", 0}, {"tmpfs", "dev", "mode=755", 0},
	} {
		if err := unix.Mount(m.kind, filepath.Join(root, m.at), m.kind, unix.MS_NOSUID|m.flags, m.options); err != nil {
			return "", fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	// The kernel's settings are this machine's.
	for _, path := range []string{"proc/sys", "proc/sysrq-trigger"} {
		at := filepath.Join(root, path)
		if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
			continue // not every kernel has both
		}
		if err := unix.Mount(at, at, "", unix.MS_BIND, ""); err != nil {
			return "", fmt.Errorf("mount %s: %w", path, err)
		}
		if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return "", fmt.Errorf("mount %s read-only: %w", path, err)
		}
	}
	for _, device := range []string{"null", "zero", "full", "random", "urandom", "tty", tunDevice} {
		if _, err := os.Stat("/dev/" + device); device == tunDevice && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		at := filepath.Join(root, "dev", device)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, nil, 0o666)); err != nil {
			return "", err
		}
		if err := unix.Mount("/dev/"+device, at, "", unix.MS_BIND, ""); err != nil {
			return "", fmt.Errorf("device %s: %w", device, err)
		}
	}
	for _, dir := range []string{"shm", "pts"} {
		if err := os.Mkdir(filepath.Join(root, "dev", dir), 0o755); err != nil {
			return "", err
		}
	}
	if err := unix.Mount("devpts", filepath.Join(root, "dev/pts"), "devpts", 0, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return "", fmt.Errorf("mount dev/pts: %w", err)
	}
	return root, os.Symlink("pts/ptmx", filepath.Join(root, "dev/ptmx"))
}

// pristine takes away what this machine has of its own: units that are enabled, and an agent.
func pristine(root string) error {
	gone := []string{"etc/systemd/system", "etc/liqo-agent", "etc/rancher", "var/lib/liqo-agent", "usr/bin/liqo-agent", "usr/local/bin/liqo-agent",
		"lib/systemd/system/liqo-agent.service", "var/log/journal"}
	// What the distribution has pulled in at boot is for real hardware.
	for _, target := range []string{"sysinit", "local-fs", "multi-user", "basic", "sockets", "timers", "graphical", "initrd-root-device", "remote-fs"} {
		gone = append(gone, "lib/systemd/system/"+target+".target.wants")
	}
	for _, path := range gone {
		if err := os.RemoveAll(filepath.Join(root, path)); err != nil {
			return err
		}
	}
	for _, file := range []string{"passwd", "group", "shadow", "gshadow"} {
		if err := withoutLine(filepath.Join(root, "etc", file), "liqo-agent:"); err != nil {
			return err
		}
	}
	units := filepath.Join(root, "etc/systemd/system")
	for _, link := range [][2]string{
		{"/lib/systemd/system/multi-user.target", "default.target"},
		{"/lib/systemd/system/systemd-journald.service", "sysinit.target.wants/systemd-journald.service"},
		{"/dev/null", "systemd-udevd.service"}, {"/dev/null", "systemd-logind.service"}, {"/dev/null", "systemd-remount-fs.service"},
		{"/dev/null", "systemd-journald-audit.socket"}, {"/dev/null", "dbus.service"}, {"/dev/null", "dbus.socket"},
	} {
		at := filepath.Join(units, link[1])
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(link[0], at); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc/hostname"), []byte("barn\n"), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "etc/machine-id"), []byte("0123456789abcdef0123456789abcdef\n"), 0o444)
}

// withoutLine drops the lines of a file that begin with prefix.
func withoutLine(path, prefix string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var kept strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, prefix) {
			kept.WriteString(line)
		}
	}
	info, err := os.Stat(path)
	if err != nil || kept.Len() == len(text) {
		return err
	}
	return os.WriteFile(path, []byte(kept.String()), info.Mode())
}

// command is a program to be run in the machine, as root.
func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(m.pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"}
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "SYSTEMD_COLORS=0", "SYSTEMD_PAGER="}
	return cmd
}

// run runs a program and returns what it wrote, to both outputs, and its exit code.
func (m *machine) run(args ...string) (string, int) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := m.command(ctx, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatalf("%v: %v", args, err)
	}
	if exit != nil {
		return string(out), exit.ExitCode()
	}
	return string(out), 0
}

// try is run for those who do not care whether it works.
func (m *machine) try(args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := m.command(ctx, args...).CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	return string(out)
}

// must runs a program that has to succeed.
func (m *machine) must(args ...string) string {
	m.t.Helper()
	out, code := m.run(args...)
	if code != 0 {
		m.t.Fatalf("%s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// path is where the test finds a file of the machine.
func (m *machine) path(file string) string { return fmt.Sprintf("/proc/%d/root%s", m.pid, file) }

// write writes a file of the machine.
func (m *machine) write(file, content string, mode os.FileMode) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.path(file)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.path(file), []byte(content), mode); err != nil {
		m.t.Fatal(err)
	}
}

// until waits for a condition, and fails with what it last said.
func (m *machine) until(what string, holds func() (bool, string)) {
	m.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		ok, said := holds()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("it never was so: %s: %s", what, said)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
