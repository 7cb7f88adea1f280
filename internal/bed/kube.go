//go:build linux

package bed

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
)

const (
	// Kubeconfig is where a host keeps the kubeconfig of its administrator: where K3s has it.
	Kubeconfig = "/etc/rancher/k3s/k3s.yaml"

	kubeDir       = "/var/lib/rancher/k3s/server" // the control plane's files
	kubePort      = "6443"
	serviceRange  = "10.43.0.0/16"
	serviceRange6 = "fd43::/112" // beside the other one, in dual-stack clusters
	serviceIP     = "10.43.0.1"  // of the API server, the first of the range

	// readyPause is between two questions whether an API server is ready. Each costs it a millisecond of the
	// seconds that it needs to be so.
	readyPause = 250 * time.Millisecond
)

// ofNoAccount has a program of root's counted as that of another account, which is none of the machine's, with root's
// rights to files. API servers and controllers have six instances of inotify each, schedulers one, of which Linux gives an account
// 128 by default: with twenty of them, a kubelet, which ends without one, would get none. Those that get none ask again later.
var ofNoAccount = []string{"setpriv", "--reuid=64443", "--securebits=+no_setuid_fixup", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"}

// storeEnv says where control planes keep their objects: in etcd, or in kine, as K3s without options does.
const storeEnv = "LIQO_BED_STORE"

// onKine reports whether control planes keep their objects in kine.
func onKine(t TB) bool {
	switch store := os.Getenv(storeEnv); store {
	case "", "etcd":
		return false
	case "kine":
		return true
	default:
		t.Helper()
		t.Fatalf("bed: %s is %q: it can be etcd or kine", storeEnv, store)
		return false
	}
}

// Kube is the Kubernetes control plane of a host: an etcd, or what stands for one, and a kube-apiserver at the host's port
// 6443, set up as K3s does it: no anonymous requests, RBAC, one Node that is the host.
type Kube struct {
	// Host is where it runs.
	Host *Host

	runsOn  *Host  // whose processes its programs are: Host, or the pool's that has lent it
	kubebox string // path
	config  *rest.Config
	client  *http.Client
	flags   []string // of the kube-apiserver

	dir        string            // its files, which are at kubeDir on the host
	serverCA   *authority        // of the API server and the kubelet
	accountKey *ecdsa.PrivateKey // signs the tokens of service accounts
	kubeconfig string            // the administrator's
	since      time.Time         // when it was lent
	auditFrom  int64             // where the audit log began then

	mu        sync.Mutex
	etcd      *Process
	apiserver *Process
	starts    []start
	meddled   bool // its API server was stopped, killed or frozen, and not started since
	spoilt    bool // a test has its etcd
}

// start is one start of an API server. It answers some requests before it is ready.
type start struct{ begin, ready time.Time }

// StartKube starts the host's control plane and waits until it is ready. Without a deadline in ctx, it
// may take as long as [Hang].
func (h *Host) StartKube(ctx context.Context) *Kube {
	h.bed.t.Helper()
	return h.bed.StartKubes(ctx, h)[0]
}

// StartKubes is [Host.StartKube] for several hosts at the same time.
func (b *Bed) StartKubes(ctx context.Context, hosts ...*Host) []*Kube {
	b.t.Helper()
	return b.StartKubesWith(ctx, nil, hosts...)
}

// StartKubesWith is StartKubes with further options of the kube-apiserver.
func (b *Bed) StartKubesWith(ctx context.Context, flags []string, hosts ...*Host) []*Kube {
	b.t.Helper()
	kubebox := kubebox(b.t)
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	kubes, errs := make([]*Kube, len(hosts)), make([]error, len(hosts))
	var group sync.WaitGroup
	for i, h := range hosts {
		group.Go(func() {
			if kubes[i], errs[i] = h.startKube(ctx, kubebox, flags); errs[i] == nil {
				errs[i] = kubes[i].createNode(ctx)
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.t.Fatalf("bed: %v", err)
	}
	return kubes
}

// kubebox returns the path of the programs of a control plane. Tests that have one call kubectl, too.
func kubebox(t TB) string {
	t.Helper()
	Binary(t, "kubectl")
	return Binary(t, "kubebox")
}

// startKube starts a control plane that knows of no node.
func (h *Host) startKube(ctx context.Context, kubebox string, flags []string) (*Kube, error) {
	k := &Kube{Host: h, runsOn: h, kubebox: kubebox, dir: filepath.Join(h.dir, "k3s-server")}
	if err := k.writeFiles(); err != nil {
		return nil, fmt.Errorf("host %s: control plane: %w", h.Name, err)
	}
	k.flags = append(k.flags, flags...)
	var err error
	if k.client, err = rest.HTTPClientFor(k.config); err != nil {
		return nil, fmt.Errorf("host %s: client: %w", h.Name, err)
	}
	if err := k.StartEtcd(); err != nil {
		return nil, err
	}
	return k, k.start(ctx)
}

// lent returns the control plane as that of another host in the same network namespace.
func (k *Kube) lent(h *Host) *Kube {
	return &Kube{
		Host: h, runsOn: k.runsOn, kubebox: k.kubebox, config: k.config, client: k.client, flags: k.flags,
		dir: k.dir, serverCA: k.serverCA, accountKey: k.accountKey, kubeconfig: k.kubeconfig,
		since: time.Now(), auditFrom: k.auditSize(), etcd: k.etcd, apiserver: k.apiserver,
	}
}

// follow takes over what a test has made of the control plane that it was lent.
func (k *Kube) follow(lent *Kube) {
	p := lent.APIServer()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.apiserver = p
}

// asNew reports whether another test can have a control plane that was lent. An API server that was started again is as good as
// the first one. An etcd that was started again does not know what to put back.
func (k *Kube) asNew() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.apiserver.Done():
		return false
	default:
		return !k.meddled && !k.spoilt
	}
}

// StartEtcd starts the etcd, also after it was killed, with what it had stored. It returns at once.
func (k *Kube) StartEtcd() error {
	store := k.program("etcd", "--data-dir="+kubeDir+"/db")
	if onKine(k.Host.bed.t) {
		// It keeps db/state.db in the directory where it runs, with the options that K3s has for SQLite.
		store = Cmd{Args: []string{Binary(k.Host.bed.t, "kine"), "--listen-address=127.0.0.1:2379", "--metrics-bind-address=0"}, Dir: kubeDir}
	}
	p, err := k.Host.start(store)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.etcd = p
	return nil
}

// Etcd returns the process of the etcd that was started last, for a test that kills or freezes it.
func (k *Kube) Etcd() *Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spoilt = true
	return k.etcd
}

// meddle notes that a test does something to the API server.
func (k *Kube) meddle() *Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.meddled = true
	return k.apiserver
}

