package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/agent/control"
)

const (
	socketMode = 0o660
	// maxSocketPath is what fits sockaddr_un.sun_path with its final NUL
	// (unix(7)).
	maxSocketPath = 107
	probeTimeout  = time.Second
)

// socket is a listening unix socket with the file that belongs to it.
type socket struct {
	*net.UnixListener
	path  string
	inode uint64
}

// listenUnix binds path. The socket is made under another name, given its
// mode and group, and then moved into place: nobody can connect to one with
// the wrong permissions, and a stale one is replaced in one step. A socket
// that somebody answers on is left alone (ErrInUse), and so is anything that
// is not a socket.
func listenUnix(ctx context.Context, path, group string) (*socket, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	dir := filepath.Dir(abs)
	temporary := filepath.Join(dir, "."+strconv.Itoa(os.Getpid()))
	if longest := max(len(abs), len(temporary)); longest > maxSocketPath {
		return nil, &control.Error{Message: fmt.Sprintf("control socket %s: the path is %d bytes long, at most %d are allowed", abs, longest, maxSocketPath),
			Advice: "choose a shorter one with --socket or state.socket"}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, &control.Error{Message: fmt.Sprintf("control socket %s: %v", abs, err), Cause: err,
			Advice: "run as root, or choose another place with --socket or state.socket"}
	}
	if err := checkFree(ctx, abs); err != nil {
		return nil, err
	}
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("control socket %s: %w", abs, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, &control.Error{Message: fmt.Sprintf("control socket %s: %v", abs, err), Cause: err,
			Advice: "run as root, or choose another place with --socket or state.socket"}
	}
	l.SetUnlinkOnClose(false)
	s := &socket{UnixListener: l, path: abs}
	if err := s.install(temporary, group); err != nil {
		return nil, errors.Join(fmt.Errorf("control socket %s: %w", abs, err), l.Close(), os.Remove(temporary))
	}
	return s, nil
}

// checkFree returns nil when path may be taken: nothing is there, or a socket
// that nobody listens on.
func checkFree(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("control socket %s: %w", path, err)
	case info.Mode().Type() != os.ModeSocket:
		return &control.Error{Message: fmt.Sprintf("control socket %s: the path exists and is not a socket", path),
			Advice: "move it away, or choose another place with --socket or state.socket"}
	}
	d := net.Dialer{Timeout: probeTimeout}
	conn, err := d.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = conn.Close() // it was only opened to see whether somebody answers
		return &control.Error{Kind: control.ErrInUse, Message: fmt.Sprintf("another agent answers on %s", path),
			Advice: "liqo-agent status, or choose another place with --socket or state.socket"}
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return nil
	}
	return fmt.Errorf("control socket %s: cannot tell whether another agent uses it: %w", path, err)
}

func (s *socket) install(temporary, group string) error {
	if err := os.Chmod(temporary, socketMode); err != nil {
		return err
	}
	if g, err := user.LookupGroup(group); err == nil {
		gid, err := strconv.Atoi(g.Gid)
		if err != nil {
			return fmt.Errorf("group %s has the number %q", group, g.Gid)
		}
		// Only root and members of the group may give a file to it. For
		// anybody else the socket simply stays theirs.
		if err := os.Chown(temporary, -1, gid); err != nil && !errors.Is(err, os.ErrPermission) {
			return err
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(temporary, &st); err != nil {
		return err
	}
	s.inode = st.Ino
	return os.Rename(temporary, s.path)
}

// Close stops listening and removes the file, unless it is no longer ours.
func (s *socket) Close() error {
	err := s.UnixListener.Close()
	var st unix.Stat_t
	if unix.Lstat(s.path, &st) == nil && st.Ino == s.inode {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}
