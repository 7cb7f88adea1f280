//go:build linux

package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	etcdControl = "http://127.0.0.1:2381"

	// forgetting is how long an API server may go on applying admission policies and webhooks that are
	// deleted: it looks at them anew each second.
	forgetting = 2 * time.Second

	// hearing is how long what watches the store may take to hear of a change.
	hearing = 300 * time.Millisecond
)

// pool has the control planes that the tests of this process share. Starting one takes seconds of processor
// time, putting one back to how it was takes none. It ends with the process, as all that runs in its
// namespaces does.
var pool = &planes{}

// planes lends control planes to one test after another.
type planes struct {
	mu       sync.Mutex
	bed      *Bed          // where they run
	idle     []*plane      // stopped
	cleaning int           // how many will be idle in a moment
	waiting  int           // how many takers wait for those
	changed  chan struct{} // closed when one of these changes
	started  int
	prepare  func(ctx context.Context, k *Kube) error // nil: there is nothing to prepare
}

// Prepare has with called for each control plane that the pool starts from now on, again until it succeeds. What it writes there
// is there whenever a test borrows the control plane, and is put back like all else. Other control planes, such as those of
// [Bed.StartKubes], are not prepared.
func Prepare(with func(ctx context.Context, k *Kube) error) {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	pool.prepare = with
}

// plane is a control plane in namespaces of its own. Hosts that borrow it have its network namespace.
type plane struct {
	kube   *Kube
	groups []string // API groups of its own
}

// loan is a control plane while a test has it.
type loan struct {
	plane *plane
	kube  *Kube
	begin int64 // where the API server's log began
}

// apiservers returns the process of the API server, and that of the one which the test has started in its place.
func (l *loan) apiservers() []*Process {
	return slices.Compact([]*Process{l.plane.kube.APIServer(), l.kube.APIServer()})
}

// log returns what one of them wrote while it was lent.
func (l *loan) log(p *Process) string {
	text := p.Log()
	if p == l.plane.kube.APIServer() {
		text = text[min(l.begin, int64(len(text))):]
	}
	return text
}

// take returns a control plane that is as if it was new: one that is idle, or soon will be, or a new one.
func (p *planes) take(ctx context.Context, t TB) (*plane, error) {
	p.mu.Lock()
	for len(p.idle) == 0 && p.cleaning > p.waiting {
		p.waiting++
		changed := p.changes()
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		p.mu.Lock()
		p.waiting--
		if ctx.Err() != nil {
			p.mu.Unlock()
			return nil, fmt.Errorf("wait for a control plane: %w", context.Cause(ctx))
		}
	}
	if n := len(p.idle); n > 0 {
		found := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if found.signal(unix.SIGCONT) != nil {
			found.end()
			return p.take(ctx, t)
		}
		return found, nil
	}
	if p.bed == nil {
		p.bed = New(&script{name: "pool", out: os.Stderr, ctx: context.Background()})
	}
	p.started++
	b, name, prepare := p.bed, fmt.Sprintf("plane-%d", p.started), p.prepare
	p.mu.Unlock()
	return startPlane(ctx, b, name, kubebox(t), prepare)
}

// changes returns a channel that is closed at the next change. The caller holds the lock.
func (p *planes) changes() <-chan struct{} {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// giveBack ends a loan, after all that ran on the host has ended. The control plane is put back to how it
// was; one whose API server was killed, stopped or frozen meanwhile, and not started again, ends.
func (p *planes) giveBack(l *loan) {
	if !l.kube.asNew() {
		l.plane.end()
		return
	}
	l.plane.kube.follow(l.kube)
	p.mu.Lock()
	p.cleaning++
	p.mu.Unlock()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), Hang)
		defer cancel()
		err := l.plane.clean(ctx)
		if err == nil {
			// Idle as it is, it takes a hundredth of a processor from those that run tests. It first hears of all that was put back.
			time.Sleep(hearing)
			err = l.plane.signal(unix.SIGSTOP)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "bed: %s is not used again: %v\n", l.plane.kube.Host.Name, err)
			l.plane.end()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cleaning--
		if err == nil {
			p.idle = append(p.idle, l.plane)
		}
		if p.changed != nil {
			close(p.changed)
			p.changed = nil
		}
	}()
}

