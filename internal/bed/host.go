//go:build linux

package bed

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// clusterBridge leads to the pods of a box. With K3s, it has the same address on every one: the first node of every
// cluster has the pod network 10.42.0.0/24, unless somebody told it another one.
const clusterBridge = "cni0"

// podCable is the end of the cable in the bridge.
const podCable = "veth1"

// overlays are the directories of which every host has a copy-on-write view of its own.
var overlays = []string{"/etc", "/var/lib", "/usr/local"}

// Host is one box. Its methods may be called from any goroutine, except those that end the test when
// they fail.
type Host struct {
	// Name is the host's name on the bed and its hostname.
	Name string
	// Pods are the ranges of the pods of the host's cluster, of which the host is the first node.
	Pods Ranges

	bed    *Bed
	dir    string // its files, visible in all namespaces
	ns     *namespaces
	nl     *netlink.Handle
	anchor *Process         // holds the namespaces open for others by its process ID
	links  map[string]*Link // guarded by bed.mu
}

// AddHost adds a host with a link eth0 on the bed's first LAN. The prefix is its IPv4 address, such as
// "10.77.0.1/24"; empty means none yet.
func (b *Bed) AddHost(name, prefix string) *Host {
	b.t.Helper()
	h, err := b.addHost(HostSpec{Name: name}, nil)
	if err == nil {
		_, err = h.addLink(b.lan, "eth0", prefix)
	}
	if err != nil {
		b.t.Fatalf("bed: host %s: %v", name, err)
	}
	return h
}

// addHost adds a host without a link. If network is not nil, it is the host's network namespace.
func (b *Bed) addHost(spec HostSpec, network *os.File) (*Host, error) {
	h := &Host{Name: spec.Name, Pods: spec.Pods, bed: b, dir: filepath.Join(b.dir, spec.Name), links: map[string]*Link{}}
	if h.Pods == nil {
		h.Pods = k3sRanges
	}
	var err error
	if h.ns, h.nl, err = newNetwork(unix.CLONE_NEWUTS|unix.CLONE_NEWNET|unix.CLONE_NEWNS, network, h.furnish); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.hosts = append(b.hosts, h)
	b.mu.Unlock()
	if h.anchor, err = h.start(Cmd{Name: "anchor", Args: []string{"sleep", "infinity"}}); err != nil {
		return nil, err
	}
	if err := h.addClusterBridge(); err != nil {
		return nil, fmt.Errorf("%s: %w", clusterBridge, err)
	}
	return h, nil
}

