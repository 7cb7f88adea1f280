package connectivity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/network"
	"liqo.io/agent/network/filter"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/names"
	"liqo.io/agent/sharing/workload"
)

// recorder is a Network that remembers what it was told.
type recorder struct {
	node    network.Node
	names   filter.Names
	peers   map[peer.ClusterID]network.Peer
	blocks  map[peer.ClusterID]network.Blocks
	shown   map[netip.Addr]peer.ClusterID
	guests  map[peer.ClusterID][]netip.Prefix
	settled bool
}

func (r *recorder) SetNode(n network.Node) { r.node = n }
func (r *recorder) Shown(of map[netip.Addr]peer.ClusterID) {
	r.shown = of
}
func (r *recorder) SetNames(n filter.Names) { r.names = n }
func (r *recorder) SetGuests(of map[peer.ClusterID][]netip.Prefix) {
	r.guests = of
}
func (r *recorder) Set(p network.Peer)       { r.peers[p.ID] = p }
func (r *recorder) Remove(id peer.ClusterID) { delete(r.peers, id) }
func (r *recorder) Loaded() <-chan struct{}  { return nil }
func (r *recorder) Settled()                 { r.settled = true }
func (r *recorder) Status(id peer.ClusterID) (network.Status, bool) {
	_, ok := r.peers[id]
	return network.Status{Blocks: r.blocks[id]}, ok
}

const (
	barn = peer.ClusterID("barn") // uses us, and we use it
	mill = peer.ClusterID("mill") // uses us
)

// bench is a Connectivity with caches that a test fills.
type bench struct {
	*Connectivity
	net     *recorder
	w       *watched
	on      bool
	address string
	broken  error
	changes int
	names   *names.State

	guestsUnknown bool
}

// Set implements Names.
func (b *bench) Set(state *names.State) { b.names = state }

func newBench() *bench {
	b := &bench{on: true, address: "10.42.0.1/24", net: &recorder{
		peers: make(map[peer.ClusterID]network.Peer),
		blocks: map[peer.ClusterID]network.Blocks{
			barn: {Theirs: prefixes("241.1.0.0/24")}, mill: {Theirs: prefixes("241.2.0.0/24")},
		},
	}}
	b.Connectivity = New(Config{
		Network: b.net, Names: b, Enabled: func() bool { return b.on }, Changed: func() { b.changes++ }, Logger: slog.New(slog.DiscardHandler),
		Consumer: func(namespace string) (peer.ClusterID, bool) {
			id, _ := strings.CutPrefix(namespace, "guests-of-")
			if id == namespace {
				id = ""
			}
			return peer.ClusterID(id), !b.guestsUnknown
		},
		Addresses: func() ([]net.Addr, error) {
			ip, n, err := net.ParseCIDR(b.address)
			if err != nil {
				return nil, nil
			}
			return []net.Addr{&net.IPNet{IP: net.IPv4(192, 0, 2, 7), Mask: net.CIDRMask(24, 32)}, &net.IPNet{IP: ip, Mask: n.Mask}}, b.broken
		},
	})
	b.w = b.caches()
	for _, id := range []peer.ClusterID{barn, mill} {
		b.Use(id, false)
		b.Serve(id, false)
	}
	return b
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func (b *bench) addNode(name, providerID string, ranges ...string) {
	b.w.nodes.Wrote(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: "1"}, Spec: corev1.NodeSpec{ProviderID: providerID, PodCIDRs: ranges},
	})
}

func (b *bench) addPod(namespace, name, node, ip string, change func(*corev1.Pod)) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u", ResourceVersion: "1"},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if ip != "" {
		p.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	}
	if change != nil {
		change(p)
	}
	b.w.pods.Wrote(p)
}

func TestNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		set  func(*bench)
		want string // Reason
	}{
		"one node":               {set: func(b *bench) { b.addNode("box", "k3s://box", "10.42.0.0/24") }},
		"and virtual ones":       {set: func(b *bench) { b.addNode("box", "", "10.42.0.0/24"); b.addNode("v", "liqo://barn", "10.42.9.0/24") }},
		"the range in one field": {set: func(b *bench) { b.addNode("box", ""); b.w.nodes.Get("", "box").Spec.PodCIDR = "10.42.0.0/24" }},
		"two nodes":              {set: func(b *bench) { b.addNode("box", "", "10.42.0.0/24"); b.addNode("other", "", "10.42.1.0/24") }, want: ReasonSeveralNodes},
		"none":                   {set: func(b *bench) { b.addNode("v", "liqo://barn", "10.42.9.0/24") }, want: ReasonUnknown},
		"without a range":        {set: func(b *bench) { b.addNode("box", "") }, want: ReasonNoRange},
		"with nonsense for one":  {set: func(b *bench) { b.addNode("box", "", "nonsense") }, want: ReasonElsewhere},
		"on another machine":     {set: func(b *bench) { b.addNode("box", "", "10.42.7.0/24") }, want: ReasonElsewhere},
		"on who knows which":     {set: func(b *bench) { b.addNode("box", "", "10.42.0.0/24"); b.broken = errors.New("no") }, want: ReasonElsewhere},
		"switched off":           {set: func(b *bench) { b.addNode("box", "", "10.42.0.0/24"); b.on = false }, want: ReasonOff},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			tc.set(b)
			b.Serve(barn, true)
			b.decide(b.w)
			reason := ""
			if p := b.Problem(); p != nil {
				reason = p.Reason
			}
			if reason != tc.want {
				t.Fatalf("reason %q, want %q", reason, tc.want)
			}
			want := network.Node{}
			if tc.want == "" {
				want = network.Node{Pods: prefixes("10.42.0.0/24"), Host: []netip.Addr{netip.MustParseAddr("10.42.0.1")}}
			}
			if !reflect.DeepEqual(b.net.node, want) || (len(b.net.peers) == 1) != (tc.want == "") {
				t.Errorf("told %+v and %v", b.net.node, b.net.peers)
			}
		})
	}
}

// TestUnknownIsNotGone: while no node is known, everything stays as it was.
func TestUnknownIsNotGone(t *testing.T) {
	b := newBench()
	b.addNode("box", "", "10.42.0.0/24")
	b.Use(barn, true)
	b.Settled()
	b.decide(b.w)
	before := b.net.node
	b.w.nodes.Deleted("", "box", "u")
	b.decide(b.w)
	if !reflect.DeepEqual(b.net.node, before) || len(b.net.peers) != 1 || b.Problem() != nil {
		t.Errorf("%+v %v %v", b.net.node, b.net.peers, b.Problem())
	}
	b.on = false
	b.decide(b.w)
	if len(b.net.peers) != 0 || len(b.net.node.Pods) != 0 || b.changes != 2 {
		t.Errorf("%+v %v after %d changes", b.net.node, b.net.peers, b.changes)
	}
}

