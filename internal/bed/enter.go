//go:build linux

package bed

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// insideEnv marks a process that already runs inside the namespaces of a bed.
	insideEnv = "LIQO_BED"
	// root is where the bed keeps its files. Every Linux system has the directory, and nobody
	// keeps a source tree or a Go cache in it that a private tmpfs on top would hide.
	root = "/dev/shm"
	// hostPath is where hosts find programs: their own /usr/local first.
	hostPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// machineProc is the machine's own /proc, held open by the first process before it mounts another one
// on top, to translate process IDs for a person outside.
var machineProc *os.File

// Main runs the tests of a package inside fresh namespaces and exits. Call it from TestMain.
func Main(m interface{ Run() int }) {
	Enter()
	os.Exit(m.Run())
}

// Enter makes a program run inside fresh namespaces: the first call runs the program again there
// with the same arguments, passes signals on, and exits with its exit code; the call made by
// that copy returns. Call it first thing in main.
func Enter() {
	if os.Getenv(insideEnv) == "" {
		code, err := reexec()
		if err != nil {
			fmt.Fprintln(os.Stderr, "bed:", err)
			code = 1
		}
		os.Exit(code)
	}
	if os.Getpid() != 1 {
		return // a further process of a program that has entered already
	}
	if err := furnish(); err != nil {
		fmt.Fprintln(os.Stderr, "bed:", err)
		os.Exit(1)
	}
}

// reexec runs this program again in fresh namespaces and returns its exit code.
func reexec() (int, error) {
	// The copy is to die with this process, and the kernel takes that to mean: with the thread
	// that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  unix.SIGKILL,
		// A group of its own, so that a signal from the terminal arrives once, through this process.
		Setpgid: true,
	}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("create namespaces: %w (run as root, or allow unprivileged user namespaces)", err)
	}
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				// It may just have ended; then there is nobody left to tell.
				_ = cmd.Process.Signal(s)
			case <-done:
				return
			}
		}
	}()
	err = cmd.Wait()
	close(done)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return 0, fmt.Errorf("wait for the copy in its namespaces: %w", err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}

// furnish prepares the fresh namespaces for the first process in them.
func furnish() error {
	var err error
	if machineProc, err = os.OpenFile("/proc", unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		return fmt.Errorf("keep the machine's /proc: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", root, err)
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	if err := os.Setenv("PATH", hostPath); err != nil {
		return fmt.Errorf("set PATH: %w", err)
	}
	return nil
}

// loopbackUp brings up lo in the calling thread's network namespace.
func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	if lo.Attrs().Flags&net.FlagLoopback == 0 {
		return errors.New("lo is not a loopback")
	}
	return nil
}
