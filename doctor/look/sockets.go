package look

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Holder is a process that has a socket on a port.
type Holder struct {
	PID  int    `json:"pid"`  // 0 = not known
	Name string `json:"name"` // "" = not known: that takes root
	UID  int    `json:"uid"`
}

// Port is a UDP port of this machine.
type Port struct {
	Holders []Holder // without double ones
	// Shared: another program may have it as well, as RFC 6762 section 15.1 wants it.
	Shared bool
	// Unnamed: not all holders could be named, which takes root.
	Unnamed bool
}

// UDPPort says who has a UDP port. Whether it is shared is found out by binding it
// for a moment, as the agent does; no packet is sent.
func UDPPort(ctx context.Context, port uint16) (Port, error) {
	var out Port
	inodes := make(map[uint64]int) // inode -> uid
	for _, file := range []string{"/proc/self/net/udp", "/proc/self/net/udp6"} {
		raw, err := readFile(file)
		if err != nil {
			if errors.Is(err, os.ErrNotExist) {
				continue // no IPv6
			}
			return out, fmt.Errorf("see who has port %d: %w", port, err)
		}
		for inode, uid := range ParseSockets(raw, port) {
			inodes[inode] = uid
		}
	}
	names := holders(inodes)
	for inode, uid := range inodes {
		h, found := names[inode]
		if found && h.PID == os.Getpid() {
			continue // our own look at the group, at the same time
		}
		if !found {
			h, out.Unnamed = Holder{}, true
		}
		h.UID = uid
		if !slices.Contains(out.Holders, h) {
			out.Holders = append(out.Holders, h)
		}
	}
	slices.SortFunc(out.Holders, func(a, b Holder) int { return strings.Compare(a.Name, b.Name)*2 + a.PID - b.PID })
	var err error
	out.Shared, err = bindable(ctx, port)
	return out, err
}

// ParseSockets reads /proc/net/udp and returns the inodes of the sockets that are bound
// to a port, with their users. Lines of another form are passed over.
func ParseSockets(raw []byte, port uint16) map[uint64]int {
	out := make(map[uint64]int)
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 {
			continue
		}
		_, hex, ok := strings.Cut(f[1], ":")
		at, err := strconv.ParseUint(hex, 16, 16)
		uid, err2 := strconv.Atoi(f[7])
		inode, err3 := strconv.ParseUint(f[9], 10, 64)
		if ok && errors.Join(err, err2, err3) == nil && uint16(at) == port {
			out[inode] = uid
		}
	}
	return out
}

// holders finds the processes that have sockets, as far as this user may see.
func holders(inodes map[uint64]int) map[uint64]Holder {
	out := make(map[uint64]Holder)
	if len(inodes) == 0 {
		return out
	}
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return out // then nobody is named
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil {
			continue
		}
		fds, err := os.ReadDir(filepath.Join("/proc", dir.Name(), "fd"))
		if err != nil {
			continue // it has ended, or belongs to somebody else
		}
		for _, fd := range fds {
			to, err := os.Readlink(filepath.Join("/proc", dir.Name(), "fd", fd.Name()))
			if err != nil {
				continue
			}
			number, ok := strings.CutPrefix(to, "socket:[")
			inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64)
			if _, wanted := inodes[inode]; !ok || err != nil || !wanted || out[inode].PID == os.Getpid() {
				continue // a program that this process starts in this moment has its sockets, too, and its name
			}
			name, _ := readFile(filepath.Join("/proc", dir.Name(), "comm")) // else it has none
			out[inode] = Holder{PID: pid, Name: strings.TrimSpace(string(name))}
		}
	}
	return out
}

// bindable reports whether a program that shares the port can have it.
func bindable(ctx context.Context, port uint16) (bool, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		control := c.Control(func(fd uintptr) {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
		})
		return errors.Join(control, err)
	}}
	conn, err := lc.ListenPacket(ctx, "udp4", ":"+strconv.Itoa(int(port)))
	if errors.Is(err, unix.EADDRINUSE) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("try port %d: %w", port, err)
	}
	return true, conn.Close()
}