func TestWhoReachesWhom(t *testing.T) {
	b := newBench()
	b.addNode("box", "", "10.42.0.0/24")
	b.addNode("liqo-barn", "liqo://barn", "10.42.8.0/24")
	b.addNode("liqo-mill", "liqo://mill", "10.42.9.0/24")
	b.w.namespaces.Wrote(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u", ResourceVersion: "1"}})

	b.addPod("shop", "home", "box", "10.42.0.10", nil)
	b.addPod("shop", "waits", "", "", nil)
	b.addPod("shop", "on-the-host", "box", "192.0.2.7", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	b.addPod("shop", "ended", "box", "10.42.0.11", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	b.addPod("shop", "elsewhere", "box", "192.0.2.8", nil) // an address that no pod of ours can have
	b.addPod("private", "secret", "box", "10.42.0.12", nil)
	b.addPod("shop", "away", "liqo-barn", "241.1.0.5", nil)
	b.addPod("shop", "lies", "liqo-barn", "241.2.0.5", nil) // of another's block
	b.addPod("shop", "takes", "liqo-barn", "10.42.0.12", nil)
	b.addPod("guests-of-barn", "guest", "box", "10.42.0.20", nil)
	b.addPod("guests-of-mill", "guest", "box", "10.42.0.30", nil)

	b.Use(barn, true)
	b.Serve(barn, true)
	b.Serve(mill, true)
	b.decide(b.w)
	grant := func(from, to string) filter.Grant { return filter.Grant{From: prefixes(from), To: prefixes(to)} }
	guest := func(by peer.ClusterID, from, to string) filter.Grant {
		return filter.Grant{From: prefixes(from), To: prefixes(to), By: string(by)}
	}
	none := []netip.Addr{}
	// Our own pod there is none of barn's, and does not reach barn's guests here, nor they it.
	ofBarn := prefixes("241.1.0.0/30", "241.1.0.4/32", "241.1.0.6/31", "241.1.0.8/29", "241.1.0.16/28", "241.1.0.32/27", "241.1.0.64/26", "241.1.0.128/25", "241.1.1.0/24")
	want := map[peer.ClusterID]network.Peer{
		barn: {
			ID:  barn,
			In:  []filter.Grant{{From: ofBarn, To: prefixes("10.42.0.20/32")}, grant("241.1.0.5/32", "10.42.0.10/32")},
			Out: []filter.Grant{{From: prefixes("10.42.0.20/32"), To: ofBarn, By: string(barn)}, {From: prefixes("10.42.0.10/32", "10.42.0.12/32", "10.42.0.1/32"), To: prefixes("241.1.0.5/32")}},

			Thirds: none,
		},
		mill: {ID: mill, In: []filter.Grant{grant("241.2.0.0/23", "10.42.0.30/32")}, Out: []filter.Grant{guest(mill, "10.42.0.30/32", "241.2.0.0/23")}, Thirds: none},
	}
	if !reflect.DeepEqual(b.net.peers, want) {
		t.Errorf("told\n%+v, want\n%+v", b.net.peers, want)
	}

	b.Serve(barn, false)
	b.decide(b.w)
	if got := b.net.peers[barn]; len(got.In) != 1 || len(got.Out) != 1 || got.In[0].From[0] != prefixes("241.1.0.5/32")[0] ||
		!reflect.DeepEqual(got.Out[0].From, prefixes("10.42.0.10/32", "10.42.0.12/32", "10.42.0.1/32")) { // its guests are not ours until they are gone
		t.Errorf("barn has %+v after it uses us no more", got)
	}
	// Nobody waits for the API server to disconnect.
	b.Use(barn, false)
	b.Serve(mill, false)
	if len(b.net.peers) != 0 {
		t.Errorf("%v are connected", b.net.peers)
	}
	b.decide(b.w)
	if len(b.net.peers) != 0 || b.net.settled {
		t.Errorf("%v are connected, settled: %v", b.net.peers, b.net.settled)
	}
	b.net.blocks[barn] = network.Blocks{} // nothing was agreed on
	b.Use(barn, true)
	b.decide(b.w)
	if got := b.net.peers[barn]; got.In != nil || got.Out != nil || got.Thirds != nil {
		t.Errorf("%+v", got)
	}
}

// While nobody knows whose guests pods are, as after a start or while the API server comes back, what they reach stays.
func TestGuestsUnknown(t *testing.T) {
	b := newBench()
	b.addNode("box", "", "10.42.0.0/24")
	b.addPod("guests-of-barn", "guest", "box", "10.42.0.20", nil)
	b.addPod("kube-system", "coredns", "box", "10.42.0.3", func(p *corev1.Pod) { p.Labels = map[string]string{"k8s-app": "kube-dns"} })
	b.guestsUnknown = true
	b.Serve(barn, true)
	b.decide(b.w)
	if len(b.net.peers) != 0 || b.names != nil {
		t.Errorf("before anything is known, %+v, names %+v", b.net.peers, b.names)
	}
	b.guestsUnknown = false
	b.decide(b.w)
	before, asking := b.net.peers[barn], b.names
	if len(before.In) != 1 || len(asking.Guests) != 1 {
		t.Fatalf("%+v, names %+v", before, asking)
	}
	b.guestsUnknown = true
	b.decide(b.w)
	if !reflect.DeepEqual(b.net.peers[barn], before) || b.names != asking {
		t.Errorf("when nothing is known, %+v, names %+v", b.net.peers[barn], b.names)
	}
	b.guestsUnknown = false
	b.Serve(barn, false)
	b.Use(mill, true)
	b.guestsUnknown = true
	b.decide(b.w) // who has no consumers does not wait
	if len(b.net.peers) != 1 {
		t.Errorf("%+v", b.net.peers)
	}
}

// Guests are told of whether or not there is a network with their cluster, or with any, for as long as they run. Where they
// cannot be, the log says so.
func TestGuestsWithoutANetwork(t *testing.T) {
	b := newBench()
	var log strings.Builder
	b.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	b.net.blocks = nil // nothing was agreed on
	b.addNode("box", "", "10.42.0.0/24")
	b.addNode("liqo-mill", "liqo://mill", "")
	b.addPod("guests-of-barn", "one", "box", "10.42.0.20", nil)
	b.addPod("guests-of-barn", "two", "box", "10.42.0.21", nil)
	b.addPod("guests-of-barn", "ended", "box", "10.42.0.22", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	b.addPod("guests-of-barn", "starts", "box", "", nil)
	b.addPod("guests-of-mill", "three", "box", "10.42.0.30", nil)
	b.addPod("shop", "home", "box", "10.42.0.10", nil)
	b.addPod("shop", "away", "liqo-mill", "10.42.0.40", nil)
	b.Serve(barn, true)
	b.Serve(mill, true)
	want := map[peer.ClusterID][]netip.Prefix{barn: prefixes("10.42.0.20/32", "10.42.0.21/32"), mill: prefixes("10.42.0.30/32")}
	there := func(when string) {
		t.Helper()
		b.decide(b.w)
		if !reflect.DeepEqual(b.net.guests, want) {
			t.Errorf("%s, guests are %v, want %v", when, b.net.guests, want)
		}
	}
	there("with nothing agreed on")
	b.on = false
	there("switched off")
	b.on = true
	b.Serve(mill, false)
	there("with one that parts")
	if log := log.String(); strings.Contains(log, "not limited") {
		t.Errorf("all of them are here:\n%s", log)
	}
	b.addNode("other", "", "10.42.1.0/24")
	b.addPod("guests-of-barn", "far", "other", "10.42.1.20", nil)
	there("with a second node")
	there("still")
	if n := strings.Count(log.String(), "not limited"); n != 1 {
		t.Errorf("it is said %d times that one is not held:\n%s", n, log.String())
	}
}

func TestWithout(t *testing.T) {
	for _, c := range []struct{ from, others, want []netip.Prefix }{
		{prefixes("241.1.0.0/24"), nil, prefixes("241.1.0.0/24")},
		{prefixes("241.1.0.0/24"), prefixes("241.1.1.0/32", "fd83::1/128"), prefixes("241.1.0.0/24")},
		{prefixes("241.1.0.0/30"), prefixes("241.1.0.0/32", "241.1.0.3/32"), prefixes("241.1.0.1/32", "241.1.0.2/32")},
		{prefixes("241.1.0.0/30", "fd83::/126"), prefixes("241.1.0.2/32", "fd83::1/128"), prefixes("241.1.0.0/31", "241.1.0.3/32", "fd83::/128", "fd83::2/127")},
		{prefixes("241.1.0.0/31"), prefixes("241.1.0.0/32", "241.1.0.1/32"), nil},
		{prefixes("241.1.0.0/31"), prefixes("241.1.0.0/24"), nil},
		{prefixes("241.1.0.9/32"), prefixes("241.1.0.9/32"), nil},
	} {
		if got := without(c.from, c.others); !slices.Equal(got, c.want) {
			t.Errorf("%v without %v: %v, not %v", c.from, c.others, got, c.want)
		}
	}
}

// A cluster that has only IPv6 is connected as others are, with names and the API server.
func TestIPv6Only(t *testing.T) {
	b := newBench()
	b.address = "fd42::1/64"
	b.net.blocks[barn] = network.Blocks{Theirs: prefixes("fd83::/64")}
	b.addNode("box", "", "fd42::/64")
	b.addNode("liqo-barn", "liqo://barn", "fd42:0:0:8::/64")
	b.addNamespace("shop", map[string]string{workload.LabelTokens: "true", workload.LabelEnabled: "true"})
	b.addPod("kube-system", "coredns", "box", "fd42::3", func(p *corev1.Pod) { p.Labels = map[string]string{labelApp: clusterDNS} })
	b.addPod("shop", "home", "box", "fd42::10", nil)
	b.addPod("shop", "away", "liqo-barn", "fd83::5", nil)
	b.addPod("guests-of-barn", "guest", "box", "fd42::20", func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Name: "a", Env: []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: workload.APIServer}}}}
	})
	b.serve("1", 6443, "fd42::1")
	b.Use(barn, true)
	b.Serve(barn, true)
	b.decide(b.w)
	if want := (network.Node{Pods: prefixes("fd42::/64"), Host: []netip.Addr{addr("fd42::1")}}); !reflect.DeepEqual(b.net.node, want) || b.Problem() != nil {
		t.Fatalf("the node is %+v, %+v", b.net.node, b.Problem())
	}
	want := network.Peer{
		ID: barn, Thirds: []netip.Addr{},
		In: []filter.Grant{{From: without(prefixes("fd83::/63"), prefixes("fd83::5/128")), To: prefixes("fd42::20/128")}, {From: prefixes("fd83::5/128"), To: prefixes("fd42::10/128")}},
		Out: []filter.Grant{
			{From: prefixes("fd42::20/128"), To: without(prefixes("fd83::/63"), prefixes("fd83::5/128")), By: string(barn)},
			{From: prefixes("fd42::3/128", "fd42::10/128", "fd42::1/128"), To: prefixes("fd83::5/128")},
		},
		API: filter.API{From: prefixes("fd83::5/128"), At: netip.MustParseAddrPort("[fd42::1]:6443")},
	}
	if got := b.net.peers[barn]; !reflect.DeepEqual(got, want) {
		t.Errorf("told\n%+v, want\n%+v", got, want)
	}
	if got := b.net.guests[barn]; !slices.Equal(got, prefixes("fd42::20/128")) {
		t.Errorf("its guests are %v", got)
	}
	if got := b.net.names; !slices.Equal(got.Addresses, names.Addresses[1:]) || !slices.Equal(b.names.Servers, []netip.AddrPort{netip.MustParseAddrPort("[fd42::3]:53")}) {
		t.Errorf("names are asked for at %v, and at %v", got.Addresses, b.names.Servers)
	}
	if got := b.names.Guests[addr("fd42::20")].Server; !slices.Equal(got, []netip.Addr{addr("fd83::1")}) {
		t.Errorf("the API server of barn is at %v", got)
	}
}

