package resolver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	resolvConf     = "/etc/resolv.conf"
	maxConfSize    = 64 << 10 // bytes that are read
	maxNameServers = 16       // libc takes three
	// racy is how young a file may be when it is read without being read again: within one tick of the
	// file system's clock it may change and look the same.
	racy = 2 * time.Second
)

// conf is what counts of a resolv.conf(5). Search domains, ndots and the like do not: names are
// absolute. Nor do edns0 and trust-ad: EDNS0 is always used, and AD always reported.
type conf struct {
	servers  []netip.Addr
	timeout  time.Duration // 0: not said
	attempts int           // 0: not said
	rotate   bool
	tcp      bool // use-vc
}

// parseConf reads a resolv.conf. What cannot be understood is left out, as libc does: half of a
// configuration is better than none, and libc's readers would still have theirs.
func parseConf(b []byte) conf {
	var c conf
	for line := range bytes.Lines(b) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			addr, err := netip.ParseAddr(fields[1])
			if err != nil || len(c.servers) == maxNameServers {
				continue
			}
			c.servers = append(c.servers, addr)
		case "options":
			for _, option := range fields[1:] {
				c.option(option)
			}
		}
	}
	if len(c.servers) == 0 {
		c.servers = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	return c
}

func (c *conf) option(option string) {
	key, value, _ := strings.Cut(option, ":")
	number := func(most int) (int, bool) {
		n, err := strconv.Atoi(value)
		if errors.Is(err, strconv.ErrRange) && n > 0 {
			return most, true
		}
		return min(max(n, 1), most), err == nil
	}
	switch key {
	case "timeout":
		if n, ok := number(int(maxTimeout / time.Second)); ok {
			c.timeout = time.Duration(n) * time.Second
		}
	case "attempts":
		if n, ok := number(maxAttempts); ok {
			c.attempts = n
		}
	case "rotate":
		c.rotate = true
	case "use-vc":
		c.tcp = true
	}
}

// confFile is a resolv.conf that is read again when it has changed.
type confFile struct {
	path string

	mu    sync.Mutex
	known bool // conf is what the file said at some time
	conf  conf
	stamp stamp // of that file; the zero stamp if it has to be read again
}

// stamp tells one state of a file from another.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// get returns what the file says. A file that is missing says nothing, as for libc. While it cannot
// be read for another reason what it said before counts.
func (f *confFile) get() (conf, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var st unix.Stat_t
	err := unix.Stat(f.path, &st)
	now := stamp{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}
	if err == nil && f.known && now == f.stamp {
		return f.conf, nil
	}
	var b []byte
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errors.New("it is not a regular file")
	}
	if err == nil {
		b, err = readHead(f.path)
	}
	switch {
	case err == nil:
		f.conf, f.known, f.stamp = parseConf(b), true, now
		if time.Since(time.Unix(st.Ctim.Unix())) < racy {
			f.stamp = stamp{}
		}
	case errors.Is(err, fs.ErrNotExist):
		f.conf, f.known, f.stamp = parseConf(nil), true, stamp{}
	case !f.known:
		return conf{}, fmt.Errorf("read the system's name servers: %s: %w", f.path, err)
	}
	return f.conf, nil
}

// readHead reads the first maxConfSize bytes of a file, whole lines only.
func readHead(path string) ([]byte, error) {
	// It is a regular file by now, or was a moment ago: a pipe must not block.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxConfSize+1))
	if err == nil && len(b) > maxConfSize {
		b = b[:bytes.LastIndexByte(b[:maxConfSize], '\n')+1]
	}
	return b, err
}
