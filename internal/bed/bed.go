//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Hang is how long a bed, and the tests that use it, wait for what is to happen at once. It bounds a
// hang and measures nothing: machines are shared and may be several times slower than others, and the kernel has one lock for all
// their networks.
const Hang = 5 * time.Minute

// TB is what a bed needs of the test it belongs to. *testing.T and *testing.B are one; programs
// get one from [Script].
type TB interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	// Fatalf reports a failure and ends the calling goroutine, which must be the test's own.
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Failed() bool
	// Cleanup registers a function to be called, last one first, when the test is over.
	Cleanup(func())
	// Context ends just before the clean-up functions are called.
	Context() context.Context
}

// Bed is a set of LANs and hosts that belongs to one test and ends with it.
type Bed struct {
	t   TB
	dir string
	sw  *namespaces     // where the bridges are
	nl  *netlink.Handle // into sw

	mu        sync.Mutex
	lan       *LAN // the one New makes
	hosts     []*Host
	processes []*Process // in the order in which they were started
	lent      []*loan    // control planes of the pool
	ports     int        // numbers given to switch ports so far
	logs      int        // numbers given to logs so far
}

// New makes a bed with one LAN and no hosts for test t, which takes it down at its end. Several
// beds may exist at the same time and know nothing of each other.
func New(t TB) *Bed {
	t.Helper()
	if os.Getenv(insideEnv) == "" {
		t.Fatalf("bed: not inside its namespaces: call bed.Main in TestMain, or bed.Enter in main")
	}
	b := &Bed{t: t}
	t.Cleanup(b.close)
	var err error
	if b.dir, err = os.MkdirTemp(root, "bed-"); err != nil {
		t.Fatalf("bed: %v", err)
	}
	if b.sw, b.nl, err = newNetwork(unix.CLONE_NEWNET, nil, func() error {
		// The switch must not take part in what happens on its wires.
		return writeSysctls("net/ipv6/conf/default/disable_ipv6", "1")
	}); err != nil {
		t.Fatalf("bed: switch: %v", err)
	}
	b.lan = b.AddLAN("lan")
	return b
}

// newNetwork makes a set of namespaces with a network namespace among them, which is new or shared, and a
// netlink handle into that.
func newNetwork(flags int, shared *os.File, prepare func() error) (*namespaces, *netlink.Handle, error) {
	var handle *netlink.Handle
	ns, err := newNamespaces(flags, shared, func() error {
		if err := prepare(); err != nil {
			return err
		}
		if err := loopbackUp(); err != nil {
			return err
		}
		var err error
		if handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("open netlink: %w", err)
		}
		return nil
	})
	return ns, handle, err
}

// LAN returns the LAN that [New] made.
func (b *Bed) LAN() *LAN { return b.lan }

// Hosts returns the hosts in the order in which they were added.
func (b *Bed) Hosts() []*Host {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*Host(nil), b.hosts...)
}

// close ends everything that runs, last started first, prints the logs if the test failed,
// and takes the hosts and LANs down.
func (b *Bed) close() {
	b.mu.Lock()
	processes, hosts, lent := b.processes, b.hosts, b.lent
	b.mu.Unlock()
	for i := len(processes) - 1; i >= 0; i-- {
		if err := processes[i].Kill(); err != nil {
			b.t.Errorf("bed: %v", err)
		}
	}
	b.keepLogs(processes)
	for _, l := range lent {
		if b.t.Failed() {
			for _, p := range l.apiservers() {
				b.t.Logf("--- kube-apiserver on %s: %s\n%s", l.kube.Host.Name, p.state(), tail(l.log(p), logTail))
			}
		}
		pool.giveBack(l)
	}
	for _, h := range hosts {
		h.nl.Close()
		if err := h.ns.close(); err != nil {
			b.t.Errorf("bed: host %s: %v", h.Name, err)
		}
	}
	if b.sw != nil {
		b.nl.Close()
		if err := b.sw.close(); err != nil {
			b.t.Errorf("bed: switch: %v", err)
		}
	}
	if b.dir != "" {
		if err := os.RemoveAll(b.dir); err != nil {
			b.t.Errorf("bed: %v", err)
		}
	}
}

// keepLogs prints the end of every process's log if the test failed, and copies the logs whole to the
// directory named by LIQO_BED_LOGS if that is set.
func (b *Bed) keepLogs(processes []*Process) {
	dir := os.Getenv("LIQO_BED_LOGS")
	if dir != "" {
		dir = filepath.Join(dir, filepath.Base(b.t.Name())+filepath.Ext(b.dir))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.t.Errorf("bed: LIQO_BED_LOGS: %v", err)
			dir = ""
		}
	}
	for _, p := range processes {
		if p == p.host.anchor {
			continue
		}
		if b.t.Failed() {
			b.t.Logf("--- %s on %s: %s\n%s", p.Name, p.host.Name, p.state(), tail(p.Log(), logTail))
		}
		if dir == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(p.log)), []byte(p.Log()), 0o644); err != nil {
			b.t.Errorf("bed: LIQO_BED_LOGS: %v", err)
		}
	}
}

// How long Poll waits between two calls at first, and at most: what happens soon is noticed at once, and
// waiting for something that takes long keeps the machine free for it. A call that takes long, such as one of a
// program, is not made more than a quarter of the time, as long as that means no more than pollDear between two.
const (
	pollFirst = 5 * time.Millisecond
	pollLast  = 250 * time.Millisecond
	pollDear  = time.Second
)

// Poll calls condition again and again until it returns nil, and returns its last error if ctx ends before
// that.
func Poll(ctx context.Context, condition func() error) error {
	for pause := pollFirst; ; pause = min(pause*5/4, pollLast) {
		began := time.Now()
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(max(pause, min(3*time.Since(began), pollDear))):
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// writeSysctls writes kernel settings, given as pairs of path below /proc/sys and value, in the
// calling thread's network namespace.
func writeSysctls(pairs ...string) error {
	for i := 0; i+1 < len(pairs); i += 2 {
		if err := os.WriteFile("/proc/sys/"+pairs[i], []byte(pairs[i+1]), 0); err != nil {
			return fmt.Errorf("kernel setting: %w", err)
		}
	}
	return nil
}