// program is the command for one of the control plane's programs.
func (k *Kube) program(name string, args ...string) Cmd {
	// Collecting garbage is a third of what a control plane does while it starts. There is memory enough. And with
	// twenty of them on two cores, each does what it has to on one: a fifth of what an idle one costs goes into waking
	// others up. Most of the rest is that an idle API server and its etcd wake up three hundred times a second for their
	// timers, so these may fire together.
	cmd := Cmd{
		Name: name, Args: append([]string{k.kubebox, name}, args...), TimerSlack: 20 * time.Millisecond,
		Env: []string{"GOGC=1000", "GOMEMLIMIT=512MiB", "GOMAXPROCS=1"},
	}
	if RealRoot() && name != "etcd" {
		cmd.Args = append(slices.Clone(ofNoAccount), cmd.Args...)
	}
	return cmd
}

// Start starts the kube-apiserver again after [Kube.Stop] or [Kube.Kill] and waits until it is ready.
func (k *Kube) Start(ctx context.Context) error {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	return k.start(ctx)
}

func (k *Kube) start(ctx context.Context) error {
	begin := time.Now()
	err := k.startOnce(ctx)
	for errors.Is(err, errGaveUp) && ctx.Err() == nil {
		// An API server ends if its hooks need more than their own bounds, as on a machine that starts many at once. K3s is started
		// again by systemd then.
		err = k.startOnce(ctx)
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.starts, k.meddled = append(k.starts, start{begin: begin, ready: time.Now()}), false
	return nil
}

// errGaveUp is the end of an API server before it was ready, because one of its hooks took too long.
var errGaveUp = errors.New("it gave up its start")

var hookFailed = regexp.MustCompile(`PostStartHook "[^"]*" failed`)

func (k *Kube) startOnce(ctx context.Context) error {
	// The Service kubernetes leads to an address that the host has now, as K3s has it after each start. That of the pool, which
	// has no links, is the bridge's, which each host that borrows it has.
	p, err := k.runsOn.start(k.program("kube-apiserver", append(slices.Clone(k.flags), "--advertise-address="+k.runsOn.addresses()[0])...))
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.apiserver = p
	k.mu.Unlock()
	err = k.WaitReady(ctx)
	select {
	case <-p.Done():
		if err != nil && hookFailed.MatchString(p.Log()) {
			return fmt.Errorf("%w: %w", errGaveUp, err)
		}
	default:
	}
	return err
}

// starting reports whether the API server was not ready yet at a time.
func (k *Kube) starting(at time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.starts, func(s start) bool { return at.After(s.begin) && at.Before(s.ready) })
}

// WaitReady waits until the API server reports that it is ready.
func (k *Kube) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := k.APIServer()
	for {
		_, err := k.Request(ctx, http.MethodGet, "/readyz", "", nil)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			cancel(errors.New("it has ended: " + p.state()))
		case <-time.After(readyPause):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return fmt.Errorf("kube-apiserver on %s is not ready: %w", k.Host.Name, errors.Join(err, context.Cause(ctx)))
		}
	}
}

// APIServer returns the process of the kube-apiserver that was started last.
func (k *Kube) APIServer() *Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.apiserver
}

// Stop ends the kube-apiserver in an orderly way. What it stored stays, for [Kube.Start].
func (k *Kube) Stop() error { return k.meddle().Stop() }

// Kill ends the kube-apiserver as a crash does. What it stored stays, for [Kube.Start].
func (k *Kube) Kill() error { return k.meddle().Kill() }

// Freeze makes the kube-apiserver hang: connections are accepted by the kernel and nothing is
// answered.
func (k *Kube) Freeze() error { return k.meddle().Signal(unix.SIGSTOP) }

// Thaw ends a Freeze.
func (k *Kube) Thaw() error { return k.APIServer().Signal(unix.SIGCONT) }

// RESTConfig returns an administrator's configuration for client-go, which works in the test's own
// process although that is not on the host.
func (k *Kube) RESTConfig() *rest.Config { return rest.CopyConfig(k.config) }

// Request sends one request to the API server as administrator and returns the body of an answer with
// status 2xx; any other status is an error.
func (k *Kube) Request(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, k.config.Host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := k.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if answer.StatusCode/100 != 2 {
		return b, fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, bytes.TrimSpace(b))
	}
	return b, nil
}

// Kubectl runs kubectl on the host as administrator and returns its output.
func (k *Kube) Kubectl(ctx context.Context, args ...string) (string, error) {
	return k.Host.Run(ctx, append([]string{"kubectl", "--kubeconfig", Kubeconfig}, args...)...)
}