func startPlane(ctx context.Context, b *Bed, name, kubebox string, prepare func(context.Context, *Kube) error) (*plane, error) {
	h, err := b.addHost(HostSpec{Name: name}, nil)
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", name, err)
	}
	k, err := h.startKube(ctx, kubebox, nil)
	if err != nil {
		return nil, err
	}
	if prepare != nil {
		// An API server that has just started, beside others that do, may not answer in time.
		if err := Poll(ctx, func() error { return prepare(ctx, k) }); err != nil {
			return nil, fmt.Errorf("prepare %s: %w", name, err)
		}
	}
	p := &plane{kube: k}
	// An API server that is ready still writes a few objects of its own.
	if err := Poll(ctx, func() error {
		if _, err := p.store(ctx, "/mark"); err != nil {
			return err
		}
		select {
		case <-time.After(hearing):
		case <-ctx.Done():
		}
		changed, err := p.store(ctx, "/compare")
		if err == nil && len(changed) > 0 {
			err = fmt.Errorf("it still writes %q", changed)
		}
		for _, own := range []string{"/api/v1/namespaces/kube-node-lease", "/api/v1/namespaces/default/services/kubernetes"} {
			if err == nil {
				_, err = k.Request(ctx, http.MethodGet, own, "", nil)
			}
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if p.groups, err = p.served(ctx); err == nil {
		err = h.clearNetwork(ctx) // whoever borrows it brings links
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// store asks the etcd for something, see package main of kube.
func (p *plane) store(ctx context.Context, path string) ([]string, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: p.kube.Host.DialContext, DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, etcdControl+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("etcd: %s: %w: %s", path, err, text)
	}
	var keys []string
	return keys, json.Unmarshal(text, &keys)
}

// served returns the API groups that the API server has.
func (p *plane) served(ctx context.Context) ([]string, error) {
	text, err := p.kube.Request(ctx, http.MethodGet, "/apis", "", nil)
	if err != nil {
		return nil, err
	}
	var list struct{ Groups []struct{ Name string } }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	var names []string
	for _, g := range list.Groups {
		names = append(names, g.Name)
	}
	slices.Sort(names)
	return names, nil
}

// clean puts the control plane and its network back to how they were, and checks that they are.
func (p *plane) clean(ctx context.Context) error {
	if err := p.kube.Host.clearNetwork(ctx); err != nil {
		return err
	}
	policies := false
	if err := Poll(ctx, func() error {
		changed, err := p.store(ctx, "/revert")
		policies = policies || slices.ContainsFunc(changed, func(key string) bool {
			return strings.Contains(key, "/admissionregistration.k8s.io/") || strings.Contains(key, "webhookconfigurations/") || strings.Contains(key, "admissionpolic")
		})
		if err == nil && len(changed) > 0 {
			err = fmt.Errorf("%d keys were different, such as %s", len(changed), changed[0])
		}
		if err != nil {
			return err
		}
		groups, err := p.served(ctx)
		if err == nil && !slices.Equal(groups, p.groups) {
			err = fmt.Errorf("it serves %q", groups)
		}
		return err
	}); err != nil {
		return err
	}
	if policies {
		select {
		case <-time.After(forgetting):
		case <-ctx.Done():
		}
	}
	return nil
}

// signal sends a signal to the control plane's programs.
func (p *plane) signal(s unix.Signal) error {
	return errors.Join(p.kube.etcd.Signal(s), p.kube.apiserver.Signal(s))
}

// end ends the control plane.
func (p *plane) end() {
	b := p.kube.Host.bed
	b.mu.Lock()
	processes := slices.Clone(b.processes)
	b.mu.Unlock()
	for _, process := range slices.Backward(processes) {
		if process.host == p.kube.Host {
			_ = process.Kill() // it ends with the namespaces at the latest
		}
	}
}

// lend makes a host's control plane of an idle one.
func (p *plane) lend(ctx context.Context, h *Host) (*Kube, error) {
	k := p.kube.lent(h)
	if err := k.furnish(); err != nil {
		return nil, fmt.Errorf("host %s: control plane: %w", h.Name, err)
	}
	if err := k.createNode(ctx); err != nil {
		return nil, fmt.Errorf("host %s: create its node: %w", h.Name, err)
	}
	return k, nil
}

// AddCluster adds a host as [Bed.AddHost] does, with a control plane that is ready: see [Bed.AddClusters].
func (b *Bed) AddCluster(ctx context.Context, name, prefix string) *Kube {
	b.t.Helper()
	return b.AddClusters(ctx, HostSpec{Name: name, Prefix: prefix})[0]
}

// HostSpec is a host of a cluster.
type HostSpec struct {
	// Name and Prefix are what [Bed.AddHost] takes.
	Name, Prefix string
	// Pods are the ranges of the cluster's pods, those of K3s without options if nil. A dual-stack cluster has a control
	// plane of its own, because those of the pool have Services of one family, and the host an IPv6 address, too.
	Pods Ranges
}

// AddClusters adds hosts, each with a control plane of the pool that all tests of the process share. It is
// as if it had just been started, and put back to that at the end of the test, or ended if the test
// left its API server killed, stopped or frozen. Without a deadline in ctx, it may take as long as [Hang].
func (b *Bed) AddClusters(ctx context.Context, specs ...HostSpec) []*Kube {
	b.t.Helper()
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	kubes, errs := make([]*Kube, len(specs)), make([]error, len(specs))
	var group sync.WaitGroup
	for i, spec := range specs {
		group.Go(func() { kubes[i], errs[i] = b.addCluster(ctx, spec) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.t.Fatalf("bed: %v", err)
	}
	return kubes
}

func (b *Bed) addCluster(ctx context.Context, spec HostSpec) (*Kube, error) {
	if spec.Pods.dualStack() || onKine(b.t) { // only etcd can put back what a test has changed
		return b.addOwn(ctx, spec)
	}
	p, err := pool.take(ctx, b.t)
	if err != nil {
		return nil, err
	}
	h, err := b.addHost(spec, p.kube.Host.ns.net)
	if err == nil {
		_, err = h.addLink(b.lan, "eth0", spec.Prefix)
	}
	if err != nil {
		p.end()
		return nil, fmt.Errorf("host %s: %w", spec.Name, err)
	}
	begin := int64(len(p.kube.apiserver.Log()))
	k, err := p.lend(ctx, h)
	if err != nil {
		p.end()
		return nil, err
	}
	b.mu.Lock()
	b.lent = append(b.lent, &loan{plane: p, kube: k, begin: begin})
	b.mu.Unlock()
	return k, nil
}

// addOwn adds a host with a control plane of its own, and with an IPv6 address if its cluster is dual-stack.
func (b *Bed) addOwn(ctx context.Context, spec HostSpec) (*Kube, error) {
	h, err := b.addHost(spec, nil)
	var l *Link
	if err == nil {
		l, err = h.addLink(b.lan, "eth0", spec.Prefix)
	}
	var own netip.Prefix
	if err == nil {
		own, err = netip.ParsePrefix(spec.Prefix)
	}
	if err == nil && spec.Pods.dualStack() {
		six := netip.MustParseAddr(lan6).As16()
		copy(six[12:], own.Addr().AsSlice())
		err = l.addAddress(netip.PrefixFrom(netip.AddrFrom16(six), 64).String())
	}
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", spec.Name, err)
	}
	k, err := h.startKube(ctx, kubebox(b.t), nil)
	if err != nil {
		return nil, err
	}
	return k, k.createNode(ctx)
}

// lan6 is the network of the IPv6 addresses of hosts; their last bytes are the IPv4 address.
const lan6 = "fd77::"