// Our pods at two providers reach each other, those of namespaces that are not enabled only begin. Nobody else's do, and
// nobody's who only uses us.
func TestWhoPasses(t *testing.T) {
	b := newBench()
	b.addNode("box", "", "10.42.0.0/24")
	b.addNode("liqo-barn", "liqo://barn", "")
	b.addNode("liqo-mill", "liqo://mill", "")
	b.w.namespaces.Wrote(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u", ResourceVersion: "1"}})
	b.addPod("shop", "home", "box", "10.42.0.10", nil)
	b.addPod("shop", "one", "liqo-barn", "241.1.0.5", nil)
	b.addPod("shop", "two", "liqo-mill", "241.2.0.7", nil)
	b.addPod("shop", "more", "liqo-mill", "241.2.0.6", nil)
	b.addPod("shop", "ended", "liqo-mill", "241.2.0.8", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	b.addPod("shop", "new", "liqo-mill", "", nil)
	b.addPod("shop", "lies", "liqo-mill", "241.1.0.6", nil)
	b.addPod("private", "left", "liqo-mill", "241.2.0.9", nil)
	b.addPod("guests-of-barn", "guest", "box", "10.42.0.20", nil)
	b.Use(barn, true)
	b.Use(mill, true)
	b.Serve(barn, true)
	b.decide(b.w)
	// between are the last grants, those by another peer.
	between := func(id peer.ClusterID) (out []filter.Grant) {
		for _, g := range b.net.peers[id].Out {
			if g.By != "" && g.By != string(id) {
				out = append(out, g)
			}
		}
		return out
	}
	atMill := prefixes("241.2.0.6/32", "241.2.0.7/32", "241.2.0.9/32")
	if got, want := between(barn), []filter.Grant{{From: atMill, To: prefixes("241.1.0.5/32"), By: "mill"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("to barn %+v, want %+v", got, want)
	}
	if got, want := between(mill), []filter.Grant{{From: prefixes("241.1.0.5/32"), To: prefixes("241.2.0.6/32", "241.2.0.7/32"), By: "barn"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("to mill %+v, want %+v", got, want)
	}
	var thirds []netip.Addr
	for _, p := range atMill {
		thirds = append(thirds, p.Addr())
	}
	if got := b.net.peers[barn].Thirds; !reflect.DeepEqual(got, thirds) {
		t.Errorf("barn knows %v, want %v", got, thirds)
	}
	if got := b.net.peers[mill].Thirds; !reflect.DeepEqual(got, []netip.Addr{netip.MustParseAddr("241.1.0.5")}) {
		t.Errorf("mill knows %v", got)
	}

	b.Use(mill, false)
	b.Serve(mill, true)
	b.decide(b.w)
	for _, id := range []peer.ClusterID{barn, mill} {
		if got := b.net.peers[id]; between(id) != nil || len(got.Thirds) != 0 {
			t.Errorf("with one provider, %s has %+v", id, got)
		}
	}
}

// Who got the address of a pod that was here before a reboot gets none of its permissions.
func TestAddressOfTwo(t *testing.T) {
	b := newBench()
	b.addNode("box", "", "10.42.0.0/24")
	b.addNode("liqo-barn", "liqo://barn", "")
	b.w.namespaces.Wrote(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u", ResourceVersion: "1"}})
	b.addPod("guests-of-barn", "guest", "box", "10.42.0.20", nil)
	b.addPod("guests-of-barn", "other", "box", "10.42.0.21", nil)
	b.addPod("shop", "home", "box", "10.42.0.10", nil)
	b.addPod("shop", "away", "liqo-barn", "241.1.0.5", nil)
	b.addPod("private", "secret", "box", "10.42.0.20", nil)
	b.addPod("private", "ended", "box", "10.42.0.21", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	b.addPod("private", "another", "box", "10.42.0.10", nil)
	b.Use(barn, true)
	b.Serve(barn, true)
	b.decide(b.w)
	want := network.Peer{
		ID: barn, Thirds: []netip.Addr{}, In: []filter.Grant{{From: without(prefixes("241.1.0.0/23"), prefixes("241.1.0.5/32")), To: prefixes("10.42.0.21/32")}},
		Out: []filter.Grant{
			{From: prefixes("10.42.0.21/32"), To: without(prefixes("241.1.0.0/23"), prefixes("241.1.0.5/32")), By: string(barn)},
			{From: prefixes("10.42.0.1/32"), To: prefixes("241.1.0.5/32")},
		},
	}
	if got := b.net.peers[barn]; !reflect.DeepEqual(got, want) {
		t.Errorf("told\n%+v, want\n%+v", got, want)
	}
	if got := b.net.guests[barn]; !reflect.DeepEqual(got, prefixes("10.42.0.21/32")) {
		t.Errorf("its guests are %v", got)
	}
	// Once only one shows it, it is known whose it is.
	b.addPod("private", "secret", "box", "10.42.0.30", func(p *corev1.Pod) { p.ResourceVersion = "2" })
	b.decide(b.w)
	if got := b.net.peers[barn].In[0].To; !reflect.DeepEqual(got, prefixes("10.42.0.20/32", "10.42.0.21/32")) {
		t.Errorf("barn reaches %v", got)
	}
}

// What pods show is kept for their provider, also while the network is off.
func TestWhatIsShown(t *testing.T) {
	b := newBench()
	b.addNode("box", "", "10.42.0.0/24")
	b.addNode("liqo-barn", "liqo://barn", "")
	b.addNode("liqo-mill", "liqo://mill", "")
	b.addPod("shop", "here", "box", "10.42.0.10", nil)
	b.addPod("shop", "away", "liqo-barn", "241.9.0.5", nil)
	b.addPod("shop", "same", "liqo-barn", "241.9.0.6", nil)
	b.addPod("shop", "too", "liqo-mill", "241.9.0.6", nil)
	b.addPod("shop", "third", "liqo-mill", "241.9.0.6", nil)
	b.addPod("shop", "left", "liqo-gone", "241.8.0.1", nil)
	b.addPod("shop", "left-too", "liqo-gone", "241.8.0.2", nil)
	b.addPod("shop", "left-same", "liqo-gone-too", "241.8.0.2", nil)
	for _, on := range []bool{true, false} {
		b.on = on
		b.net.shown = nil
		b.decide(b.w)
		addr := netip.MustParseAddr
		want := map[netip.Addr]peer.ClusterID{addr("241.9.0.5"): barn, addr("241.9.0.6"): network.Nobody, addr("241.8.0.1"): "", addr("241.8.0.2"): network.Nobody}
		if !reflect.DeepEqual(b.net.shown, want) {
			t.Errorf("on %v: %v, want %v", on, b.net.shown, want)
		}
	}
}

// TestFirstDecision: connections of an earlier run end that the first Set does not grant, so nobody is Set before it is known
// what the peer is for this cluster, and what was agreed on with it before counts.
func TestFirstDecision(t *testing.T) {
	const both = peer.ClusterID("both")
	b := newBench()
	b.addNode("box", "", "10.42.0.0/24")
	b.addNode("liqo-both", "liqo://both", "")
	b.addPod("shop", "away", "liqo-both", "241.3.0.5", nil)
	b.addPod("guests-of-both", "guest", "box", "10.42.0.20", nil)
	b.net.blocks[both] = network.Blocks{Theirs: prefixes("241.3.0.0/24")}
	b.Use(both, true)
	b.decide(b.w)
	if len(b.net.peers) != 0 {
		t.Errorf("%+v, while it is not known whether it is a consumer", b.net.peers)
	}
	<-b.again
	b.Serve(both, true)
	<-b.again
	b.decide(b.w)
	if got := b.net.peers[both]; len(got.In) != 1 || len(got.Out) != 2 {
		t.Errorf("at first it gets %+v", got)
	}
	b.Serve("late", true)
	b.decide(b.w)
	if _, set := b.net.peers["late"]; set {
		t.Error("connected with a peer of which only one role is known")
	}
	b.Settled()
	b.decide(b.w)
	if _, set := b.net.peers["late"]; !set {
		t.Error("not connected with a peer of which no more is to be known")
	}
}

// TestBridgeIsLate: after a start of the machine or of K3s, no address is one of the node's range until its first pod starts.
// What was agreed on with peers is not forgotten for that, and connections stay.
func TestBridgeIsLate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBench()
		bridge := b.address
		late := func(what string, passing bool, peers int) {
			t.Helper()
			b.decide(b.w)
			if p := b.Problem(); p == nil || p.Reason != ReasonElsewhere || p.Passing != passing {
				t.Errorf("%s: the problem is %+v", what, p)
			}
			if len(b.net.peers) != peers {
				t.Errorf("%s: connected with %+v", what, b.net.peers)
			}
		}
		wait := func() { time.Sleep(graces[ReasonElsewhere]) }
		b.addNode("box", "", "10.42.0.0/24")
		b.Use(barn, true)
		b.Settled()
		b.address = "192.0.2.9/24"
		late("at the start", true, 0)
		if b.net.settled {
			t.Error("what was agreed on is forgotten")
		}
		b.address = bridge
		b.decide(b.w)
		if b.Problem() != nil || len(b.net.peers) != 1 || !b.net.settled {
			t.Errorf("with a bridge: %+v, connected with %+v", b.Problem(), b.net.peers)
		}
		node := b.net.node
		b.address = "192.0.2.9/24"
		late("after a start of K3s", false, 1)
		if !reflect.DeepEqual(b.net.node, node) {
			t.Errorf("the node is %+v", b.net.node)
		}
		wait()
		changes := b.changes
		late("for long", false, 0)
		if b.changes == changes {
			t.Error("nobody was told of the end")
		}

		b = newBench()
		b.addNode("box", "", "10.42.7.0/24")
		late("on another machine", true, 0)
		for len(b.again) > 0 {
			<-b.again
		}
		wait()
		<-b.again
		late("on another machine", false, 0)
	})
}

// A second node that joins cuts nothing at once: pods are not ready first, and a node that joined by mistake may go.
func TestSecondNode(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBench()
		b.addNode("box", "", "10.42.0.0/24")
		b.addNode("liqo-barn", "liqo://barn", "")
		b.addPod("shop", "away", "liqo-barn", "241.1.0.5", nil)
		b.Use(barn, true)
		b.Settled()
		b.decide(b.w)
		before, node := b.net.peers[barn], b.net.node
		if len(before.Out) != 1 || b.Problem() != nil {
			t.Fatalf("%+v, %+v", before, b.Problem())
		}
		drained := func() bool {
			select {
			case <-b.again:
				return true
			case <-time.After(2 * DrainFor):
				return false
			}
		}

		b.addNode("other", "", "10.42.1.0/24")
		changes := b.changes
		b.decide(b.w)
		if p := b.Problem(); p == nil || p.Reason != ReasonSeveralNodes || b.changes == changes {
			t.Errorf("the problem is %+v", p)
		}
		b.Serve(mill, true) // who comes now is not connected any more
		b.decide(b.w)
		if got := b.net.peers; len(got) != 1 || !reflect.DeepEqual(got[barn], before) || !reflect.DeepEqual(b.net.node, node) {
			t.Errorf("at once, %+v at %+v", got, b.net.node)
		}
		for len(b.again) > 0 {
			<-b.again
		}
		changes = b.changes
		if !drained() {
			t.Fatal("it never ends")
		}
		b.decide(b.w)
		if len(b.net.peers) != 0 || b.changes == changes || len(b.net.node.Pods) != 0 {
			t.Errorf("in the end, %+v at %+v", b.net.peers, b.net.node)
		}

		// The other one goes, comes back and goes: nothing is cut, and what ended earlier counts no more.
		b.w.nodes.Forget(b.w.nodes.Get("", "other"))
		b.decide(b.w)
		b.addNode("other", "", "10.42.1.0/24")
		b.decide(b.w)
		time.Sleep(DrainFor / 2)
		b.w.nodes.Forget(b.w.nodes.Get("", "other"))
		b.decide(b.w)
		time.Sleep(DrainFor)
		b.decide(b.w)
		if got := b.net.peers[barn]; !reflect.DeepEqual(got, before) || b.Problem() != nil {
			t.Errorf("after it went, %+v, %+v", got, b.Problem())
		}
		b.addNode("other", "", "10.42.1.0/24")
		b.decide(b.w)
		b.on = false // a decision of the owner takes effect at once
		b.decide(b.w)
		if len(b.net.peers) != 0 {
			t.Errorf("switched off, %+v", b.net.peers)
		}
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestDomainIsAskedForAgain: a request for the domain of the cluster that fails, as while the API server restarts, or that is not
// answered, is made again, and ends nothing.
func TestDomainIsAskedForAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		asked, away := 0, false
		local := &rest.Config{Host: "https://here", Transport: transport(func(r *http.Request) (*http.Response, error) {
			switch asked++; {
			case asked == 1, away:
				return nil, syscall.ECONNRESET
			case asked == 2:
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r, TLS: &tls.ConnectionState{
				PeerCertificates: []*x509.Certificate{{DNSNames: []string{"kubernetes", "kubernetes.default.svc.farm.example"}}},
			}}, nil
		})}
		c := New(Config{Logger: slog.New(slog.DiscardHandler)})
		if err := c.findDomain(t.Context(), local); err != nil || c.Domain() != "farm.example" || asked != 3 {
			t.Errorf("%v, domain %q, asked %d times", err, c.Domain(), asked)
		}
		away = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := c.findDomain(ctx, local); !errors.Is(err, context.DeadlineExceeded) || asked > 500 {
			t.Errorf("%v, asked %d times in an hour", err, asked)
		}
	})
}
