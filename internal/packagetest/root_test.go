package packagetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
)

// root is a copy of this machine's file system that a test may do to as it likes: nothing gets back. No systemd runs in
// it, and the packages are at /mnt.
type root struct {
	t   *testing.T
	dir string
}

func newRoot(t *testing.T) *root {
	t.Helper()
	t.Parallel()
	if !bed.RealRoot() {
		t.Skip("packages make users and give files to them, which takes root on the machine; run the tests as root to have this one")
	}
	m := built(t)
	base, err := os.MkdirTemp("/dev/shm", "root-")
	if err != nil {
		t.Fatal(err)
	}
	r := &root{t: t, dir: filepath.Join(base, "root")}
	for _, name := range []string{"root", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(base, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(r.dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	mount := func(source, target, kind string, flags uintptr, data string) {
		t.Helper()
		if err := unix.Mount(source, r.at(target), kind, flags, data); err != nil {
			t.Fatalf("mount %s on %s: %v", kind, target, err)
		}
	}
	mount("overlay", "/", "overlay", 0, fmt.Sprintf("lowerdir=/,upperdir=%[1]s/upper,workdir=%[1]s/work", base))
	// Without what is mounted below it: the roots of other tests are.
	mount("/dev", "/dev", "", unix.MS_BIND, "")
	mount("proc", "/proc", "proc", 0, "")
	mount("tmpfs", "/run", "tmpfs", 0, "mode=0755")
	mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777")
	mount(filepath.Dir(m.old), "/mnt", "", unix.MS_BIND, "")
	// What the machine has of these, or what its administrator thinks of services, is not what is tested; and manual
	// pages are not indexed, which takes seconds.
	for _, path := range []string{"/var/lib/liqo-agent", "/etc/liqo-agent", "/usr/sbin/policy-rc.d", "/var/lib/man-db/auto-update"} {
		if err := os.RemoveAll(r.at(path)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// at is where a path of the root is for this process.
func (r *root) at(path string) string { return filepath.Join(r.dir, path) }

// try runs a program in the root and returns what it wrote.
func (r *root) try(args ...string) (string, error) {
	cmd := exec.CommandContext(r.t.Context(), "/usr/bin/env", args...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8",
		"DEBIAN_FRONTEND=noninteractive", "TERM=dumb"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: r.dir}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run is try for what has to succeed.
func (r *root) run(args ...string) string {
	r.t.Helper()
	out, err := r.try(args...)
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (r *root) read(path string) string {
	r.t.Helper()
	b, err := os.ReadFile(r.at(path))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

func (r *root) write(path, text string, mode os.FileMode) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(r.at(path)), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.at(path), []byte(text), mode); err != nil {
		r.t.Fatal(err)
	}
}

// exists reports whether there is something at a path, be it a link to nothing.
func (r *root) exists(path string) bool {
	r.t.Helper()
	_, err := os.Lstat(r.at(path))
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return err == nil
}

// want checks which of some paths exist.
func (r *root) want(exist bool, when string, paths ...string) {
	r.t.Helper()
	for _, path := range paths {
		if r.exists(path) != exist {
			r.t.Errorf("%s: %s exists: %v", when, path, !exist)
		}
	}
}

// stat is mode, user and group of a path, as names.
func (r *root) stat(path string) string {
	r.t.Helper()
	return strings.TrimSpace(r.run("stat", "-c", "%a %U:%G", path))
}

const systemctlLog = "/run/systemctl.log"

// fakeSystemd makes programs in the root believe that systemd runs. What it is asked to do is in systemctlLog; a
// service that was started is active until it is stopped.
func (r *root) fakeSystemd() {
	r.t.Helper()
	if err := os.MkdirAll(r.at("/run/systemd/system"), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Remove(r.at("/usr/bin/systemctl")); err != nil {
		r.t.Fatal(err)
	}
	r.write("/usr/bin/systemctl", `#!/bin/sh
verb=
for word; do
	case $word in
	--*) ;;
	*) verb=$word; break ;;
	esac
done
link=/etc/systemd/system/multi-user.target.wants/liqo-agent.service
case $verb in
is-enabled) if [ -L $link ]; then echo enabled; else echo disabled; exit 1; fi ;;
is-active) [ -e /run/active ] ;;
show) echo ;;
*)
	echo "$verb" >>`+systemctlLog+`
	case $verb in # preset: as Debian has it, and Fedora has not
	start | restart) : >/run/active ;;
	stop) rm -f /run/active ;;
	enable | preset) mkdir -p ${link%/*}; ln -sf /lib/systemd/system/liqo-agent.service $link ;;
	disable)
		rm -f $link
		case "$*" in *--now*) rm -f /run/active; echo stop >>`+systemctlLog+` ;; esac
		;;
	esac
	;;
esac
`, 0o755)
}

// asked returns what systemctl was asked to do with the service since the last call. That units have changed is no
// matter, and enabling without starting is looked at by its result.
func (r *root) asked() string {
	r.t.Helper()
	b, err := os.ReadFile(r.at(systemctlLog))
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	r.write(systemctlLog, "", 0o644)
	var verbs []string
	for _, verb := range strings.Fields(string(b)) {
		switch verb {
		case "daemon-reload", "enable", "preset":
		default:
			verbs = append(verbs, verb)
		}
	}
	return strings.Join(verbs, " ")
}

// execAgent is the agent of an image's folder, which is all that it sees.
func execAgent(t *testing.T, image string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/usr/bin/liqo-agent", args...)
	cmd.Path = "/usr/bin/liqo-agent" // in the image
	cmd.Err = nil                    // it need not be on this machine
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin", "HOME=/var/lib/liqo-agent"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: image}
	return cmd
}

// waitFor calls condition until it holds, for half a minute at most, and returns what it last said.
func waitFor(t *testing.T, condition func() (string, bool)) string {
	t.Helper()
	said := ""
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := bed.Poll(ctx, func() error {
		var ok bool
		if said, ok = condition(); !ok {
			return errors.New(said)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return said
}
