package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A reader of an idle database holds the lock, shared, while it reads, which is
// seconds on a slow disk. Who wants to be the one writer waits this long for it.
const (
	lockPatience = 30 * time.Second
	lockPause    = 10 * time.Millisecond
)

// lockFile makes this process the one writer of the database at path. The
// kernel releases the lock when the process ends, however it ends; the file
// stays, because removing it would let two agents lock two different files of
// one name. The context ends the wait for a lock that is held.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	// Readers share the lock, so the group must be able to open it, whatever
	// the umask. Not being its owner is no reason to fail.
	_ = f.Chmod(0o640)
	end := time.Now().Add(lockPatience)
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		pid := lockHolder(f)
		if pid == 0 && time.Now().Before(end) { // a reader, or an agent that is just starting
			select {
			case <-ctx.Done():
				_ = f.Close()
				return nil, fmt.Errorf("wait for the lock of %s: %w", name, ctx.Err())
			case <-time.After(lockPause):
			}
			continue
		}
		_ = f.Close()
		who := "another program"
		if pid != 0 {
			who = fmt.Sprintf("another liqo-agent (pid %d)", pid)
		}
		return nil, &fault{kind: ErrLocked, text: fmt.Sprintf(
			"state database %s is in use by %s: stop that one first, or give this one its own state.dir", path, who)}
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil && !errors.Is(err, syscall.ENOSPC) { // the name is a courtesy, the lock is what counts
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// lockHolder returns the process named in the lock file, or 0 when none is
// named or the named one is gone.
func lockHolder(f *os.File) int {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return 0
	}
	if err := unix.Kill(pid, 0); errors.Is(err, unix.ESRCH) {
		return 0
	}
	return pid
}

// unlockFile releases the lock and takes our name off it.
func unlockFile(f *os.File) error {
	return errors.Join(f.Truncate(0), f.Close())
}

// shareLock holds off a starting agent while an idle database is read. Busy
// reports that an agent is running; then there is nothing to hold. Without a
// lock file nobody is running either.
func shareLock(path string) (f *os.File, busy bool, err error) {
	f, err = os.Open(path + ".lock")
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		return f, false, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, true, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", path+".lock", err)
}
