package integration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/install"
)

// TestMain has the custom resources in all control planes that tests borrow, as all starts of an agent but the first find
// them. Tests of the first one take them away with bare.
func TestMain(m *testing.M) {
	conn.BridgeKlog(slog.New(slog.DiscardHandler))
	bed.Prepare(func(ctx context.Context, k *bed.Kube) error {
		c, err := kube.New(k.RESTConfig())
		if err != nil {
			return err
		}
		defer c.Close()
		return install.NewKeeper(install.Config{}, nil, c).CRDs(ctx)
	})
	bed.Main(m)
}

const (
	fcPath   = "/apis/discovery.liqo.io/v1alpha1/foreignclusters"
	crdsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	crdPath  = crdsPath + "foreignclusters.discovery.liqo.io"
	cmPath   = "/api/v1/namespaces/liqo/configmaps/cluster-id"
	selfID   = peer.ClusterID("11111111-1111-4111-8111-111111111111")
	barnID   = peer.ClusterID("0558de48-097b-4b7d-ba04-6bd2a0f9d24f")
	jsonMIME = "application/json"
	merge    = "application/merge-patch+json"
)

// startKube returns a control plane that is ready. The test runs beside others: most of its time is waiting.
func startKube(t *testing.T) *bed.Kube {
	t.Helper()
	t.Parallel()
	return bed.New(t).AddCluster(t.Context(), "box", "10.77.0.1/24")
}

// bare takes the custom resources from a control plane.
func bare(t *testing.T, k *bed.Kube) {
	t.Helper()
	for _, manifest := range api.CRDs() {
		path := crdsPath + manifest.Name
		request(t, k, "DELETE", path, "", "")
		awaitGone(t, k, path)
	}
}

// registry is a peering.Registry that tests write to.
type registry struct {
	mu      sync.Mutex
	peers   map[peer.ClusterID]peer.Peer
	held    map[peer.ClusterID]bool
	settled bool
}

func newRegistry() *registry {
	return &registry{peers: make(map[peer.ClusterID]peer.Peer), held: make(map[peer.ClusterID]bool), settled: true}
}

func (r *registry) Hold(id peer.ClusterID, hold bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[id] = hold
}

func (r *registry) Peer(id peer.ClusterID) (peer.Peer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.peers[id]
	return p, ok
}

func (r *registry) IDs() []peer.ClusterID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []peer.ClusterID
	for id := range r.peers {
		out = append(out, id)
	}
	return out
}

func (r *registry) Settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settled
}

func (r *registry) settle(settled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled = settled
}

func (r *registry) put(p peer.Peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peers[p.ID] = p
}

func (r *registry) change(id peer.ClusterID, change func(*peer.Peer)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[id].Clone()
	change(&p)
	r.peers[id] = p
}

func neighbour(n int) peer.Peer {
	id := peer.ClusterID(fmt.Sprintf("%08d-097b-4b7d-ba04-6bd2a0f9d24f", n))
	return peer.Peer{
		ID: id, Name: fmt.Sprintf("box-%d", n), Namespace: "liqo", Source: peer.LAN, Phase: peer.PhasePresent,
		Fingerprint: peer.FingerprintOf([]byte(id)), URL: fmt.Sprintf("https://10.1.%d.%d:6447", n/250, n%250+1), TTL: 2 * time.Minute,
	}
}

func barn() peer.Peer {
	p := neighbour(0)
	p.ID, p.Name = barnID, "barn"
	return p
}

// running is a Controller at work.
type running struct {
	*peering.Controller
	reg        *registry
	decisions  *decisions
	kubeconfig string
	log        *bedtest.Log
	otherIDs   chan peer.ClusterID
	stop       func()
}

// run starts a Controller whose kubeconfig is the file at path.
func run(t *testing.T, path string, reg *registry) *running {
	t.Helper()
	return start(t, path, reg, newDecisions())
}

// start is run with a decision store, which outlives the Controller.
func start(t *testing.T, path string, reg *registry, decisions *decisions) *running {
	t.Helper()
	return startWith(t, path, reg, decisions, func(*peering.Config) {})
}

