//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/kube"
	"liqo.io/agent/peering/install"
)

// TestMain has the custom resources of the agent and its user in all control planes that tests borrow, as all starts but the
// first find them: to make and to delete them is a tenth of what the tests take. Control planes of startKubes have none, nor are
// they left after a factory reset.
func TestMain(m *testing.M) {
	agent, err := bed.BinaryPath("liqo-agent")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	bed.Prepare(func(ctx context.Context, k *bed.Kube) error {
		c, err := kube.New(k.RESTConfig())
		if err != nil {
			return err
		}
		defer c.Close()
		if err := install.NewKeeper(install.Config{}, nil, c).CRDs(ctx); err != nil {
			return err
		}
		return makeUser(ctx, k, agent, preparedKubeconfig)
	})
	bed.Main(complete{m})
}

const (
	configPath = "/etc/liqo-agent/liqo-agent.toml"
	statePath  = "/var/lib/liqo-agent/agent.db"
	socketPath = "/run/liqo-agent/agent.sock"
	// soon is the deadline for whatever a test waits for. It bounds a hang and measures nothing: these
	// machines are shared.
	soon = bed.Hang
)

// box is one host of the bed with an agent, and perhaps an API server.
type box struct {
	t     *testing.T
	host  *bed.Host
	kube  *bed.Kube
	agent *bed.Process
	asks  *client.Client // of the agent's socket
	bin   string
	addr  netip.Addr
	env   []string // of the agent, on top of the host's
	// deprived is part of the requests for which a test took the privileges from the agent, "" if it took none.
	deprived string
}

// newBoxes makes hosts with addresses 10.77.0.1, .2, ... that are configured
// for quick checks. Agents are not started.
func newBoxes(t *testing.T, b *bed.Bed, names ...string) []*box {
	t.Helper()
	var out []*box
	for _, name := range names {
		addr := nextAddr(b, 0)
		out = append(out, newBox(t, b.AddHost(name, addr.String()+"/24"), addr))
	}
	return out
}

func newBox(t *testing.T, h *bed.Host, addr netip.Addr) *box {
	t.Helper()
	x := &box{t: t, host: h, bin: bed.Binary(t, "liqo-agent"), addr: addr, asks: client.New(h.Path(socketPath))}
	t.Cleanup(x.asks.Close)
	t.Cleanup(x.explain)
	x.configure("")
	return x
}

// nextAddr is the address of the host that is added next, or n later.
func nextAddr(b *bed.Bed, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 77, 0, byte(len(b.Hosts()) + n + 1)})
}

// newClusters is newBoxes with API servers on them. Each box's agent has the user that "liqo-agent rbac --apply"
// makes: it may do what package rbac lists, and the test fails if that is not enough.
func newClusters(t *testing.T, b *bed.Bed, names ...string) []*box {
	t.Helper()
	var specs []bed.HostSpec
	for _, name := range names {
		specs = append(specs, bed.HostSpec{Name: name})
	}
	return newClustersOf(t, b, specs...)
}

// newClustersOf is newClusters for those who want more of them than a name. Addresses of hosts are those of newBoxes.
func newClustersOf(t *testing.T, b *bed.Bed, specs ...bed.HostSpec) []*box {
	t.Helper()
	for i := range specs {
		specs[i].Prefix = nextAddr(b, i).String() + "/24"
	}
	var out []*box
	for i, k := range b.AddClusters(t.Context(), specs...) {
		x := newBox(t, k.Host, netip.MustParsePrefix(specs[i].Prefix).Addr())
		x.kube = k
		out = append(out, x)
	}
	limit(t, out...)
	return out
}

// startKubes starts API servers of their own on boxes, with further options, and limits the agents as newClusters
// does.
func startKubes(t *testing.T, b *bed.Bed, flags []string, boxes ...*box) {
	t.Helper()
	var hosts []*bed.Host
	for _, x := range boxes {
		hosts = append(hosts, x.host)
	}
	for i, k := range b.StartKubesWith(t.Context(), flags, hosts...) {
		boxes[i].kube = k
	}
	limit(t, boxes...)
}

// configure writes the configuration: quick checks, and more on top.
func (x *box) configure(more string) {
	x.t.Helper()
	text := more
	if !strings.Contains(more, "check_interval") {
		text = "[discovery]\ncheck_interval = \"1s\"\n" + strings.TrimPrefix(more, "[discovery]\n")
	}
	x.host.WriteFile(configPath, text)
}

// start starts the agent and waits until its socket answers.
func (x *box) start(args ...string) {
	x.t.Helper()
	x.launch(args...)
	x.eventually("the agent answers", func() error { _, err := x.status(); return err })
}

