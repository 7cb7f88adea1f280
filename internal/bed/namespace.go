//go:build linux

package bed

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespaces are handles that keep a set of namespaces alive and lead into them.
type namespaces struct {
	files []*os.File // in the order in which they are to be entered
	net   *os.File   // the one among them that is a network namespace
}

// kinds of namespaces a host or a switch may have of its own, and their names in /proc.
var kinds = []struct {
	flag int
	name string
}{
	{unix.CLONE_NEWUTS, "uts"},
	{unix.CLONE_NEWNET, "net"},
	{unix.CLONE_NEWNS, "mnt"},
}

// newNamespaces creates the namespaces given by CLONE_NEW* flags and runs prepare inside them. If shared is
// not nil, it is the network namespace among them instead of a new one.
func newNamespaces(flags int, shared *os.File, prepare func() error) (*namespaces, error) {
	ns := &namespaces{}
	fresh := flags
	err := onOwnThread(func() error {
		if shared != nil {
			if err := unix.Setns(int(shared.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter a network namespace: %w", err)
			}
			fresh &^= unix.CLONE_NEWNET
		}
		if err := unix.Unshare(fresh); err != nil {
			return fmt.Errorf("create namespaces: %w", err)
		}
		for _, k := range kinds {
			if flags&k.flag == 0 {
				continue
			}
			f, err := os.Open("/proc/thread-self/ns/" + k.name)
			if err != nil {
				return fmt.Errorf("open the new %s namespace: %w", k.name, err)
			}
			ns.files = append(ns.files, f)
			if k.flag == unix.CLONE_NEWNET {
				ns.net = f
			}
		}
		return prepare()
	})
	if err != nil {
		return nil, errors.Join(err, ns.close())
	}
	return ns, nil
}

// do runs fn on a thread inside the namespaces.
func (ns *namespaces) do(fn func() error) error {
	return onOwnThread(func() error {
		for _, f := range ns.files {
			// Kind 0 lets the kernel take the kind from the handle.
			if err := unix.Setns(int(f.Fd()), 0); err != nil {
				return fmt.Errorf("enter %s: %w", f.Name(), err)
			}
		}
		return fn()
	})
}

func (ns *namespaces) close() error {
	var errs []error
	for _, f := range ns.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// onOwnThread runs fn on a thread that is not used for anything else, neither at the same
// time nor afterwards: it is never unlocked, so the runtime ends it together with the goroutine.
func onOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		// Entering a mount namespace needs a root and working directory that no other thread shares.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			done <- fmt.Errorf("take a thread apart: %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}