// startWith is start with other settings.
func startWith(t *testing.T, path string, reg *registry, decisions *decisions, change func(*peering.Config)) *running {
	t.Helper()
	r := &running{reg: reg, decisions: decisions, kubeconfig: path, log: &bedtest.Log{}, otherIDs: make(chan peer.ClusterID, 10)}
	config := peering.Config{
		Kubeconfig: func() string { return path },
		Registry:   reg,
		Identity: func() peer.Identity {
			return peer.Identity{ClusterID: selfID, ClusterName: "self", GuestNamespace: "liqo"}
		},
		OnClusterID: func(id peer.ClusterID) { r.otherIDs <- id },
		Namespace:   "liqo",
		Decisions:   decisions,
		Peers:       nobody{},
		Greeting: func() wire.Greeting {
			return wire.Greeting{Identity: peer.Identity{ClusterID: selfID, ClusterName: "self", GuestNamespace: "liqo"}}
		},
		LostAfter: func() time.Duration { return 15 * time.Minute },
		Logger:    r.log.Logger(),
	}
	change(&config)
	r.Controller = peering.New(config)
	decisions.tells(r.Enqueue)
	test, _, _ := strings.Cut(t.Name(), "/")
	atWork.Store(r, test)
	stop := bedtest.Run(t, r.log, nil, r.Run)
	r.stop = func() {
		atWork.Delete(r)
		stop()
	}
	return r
}

// nobody is a remote.Caller that reaches no peer.
type nobody struct{}

func (nobody) Exchange(context.Context, peer.Target, client.Request) (client.Response, error) {
	return client.Response{}, &client.Error{Reason: client.ReasonUnreachable, Err: errors.New("no peer can be reached in this test")}
}

// put changes the registry and tells the Controller.
func (r *running) put(p peer.Peer) {
	r.reg.put(p)
	r.Enqueue(p.ID)
}

func (r *running) change(id peer.ClusterID, change func(*peer.Peer)) {
	r.reg.change(id, change)
	r.Enqueue(id)
}

// within is bedtest.Within, and says what the Controllers know when that gives up.
func within(t *testing.T, what string, condition func() error) {
	t.Helper()
	held := false
	defer func() {
		if !held {
			explain(t)
		}
	}()
	bedtest.Within(t, what, condition)
	held = true
}

// atWork has, by its running, the name of the test that each Controller is for.
var atWork sync.Map

// explain logs what the Controllers of a test know, and what everybody is waiting for.
func explain(t *testing.T) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	var text strings.Builder
	atWork.Range(func(r, of any) bool {
		if of == test {
			fmt.Fprintf(&text, "--- Controller with %s\n", r.(*running).kubeconfig)
			_ = r.(*running).Explain(&text) // which never fails
		}
		return true
	})
	text.WriteString("--- goroutines\n")
	_ = pprof.Lookup("goroutine").WriteTo(&text, 1)
	t.Log(text.String())
}

// awaitInstalled waits until the agent's own objects are in place. The ConfigMap is the last of them, and comes at any
// time after the connection.
func awaitInstalled(t *testing.T, k *bed.Kube) {
	t.Helper()
	within(t, "the ConfigMap with the cluster ID", func() error {
		_, err := k.Request(t.Context(), "GET", cmPath, "", nil)
		return err
	})
}

// steady waits until the agents write nothing while look has them look at their peer again. What was decided before may
// take several looks, and Events follow later, one after the other: no pause between two writes says that there is no
// other. An agent that writes without a change never gets there.
func steady(t *testing.T, look func(), agents ...*running) {
	t.Helper()
	writes := func() (own, passed uint64) {
		for _, r := range agents {
			s := r.Status()
			own, passed = own+s.Writes, passed+s.PassedWrites
		}
		return own, passed
	}
	within(t, "nothing is written without a change", func() error {
		own, passed := writes()
		for range 2 { // the first that ends may have begun before
			var looks []uint64
			for _, r := range agents {
				looks = append(looks, r.Stats().Reconciled)
			}
			look()
			within(t, "the end of a look", func() error {
				for i, r := range agents {
					if r.Stats().Reconciled == looks[i] {
						return errors.New("not yet")
					}
				}
				return nil
			})
		}
		if o, p := writes(); o != own || p != passed {
			return fmt.Errorf("%d writes, and %d for peers", o-own, p-passed)
		}
		return nil
	})
}

func get(t *testing.T, k *bed.Kube, name string) (*api.ForeignCluster, error) {
	t.Helper()
	text, err := k.Request(t.Context(), "GET", fcPath+"/"+name, "", nil)
	if err != nil {
		return nil, err
	}
	fc := &api.ForeignCluster{}
	return fc, json.Unmarshal(text, fc)
}

func list(t *testing.T, k *bed.Kube) ([]api.ForeignCluster, error) {
	text, err := k.Request(t.Context(), "GET", fcPath, "", nil)
	if err != nil {
		return nil, err
	}
	var out struct{ Items []api.ForeignCluster }
	return out.Items, json.Unmarshal(text, &out)
}