// launch starts the agent, and waits for nothing.
func (x *box) launch(args ...string) {
	x.t.Helper()
	x.agent = x.host.Start(bed.Cmd{Name: "liqo-agent", Args: append([]string{x.bin, "run"}, args...), Env: x.env})
}

// connected waits until the agent has its API server, which knows the kinds of ours then, and tells kubectl of them a moment later.
func (x *box) connected() {
	x.t.Helper()
	x.eventually("it is connected to the API server", func() error {
		if st := x.mustStatus(); !st.Kubernetes.Connected {
			return errors.New(st.Kubernetes.LastError)
		}
		return nil
	})
	x.eventually("kubectl knows the kinds of ours", func() error {
		_, err := x.kube.Kubectl(x.t.Context(), "get", "foreignclusters,searchdomains,clusterconfigs")
		return err
	})
}

func (x *box) stop() {
	x.t.Helper()
	if err := x.agent.Stop(); err != nil {
		// Its goroutines, in the log that a failed test prints, say why.
		ctx, cancel := context.WithTimeout(x.t.Context(), soon)
		defer cancel()
		dump := errors.Join(x.agent.Signal(syscall.SIGQUIT), x.agent.Wait(ctx))
		x.t.Fatalf("%s: stop the agent: %v (%v)", x.host.Name, err, dump)
	}
}

func (x *box) reload() {
	x.t.Helper()
	if err := x.agent.Signal(syscall.SIGHUP); err != nil {
		x.t.Fatal(err)
	}
}

// cli runs a command of the agent's on the box.
func (x *box) cli(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	return x.host.Run(ctx, append([]string{x.bin}, args...)...)
}

func cliJSON[T any](x *box, args ...string) (T, error) {
	var v T
	out, err := x.cli(append(args, "-o", "json")...)
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal([]byte(out), &v)
}

// status, id and peer ask the agent itself: a test that waits for something asks often, and starting the command
// line each time would keep the machine busy. What the commands show has tests of its own.
func (x *box) status() (control.Status, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	return x.asks.Status(ctx)
}

func (x *box) mustStatus() control.Status {
	x.t.Helper()
	st, err := x.status()
	if err != nil {
		x.t.Fatal(err)
	}
	return st
}

func (x *box) id() string {
	x.t.Helper()
	return x.mustStatus().Identity.ClusterID
}

// peer returns the peer with an ID, as `peers list --all` shows it.
func (x *box) peer(id string) (control.Peer, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	peers, err := x.asks.Peers(ctx, true)
	if err != nil {
		return control.Peer{}, err
	}
	i := slices.IndexFunc(peers, func(p control.Peer) bool { return p.ID == id })
	if i < 0 {
		return control.Peer{}, fmt.Errorf("%s does not know %s; it knows %d others", x.host.Name, id, len(peers))
	}
	return peers[i], nil
}

// awaitPeer waits until the peer is in the phase, and returns it.
func (x *box) awaitPeer(id, phase string) control.Peer {
	x.t.Helper()
	var p control.Peer
	x.eventually(fmt.Sprintf("%s sees %s %s", x.host.Name, id, phase), func() error {
		var err error
		if p, err = x.peer(id); err != nil {
			return err
		}
		if p.Phase != phase {
			return fmt.Errorf("phase %s: %s", p.Phase, p.Reason)
		}
		return nil
	})
	return p
}

// keeps fails the test if the box has lost a peer. One that did not answer in time, as on a machine that stood still, is
// waited for.
func (x *box) keeps(id, what string) {
	x.t.Helper()
	x.eventually(fmt.Sprintf("%s: %s still sees %s", what, x.host.Name, id), func() error {
		p, err := x.peer(id)
		if err == nil && p.Phase != "Present" {
			err = fmt.Errorf("phase %s: %s", p.Phase, p.Reason)
		}
		if p.Phase == "Lost" {
			x.t.Fatalf("%s: %s: %v", what, x.host.Name, err)
		}
		return err
	})
}

// undisturbed looks at what happens while nothing does, and looks again if a check of a peer failed meanwhile, as it does when
// the machine stands still for seconds: that is written down and told.
func (x *box) undisturbed(look func() error) {
	x.t.Helper()
	failed := func() int {
		log := x.agent.Log()
		return strings.Count(log, "peer unreachable") + strings.Count(log, "peer returned")
	}
	for try := 1; ; try++ {
		before := failed()
		err := look()
		switch {
		case err == nil:
			return
		case failed() == before || try == 10:
			x.t.Errorf("%s: %v", x.host.Name, err)
			return
		}
		x.t.Logf("%s: again, because a check of a peer failed: %v", x.host.Name, err)
	}
}