// furnish makes the host's own files inside its fresh namespaces.
func (h *Host) furnish() error {
	machineID := make([]byte, 16)
	if _, err := rand.Read(machineID); err != nil {
		return fmt.Errorf("machine-id: %w", err)
	}
	files := map[string]string{
		"/etc/hostname":   h.Name + "\n",
		"/etc/hosts":      "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 " + h.Name + "\n",
		"/etc/machine-id": hex.EncodeToString(machineID) + "\n",
	}
	for path, content := range files {
		if err := writeFile(filepath.Join(h.upper("/etc"), filepath.Base(path)), content); err != nil {
			return err
		}
	}
	bin := filepath.Join(h.upper("/usr/local"), "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for name, target := range map[string]string{"kubectl": "kubectl", "liqo-agent": "liqo-agent"} {
		path, err := binaryPath(target)
		if err != nil {
			return err
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	for _, dir := range overlays {
		if err := h.mountOverlay(dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{"run", "home"} {
		if err := os.Mkdir(filepath.Join(h.dir, dir), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount(filepath.Join(h.dir, "run"), "/run", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	// What /sys shows of the network belongs to the namespace it was mounted in.
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if err := unix.Sethostname([]byte(h.Name)); err != nil {
		return fmt.Errorf("set the hostname: %w", err)
	}
	return writeSysctls(
		// As systemd sets it: removing one of several addresses must not take others along.
		"net/ipv4/conf/all/promote_secondaries", "1",
		// Nobody else has our addresses; waiting a second to find that out only makes tests slow.
		"net/ipv6/conf/all/accept_dad", "0",
		"net/ipv6/conf/default/accept_dad", "0",
		// There is no router either.
		"net/ipv6/conf/default/router_solicitations", "0",
	)
}

// upper is where a host's changes to an overlaid directory are kept.
func (h *Host) upper(dir string) string {
	return filepath.Join(h.dir, "overlay", strings.ReplaceAll(dir, "/", "-"), "upper")
}

func (h *Host) mountOverlay(dir string) error {
	upper := h.upper(dir)
	work := filepath.Join(filepath.Dir(upper), "work")
	for _, d := range []string{upper, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	options := "lowerdir=" + dir + ",upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", dir, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount an overlay on %s: %w", dir, err)
	}
	return nil
}

// addClusterBridge makes the pod network's bridge with one pod's cable in it, without
// which it would have no carrier.
func (h *Host) addClusterBridge() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = clusterBridge
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := h.nl.LinkAdd(bridge); err != nil {
		return err
	}
	attrs = netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = "veth0", bridge.Index
	cable := &netlink.Veth{LinkAttrs: attrs, PeerName: podCable}
	if err := h.nl.LinkAdd(cable); err != nil {
		return err
	}
	pod, err := h.nl.LinkByName(cable.PeerName)
	if err != nil {
		return err
	}
	for _, link := range []netlink.Link{cable, pod, bridge} {
		if err := h.nl.LinkSetUp(link); err != nil {
			return err
		}
	}
	l := &Link{Name: clusterBridge, host: h}
	for _, gateway := range h.Pods.Node().gateways() {
		if err := l.addAddress(gateway.String()); err != nil {
			return err
		}
	}
	return l.waitFor(usable)
}

// Do runs fn inside the host: files it opens are the host's, sockets it creates stay in the host's
// network for good. Only the goroutine it is called on is there, so fn must not leave work to
// goroutines: net.ListenPacket and dialing one literal address are fine, dialing a name is not.
func (h *Host) Do(fn func() error) error {
	if err := h.ns.do(fn); err != nil {
		return fmt.Errorf("on host %s: %w", h.Name, err)
	}
	return nil
}

// DialContext connects from the host to a literal address. It fits http.Transport and rest.Config.
func (h *Host) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := h.Do(func() error {
		var err error
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Path returns a path under which every process of the bed sees the file that the host sees at the
// given absolute path.
func (h *Host) Path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(h.anchor.PID()), "root", path)
}

// WriteFile writes a file of the host, and makes the directories that lead to it.
func (h *Host) WriteFile(path, content string) {
	h.bed.t.Helper()
	if err := h.Do(func() error { return writeFile(path, content) }); err != nil {
		h.bed.t.Fatalf("bed: %v", err)
	}
}

// MachinePID returns the process ID under which the machine outside of the bed knows a process of the
// host that lives as long as it does: what `nsenter --target` needs.
func (h *Host) MachinePID() (int, error) {
	// Seen from the machine, /proc/PID/status lists a process's IDs in all PID namespaces, the
	// innermost last; the namespace itself tells beds apart.
	ours, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return 0, err
	}
	outside := "/proc/self/fd/" + strconv.Itoa(int(machineProc.Fd()))
	entries, err := os.ReadDir(outside)
	if err != nil {
		return 0, fmt.Errorf("list the machine's processes: %w", err)
	}
	want := strconv.Itoa(h.anchor.PID())
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// Processes of others may end or be unreadable meanwhile.
		theirs, err := os.Readlink(filepath.Join(outside, e.Name(), "ns/pid"))
		if err != nil || theirs != ours {
			continue
		}
		status, err := os.ReadFile(filepath.Join(outside, e.Name(), "status"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
				if f := strings.Fields(ids); len(f) > 0 && f[len(f)-1] == want {
					return pid, nil
				}
			}
		}
	}
	return 0, fmt.Errorf("host %s: no process of the machine is process %s here", h.Name, want)
}

func writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	err := os.WriteFile(path, []byte(content), 0o644)
	if errors.Is(err, fs.ErrPermission) {
		// Without root, files of the machine's root can only be replaced.
		if err := os.Remove(path); err != nil {
			return err
		}
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	return err
}

// Binary returns the path of a program that make builds, such as liqo-agent or kubebox. A missing one
// fails the test: a bed without its programs proves nothing.
func Binary(t TB, name string) string {
	t.Helper()
	path, err := BinaryPath(name)
	if err != nil {
		t.Fatalf("bed: %v", err)
	}
	return path
}

// BinaryPath is where make puts a program: LIQO_BIN if set, or else bin in the nearest directory
// above the working directory that holds the module's go.mod. If it is not there, the error says how to build it.
func BinaryPath(name string) (string, error) {
	path, err := binaryPath(name)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		target := "bin/" + name
		if name == "liqo-agent" {
			target = "build"
		}
		return "", fmt.Errorf("%w: run `make %s`", err, target)
	}
	return path, nil
}

// binaryPath is BinaryPath of what need not be there.
func binaryPath(name string) (string, error) {
	if dir := os.Getenv("LIQO_BIN"); dir != "" {
		return filepath.Abs(filepath.Join(dir, name))
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "bin", name), nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the working directory: run in the source tree, " +
				"or set LIQO_BIN to the directory of the programs")
		}
	}
}

// deadlineFrom returns ctx with a deadline if it has none.
func deadlineFrom(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}
