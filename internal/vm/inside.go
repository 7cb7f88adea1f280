//go:build linux

package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// insideEnv says that a program runs in a machine.
const insideEnv = "LIQO_VM"

// Inside skips a test that runs elsewhere than in a machine.
func Inside(t *testing.T) {
	t.Helper()
	if os.Getenv(insideEnv) == "" {
		t.Skip("runs in the virtual machine only")
	}
}

// Enter is to be called first in TestMain. As the first process of a machine, the program prepares that, runs itself with the
// arguments that it was given, and does not return.
func Enter() {
	if os.Getpid() != 1 || os.Args[0] != initPath || os.Getenv(insideEnv) != "" {
		return
	}
	code, err := run()
	if err != nil {
		fmt.Println("virtual machine:", err)
	}
	fmt.Printf("\n%s%d\n", verdict, code)
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // which ends it
	select {}
}

// run prepares the machine, and returns the exit code of the tests.
func run() (int, error) {
	const failed = 125
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"},
	} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return failed, fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := os.MkdirAll("/dev/shm", 0o755); err != nil {
		return failed, err
	}
	if out, err := exec.Command(busybox, "--install", "-s", "/bin").CombinedOutput(); err != nil {
		return failed, fmt.Errorf("install busybox: %w\n%s", err, out)
	}
	modules, err := filepath.Glob(modulesPath + "/*")
	if err != nil {
		return failed, err
	}
	slices.Sort(modules)
	for _, path := range modules {
		if err := load(path); err != nil {
			return failed, err
		}
	}
	args, err := os.ReadFile(argsPath)
	if err != nil {
		return failed, err
	}
	cmd := exec.Command(initPath, strings.Split(string(args), "\n")...)
	cmd.Env = []string{insideEnv + "=1", "PATH=/bin:/sbin:/usr/bin:/usr/sbin", "HOME=/root", "TMPDIR=/tmp", "LIQO_BIN=/bin"}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return cmd.ProcessState.ExitCode(), err
}

func load(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := unix.InitModule(b, ""); err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENODEV) { // for other processors
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}