// awaitFC waits until the ForeignCluster is as check wants it.
func awaitFC(t *testing.T, k *bed.Kube, name string, check func(*api.ForeignCluster) error) *api.ForeignCluster {
	t.Helper()
	var fc *api.ForeignCluster
	within(t, "ForeignCluster "+name, func() (err error) {
		if fc, err = get(t, k, name); err != nil {
			return err
		}
		return check(fc)
	})
	return fc
}

func awaitGone(t *testing.T, k *bed.Kube, path string) {
	t.Helper()
	within(t, path+" to be gone", func() error {
		_, err := k.Request(t.Context(), "GET", path, "", nil)
		switch {
		case err == nil:
			return errors.New("it is still there")
		case strings.Contains(err.Error(), "404") || strings.Contains(strings.ToLower(err.Error()), "not found"):
			return nil
		}
		return err
	})
}

func hasURL(url string) func(*api.ForeignCluster) error {
	return func(fc *api.ForeignCluster) error {
		if fc.Spec.AuthURL != url {
			return fmt.Errorf("authUrl is %q, want %q", fc.Spec.AuthURL, url)
		}
		return nil
	}
}

func condition(conditionType string, status api.ConditionStatus) func(*api.ForeignCluster) error {
	return func(fc *api.ForeignCluster) error {
		if c := fc.Condition(conditionType); c == nil || c.Status != status {
			return fmt.Errorf("condition %s is %+v, want %s", conditionType, c, status)
		}
		return nil
	}
}

func request(t *testing.T, k *bed.Kube, method, path, contentType, body string) {
	t.Helper()
	if _, err := k.Request(t.Context(), method, path, contentType, []byte(body)); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

// direct writes a kubeconfig that leads to the API server through a plain TCP
// forward, and returns its path.
func direct(t *testing.T, k *bed.Kube) string {
	t.Helper()
	path, _ := wired(t, k)
	return path
}

// wired is direct, for a test that cuts the line.
func wired(t *testing.T, k *bed.Kube) (path string, l *line) {
	t.Helper()
	path, l = filepath.Join(t.TempDir(), "kubeconfig"), forward(t, k)
	writeKubeconfig(t, path, k.RESTConfig(), l.url)
	return path, l
}

func writeKubeconfig(t *testing.T, path string, config *rest.Config, server string) {
	t.Helper()
	b64 := base64.StdEncoding.EncodeToString
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: default, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: default, user: {client-certificate-data: %q, client-key-data: %q}}]
contexts: [{name: default, context: {cluster: default, user: default}}]
current-context: default
`, server, b64(config.CAData), b64(config.CertData), b64(config.KeyData))
	// Renamed into place, as programs that take care do.
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// line leads from a loopback port of the test to an API server inside its host. For who uses it, the API server is away while it is
// cut. That costs less than another start of that.
type line struct {
	url string

	mu   sync.Mutex
	down bool
	open map[net.Conn]bool
}

// forward returns a line that is not cut.
func forward(t *testing.T, k *bed.Kube) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{url: "https://" + listener.Addr().String(), open: make(map[net.Conn]bool)}
	ctx, cancel := context.WithCancel(context.Background())
	var open sync.WaitGroup
	open.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer near.Close()
				if !l.begin(near) {
					return
				}
				defer l.end(near)
				far, err := k.Host.DialContext(ctx, "tcp", "127.0.0.1:6443")
				if err != nil {
					return
				}
				defer far.Close()
				stop := context.AfterFunc(ctx, func() { near.Close(); far.Close() })
				defer stop()
				back := make(chan struct{})
				go func() {
					defer close(back)
					_, _ = io.Copy(near, far)
					near.Close()
				}()
				_, _ = io.Copy(far, near)
				far.Close()
				<-back
			})
		}
	})
	t.Cleanup(func() { listener.Close(); cancel(); open.Wait() })
	return l
}

// begin notes a connection, unless the line is cut.
func (l *line) begin(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.down {
		l.open[c] = true
	}
	return !l.down
}

func (l *line) end(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for c := range l.open {
		c.Close()
	}
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// lose cuts the line, and waits until the Controller notices.
func (r *running) lose(t *testing.T, l *line) {
	t.Helper()
	l.cut()
	within(t, "the loss is noticed", func() error {
		if r.Status().Connected {
			return errors.New("connected")
		}
		return nil
	})
}