// foreignCluster is as much of the resource as tests look at.
type foreignCluster struct {
	Metadata struct {
		Name            string
		UID             string
		ResourceVersion string
		Generation      int64
		Labels          map[string]string
		ManagedFields   []struct {
			Manager     string
			Operation   string
			Subresource string
			FieldsV1    json.RawMessage
		}
	}
	Spec struct {
		ClusterIdentity struct{ ClusterID, ClusterName string }
		Namespace       string
		Join            bool
		DiscoveryType   string
		AuthURL         string
		TrustMode       string
	}
	Status struct {
		Role        string
		Fingerprint string
		TTL         int64
		Conditions  []struct{ Type, Status, Reason, Message string }
	}
}

func (fc foreignCluster) condition(kind string) string {
	for _, c := range fc.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

const fcPath = "/apis/discovery.liqo.io/v1alpha1/foreignclusters"

var errGone = errors.New("there is no such ForeignCluster")

func (x *box) foreignClusters() ([]foreignCluster, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	body, err := x.kube.Request(ctx, "GET", fcPath, "", nil)
	if err != nil {
		return nil, err
	}
	var list struct{ Items []foreignCluster }
	return list.Items, json.Unmarshal(body, &list)
}

func (x *box) foreignCluster(name string) (foreignCluster, error) {
	all, err := x.foreignClusters()
	if err != nil {
		return foreignCluster{}, err
	}
	for _, fc := range all {
		if fc.Metadata.Name == name {
			return fc, nil
		}
	}
	return foreignCluster{}, errGone
}

// awaitFC waits for a ForeignCluster that satisfies want.
func (x *box) awaitFC(what, name string, want func(foreignCluster) bool) foreignCluster {
	x.t.Helper()
	var fc foreignCluster
	x.eventually(fmt.Sprintf("%s: ForeignCluster %s %s", x.host.Name, name, what), func() error {
		var err error
		if fc, err = x.foreignCluster(name); err != nil {
			return err
		}
		if !want(fc) {
			return fmt.Errorf("it is %+v %+v", fc.Spec, fc.Status)
		}
		return nil
	})
	return fc
}

func (x *box) awaitNoFC(name string) {
	x.t.Helper()
	x.eventually(fmt.Sprintf("%s: ForeignCluster %s is deleted", x.host.Name, name), func() error {
		fc, err := x.foreignCluster(name)
		if errors.Is(err, errGone) {
			return nil
		}
		return errors.Join(fmt.Errorf("it is there: %+v", fc.Status), err)
	})
}

// reachable reports whether a ForeignCluster says its cluster answers.
func reachable(fc foreignCluster) bool { return fc.condition("Reachable") == "True" }

// calm waits until the agent has said all that there is to say, in objects and in Events, which come one after the other: until
// it writes nothing while y answers ten requests. A busy machine delays both alike.
func (x *box) calm(y *box) control.Status {
	x.t.Helper()
	x.eventually("the ClusterConfig says how the agent is", func() error {
		c, found, err := get[api.ClusterConfig](x, configPathAPI)
		if err == nil && (!found || c.Status.Condition(api.ConditionHealthy) == nil) {
			err = errors.New("nothing yet")
		}
		return err
	})
	var last control.Status
	var from uint64
	x.eventually("writing settles", func() error {
		st, answered := x.mustStatus(), y.mustStatus().Endpoint.Requests
		if from == 0 || st.Kubernetes.Writes != last.Kubernetes.Writes || st.State.Transactions != last.State.Transactions {
			from = answered
		}
		last = st
		if answered-from < 10 {
			return fmt.Errorf("%d writes, %d transactions, %d answers of %s since", st.Kubernetes.Writes, st.State.Transactions, answered-from, y.host.Name)
		}
		return nil
	})
	return last
}

func (x *box) eventually(what string, condition func() error) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	if err := bed.Poll(ctx, condition); err != nil {
		x.t.Fatalf("%s: %s: %v", x.host.Name, what, err)
	}
}

// logged waits until the agent has logged a text.
func (x *box) logged(text string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	if err := x.agent.WaitLog(ctx, text); err != nil {
		x.t.Fatal(err)
	}
}

// explain writes down what the agent of a failed test knows: what it does, what is pending, and why.
func (x *box) explain() {
	if !x.t.Failed() || x.agent == nil {
		return
	}
	select {
	case <-x.agent.Done():
		return // its log is all there is
	default:
	}
	for _, path := range []string{"/v1/status", "/v1/peers?all=1", "/debug/peering", "/debug/pprof/goroutine?debug=2"} {
		_, text, err := x.ask("unix", socketPath, path)
		x.t.Logf("%s: GET %s: %v\n%.40000s", x.host.Name, path, err, text)
	}
}
