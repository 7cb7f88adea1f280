package connectivity

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/network"
	"liqo.io/agent/network/filter"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/names"
	"liqo.io/agent/sharing/vnode"
	"liqo.io/agent/sharing/workload"
)

// Network carries packets. It is *network.Engine, whose methods these are.
type Network interface {
	SetNode(network.Node)
	Shown(map[netip.Addr]peer.ClusterID)
	SetNames(filter.Names)
	SetGuests(map[peer.ClusterID][]netip.Prefix)
	Set(network.Peer)
	Remove(id peer.ClusterID)
	Loaded() <-chan struct{}
	Status(id peer.ClusterID) (network.Status, bool)
	Settled()
}

// Names answers the DNS queries of guests. It is *names.Server.
type Names interface{ Set(*names.State) }

// Config is what a Connectivity needs. Its functions are called on several goroutines and
// must be quick.
type Config struct {
	Network Network
	Names   Names
	// Enabled reports whether this cluster is to be connected with others at all.
	Enabled func() bool
	// Tokens reports whether pods of a namespace may have service account tokens with them at
	// providers, if the namespace has workload.LabelTokens. Nil: those of all may.
	Tokens func(namespace string) bool
	// Consumer returns whose guests are in a namespace here, "" for nobody's. While known is
	// false, that is not known of any namespace.
	Consumer func(namespace string) (id peer.ClusterID, known bool)
	// Addresses returns the addresses of this machine; net.InterfaceAddrs if nil.
	Addresses func() ([]net.Addr, error)
	// Changed is told that Problem may return something else.
	Changed func()
	Logger  *slog.Logger
}

// Connectivity says who reaches whom. Its methods may be called from any goroutine.
type Connectivity struct {
	cfg   Config
	again chan struct{} // something changed; capacity 1

	mu      sync.Mutex
	serves  map[peer.ClusterID]bool // consumers
	uses    map[peer.ClusterID]bool // providers
	told    map[peer.ClusterID]role // in which roles, until settled
	set     map[peer.ClusterID]bool // whom Network has been told of
	settled bool
	problem *Problem
	last    network.Node // that could be connected
	ends    time.Time    // what is connected in spite of problem; zero for nothing
	domain  string       // of this cluster; "" while not known
	remote  bool         // it was logged that the API server is elsewhere

	elsewhere bool // it was logged that guests are
}

// Problem is why this cluster cannot be connected with others.
type Problem struct {
	Reason  string // one of the Reason constants
	Message string // a sentence
	// Passing: it is not sure yet that it lasts, and what is known of connections of before stays known.
	Passing bool
}

// Why a cluster cannot be connected.
const (
	// ReasonOff: the configuration says so.
	ReasonOff = "Off"
	// ReasonUnknown: it is not known yet.
	ReasonUnknown = "Unknown"
	// ReasonSeveralNodes: it has more than one node of its own.
	ReasonSeveralNodes = "SeveralNodes"
	// ReasonNoRange: its node has no range of addresses for pods.
	ReasonNoRange = "NoPodRange"
	// ReasonElsewhere: the node is another machine than the agent's.
	ReasonElsewhere = "NodeElsewhere"
)

var (
	problemOff     = &Problem{Reason: ReasonOff, Message: "sharing.network is off."}
	problemUnknown = &Problem{Reason: ReasonUnknown, Message: "The nodes of this cluster are not known yet."}
)

// New returns a Connectivity that connects nobody. It starts nothing.
func New(cfg Config) *Connectivity {
	if cfg.Tokens == nil {
		cfg.Tokens = func(string) bool { return true }
	}
	if cfg.Addresses == nil {
		cfg.Addresses = net.InterfaceAddrs
	}
	return &Connectivity{
		cfg: cfg, again: make(chan struct{}, 1), problem: problemUnknown,
		serves: make(map[peer.ClusterID]bool), uses: make(map[peer.ClusterID]bool), told: make(map[peer.ClusterID]role), set: make(map[peer.ClusterID]bool),
	}
}

// Serve says whether a cluster consumes resources of this one.
func (c *Connectivity) Serve(id peer.ClusterID, joined bool) { c.join(asConsumer, id, joined) }

// Use says whether this cluster consumes resources of a peer.
func (c *Connectivity) Use(id peer.ClusterID, joined bool) { c.join(asProvider, id, joined) }

// role is what a peer is for this cluster; several are added.
type role uint8

const (
	asConsumer role = 1 << iota
	asProvider
)

func (c *Connectivity) join(as role, id peer.ClusterID, joined bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.settled && c.told[id]&as == 0 {
		c.told[id] |= as
		work.Wake(c.again)
	}
	peers := c.serves
	if as == asProvider {
		peers = c.uses
	}
	if peers[id] == joined {
		return
	}
	if joined {
		peers[id] = true
	} else {
		delete(peers, id)
		c.disconnect(id) // at once, whether or not there is an API server
	}
	work.Wake(c.again)
}

// disconnect tells Network of a peer with which there is nothing to share any more. c.mu is
// held.
func (c *Connectivity) disconnect(id peer.ClusterID) {
	if c.set[id] && !c.serves[id] && !c.uses[id] {
		delete(c.set, id)
		c.cfg.Network.Remove(id)
	}
}

// Settled says that all peers that are joined were told of: what is left of others goes, once
// the nodes of this cluster are known.
func (c *Connectivity) Settled() {
	c.mu.Lock()
	c.settled = true
	clear(c.told)
	c.mu.Unlock()
	work.Wake(c.again)
}

// Touch says that settings, what was agreed on with a peer, or what Consumer returns may have
// changed.
func (c *Connectivity) Touch() { work.Wake(c.again) }

// Shares reports whether resources are shared with a peer, in any direction.
func (c *Connectivity) Shares(id peer.ClusterID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serves[id] || c.uses[id]
}

// Problem returns why this cluster cannot be connected, nil if it can.
func (c *Connectivity) Problem() *Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem
}

// Domain returns the DNS domain of this cluster, "" while it is not known.
func (c *Connectivity) Domain() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.domain
}

// watched are the caches of one connection to the API server.
type watched struct {
	nodes      *kube.Cache[*corev1.Node]
	pods       *kube.Cache[*corev1.Pod]
	namespaces *kube.Cache[*metav1.PartialObjectMetadata] // that are enabled for sharing
	servers    *kube.Cache[*discoveryv1.EndpointSlice]    // of the Service kubernetes
}

// serverPatience is how long connections of pods to the API server wait for it to be known where that is: what is decided
// before ends them.
const serverPatience = 10 * time.Second

// domainPatience bounds one request for the domain of the cluster.
const domainPatience = 10 * time.Second

// Run decides who reaches whom, until ctx ends.
func (c *Connectivity) Run(ctx context.Context, local *rest.Config) error {
	client, err := kube.New(local)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	defer client.Close()
	if err := c.findDomain(ctx, local); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	w := c.caches()
	following.Go(func() { w.nodes.Follow(ctx, client, kube.Query{Path: "/api/v1/nodes"}) })
	following.Go(func() { w.pods.Follow(ctx, client, kube.Query{Path: "/api/v1/pods"}) })
	following.Go(func() {
		w.namespaces.Follow(ctx, client, kube.Query{Path: "/api/v1/namespaces", Labels: workload.LabelEnabled + "=true"})
	})
	following.Go(func() {
		w.servers.Follow(ctx, client, kube.Query{Path: "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", Labels: discoveryv1.LabelServiceName + "=kubernetes"})
	})
	for _, known := range []<-chan struct{}{w.nodes.Synced(), w.pods.Synced(), w.namespaces.Synced(), c.cfg.Network.Loaded()} {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-known:
		}
	}
	// Without the right to read where the API server is, the rest works all the same.
	patience := time.NewTimer(serverPatience)
	defer patience.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.servers.Synced():
	case <-patience.C:
	}
	for {
		c.decide(w)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.again:
		}
	}
}

// findDomain asks for the domain of the cluster until it is told, or ctx ends: an API server may be restarting in this moment.
func (c *Connectivity) findDomain(ctx context.Context, local *rest.Config) error {
	again := work.Backoff{First: 100 * time.Millisecond, Max: 10 * time.Second}
	for failures := 1; ; failures++ {
		once, cancel := context.WithTimeout(ctx, domainPatience)
		domain, err := names.Domain(once, local)
		cancel()
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.domain = domain
			return nil
		}
		pause := again.Pause(failures)
		c.cfg.Logger.Debug("the domain of the cluster is not known yet; asking again", "error", err, "in", pause)
		if err := work.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// caches returns the caches of a connection, which have nothing yet.
func (c *Connectivity) caches() *watched {
	return &watched{
		nodes: kube.NewCache(kube.Kind[*corev1.Node]{
			Fresh: func() *corev1.Node { return new(corev1.Node) }, Trim: trimNode,
			Changed: func(before, after *corev1.Node) { c.Touch() },
		}),
		pods: kube.NewCache(kube.Kind[*corev1.Pod]{
			Fresh: func() *corev1.Pod { return new(corev1.Pod) }, Trim: trimPod,
			Changed: func(before, after *corev1.Pod) {
				if before == nil || after == nil || !samePod(before, after) {
					c.Touch()
				}
			},
		}),
		namespaces: kube.NewCache(kube.Kind[*metav1.PartialObjectMetadata]{
			Fresh: func() *metav1.PartialObjectMetadata { return new(metav1.PartialObjectMetadata) }, Trim: trimNamespace,
			Changed: func(before, after *metav1.PartialObjectMetadata) { c.Touch() },
		}),
		servers: kube.NewCache(kube.Kind[*discoveryv1.EndpointSlice]{
			Fresh: func() *discoveryv1.EndpointSlice { return new(discoveryv1.EndpointSlice) },
			Trim:  func(s *discoveryv1.EndpointSlice) { s.ManagedFields = nil },
			Changed: func(before, after *discoveryv1.EndpointSlice) {
				if !slices.Equal(locate(before), locate(after)) {
					c.Touch()
				}
			},
		}),
	}
}

// trimNode leaves what tells nodes apart, and the addresses of their pods.
func trimNode(n *corev1.Node) {
	n.ObjectMeta = metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion}
	n.Spec = corev1.NodeSpec{ProviderID: n.Spec.ProviderID, PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs}
	n.Status = corev1.NodeStatus{}
}

// trimPod leaves where a pod is, its addresses, whom it asks for names, whether others do ask it,
// and whether it knows the API server of another cluster.
func trimPod(p *corev1.Pod) {
	app := p.Labels[labelApp]
	p.ObjectMeta = metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion}
	if p.Namespace == metav1.NamespaceSystem && app == clusterDNS {
		p.Labels = map[string]string{labelApp: app}
	}
	if workload.ReachesHome(&p.Spec) {
		p.Annotations = map[string]string{reachesHome: "true"}
	}
	asks := p.Spec.DNSConfig
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork}
	if asks != nil {
		p.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: asks.Nameservers, Searches: asks.Searches}
	}
	p.Status = corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs}
}

func trimNamespace(m *metav1.PartialObjectMetadata) {
	tokens := m.Labels[workload.LabelTokens]
	m.ObjectMeta = metav1.ObjectMeta{Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
	if tokens == "true" {
		m.Labels = map[string]string{workload.LabelTokens: tokens}
	}
}

func samePod(a, b *corev1.Pod) bool {
	return a.UID == b.UID && a.Labels[labelApp] == b.Labels[labelApp] && a.Spec.NodeName == b.Spec.NodeName && workload.Ended(a.Status.Phase) == workload.Ended(b.Status.Phase) &&
		slices.Equal(a.Status.PodIPs, b.Status.PodIPs)
}

// decide tells Network who reaches whom.
func (c *Connectivity) decide(w *watched) {
	nodes := w.nodes.All()
	node, problem := c.node(nodes)
	draining := c.drain(problem)
	if problem == problemUnknown || !c.knowsGuests() { // what was known stays
		return
	}
	if draining && c.connects() == 0 {
		c.report(&Problem{Reason: problem.Reason, Message: problem.Message, Passing: true}, node, false, false)
		return
	}
	providers := make(map[string]peer.ClusterID)
	for _, n := range nodes {
		if id, virtual := vnode.ProviderOf(n); virtual {
			providers[n.Name] = id
		}
	}
	c.cfg.Network.Shown(shown(w, nodes, providers))
	if draining {
		node = c.last
	}
	c.cfg.Network.SetNode(node)

	c.mu.Lock()
	reached, state, guests := c.asked(w, c.ranges(nodes), providers, problem == nil)
	// Before the peers: the addresses for names and the routes to peers are on one device, and without any
	// address the kernel drops these routes.
	c.cfg.Names.Set(state)
	c.cfg.Network.SetNames(reached)
	c.cfg.Network.SetGuests(guests)
	if problem == nil || draining {
		grants := grants{server: c.apiServer(w), tokens: c.cfg.Tokens, pods: node.Pods, host: node.Host, consumer: c.cfg.Consumer, providers: providers, w: w}
		grants.count()
		grants.place(c.uses, c.cfg.Network)
		c.tellServer(w, &grants)
		c.last = node
		for _, id := range c.joined() {
			if !c.set[id] && (draining || !c.settled && c.told[id] != asConsumer|asProvider) {
				continue // what one role needs would end while only the other is known
			}
			c.set[id] = true
			c.cfg.Network.Set(grants.of(id, c.serves[id], c.uses[id], c.cfg.Network))
		}
	}
	ended := problem != nil && !draining && len(c.set) > 0
	if ended {
		for id := range c.set {
			delete(c.set, id)
			c.cfg.Network.Remove(id)
		}
	}
	settled := c.settled
	c.mu.Unlock()
	if settled {
		c.cfg.Network.Settled()
	}
	c.report(problem, node, draining, ended)
}

// report tells of a problem, nil for none, that is another one than before, or for which connections ended.
func (c *Connectivity) report(problem *Problem, node network.Node, draining, ended bool) {
	c.mu.Lock()
	before := c.problem
	c.problem = problem
	c.mu.Unlock()
	switch {
	case !ended && (before == nil && problem == nil || before != nil && problem != nil && *before == *problem):
		return
	case problem == nil:
		c.cfg.Logger.Info("this cluster can be connected with others", "pods", node.Pods)
	case draining:
		c.cfg.Logger.Warn("this cluster cannot be connected with others any more: connections end soon",
			"reason", problem.Reason, "message", problem.Message, "in", graces[problem.Reason])
	default:
		c.cfg.Logger.Info("this cluster cannot be connected with others", "reason", problem.Reason, "message", problem.Message)
	}
	c.cfg.Changed()
}

// knowsGuests reports whether it is known whose guests pods are: else those of consumers would pass for pods of nobody.
// Without consumers it does not matter.
func (c *Connectivity) knowsGuests() bool {
	c.mu.Lock()
	serves := len(c.serves) > 0
	c.mu.Unlock()
	_, known := c.cfg.Consumer(metav1.NamespaceSystem)
	return known || !serves
}

// DrainFor is how long connections go on after another node has joined: time for Services to leave pods out that are not
// ready any more, for what is under way to end, and for a node that joined by mistake to go.
const DrainFor = 30 * time.Second

// graces are how long a problem has to last before connections end, by its reason; at once if it is not among them. The
// bridge of a node has its address when the first pod starts after the machine or K3s did.
var graces = map[string]time.Duration{ReasonSeveralNodes: DrainFor, ReasonElsewhere: 2 * time.Minute}

// drain reports whether connections, and what is known while there are none, stay for a while in spite of a problem. It is of
// Run's goroutine.
func (c *Connectivity) drain(problem *Problem) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var grace time.Duration
	if problem != nil {
		grace = graces[problem.Reason]
	}
	switch {
	case grace == 0:
		c.ends = time.Time{}
		return false
	case problem.Reason == ReasonSeveralNodes && len(c.set) == 0:
		return false
	case c.ends.IsZero():
		c.ends = time.Now().Add(grace)
		time.AfterFunc(grace, c.Touch)
	}
	return time.Now().Before(c.ends)
}

// connects returns with how many peers this cluster is to be connected.
func (c *Connectivity) connects() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.set)
}

// shown returns the addresses of pods that run elsewhere, by the peer at which they do.
func shown(w *watched, nodes []*corev1.Node, providers map[string]peer.ClusterID) map[netip.Addr]peer.ClusterID {
	out := make(map[netip.Addr]peer.ClusterID)
	on := make(map[netip.Addr]string) // the node
	for _, p := range w.pods.All() {
		id, virtual := providers[p.Spec.NodeName]
		if p.Spec.HostNetwork || !virtual && slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Name == p.Spec.NodeName }) {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			addr, err := netip.ParseAddr(ip.IP)
			if err != nil {
				continue
			}
			switch node, twice := on[addr]; {
			case !twice:
				out[addr], on[addr] = id, p.Spec.NodeName
			case node != p.Spec.NodeName:
				out[addr] = network.Nobody
			}
		}
	}
	return out
}

// joined returns the peers that share anything with this cluster. c.mu is held.
func (c *Connectivity) joined() []peer.ClusterID {
	var out []peer.ClusterID
	for _, peers := range []map[peer.ClusterID]bool{c.serves, c.uses} {
		for id := range peers {
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// node returns what the network of this cluster's one node is like, or why it has none that
// can be connected.
func (c *Connectivity) node(nodes []*corev1.Node) (network.Node, *Problem) {
	if !c.cfg.Enabled() {
		return network.Node{}, problemOff
	}
	var own []*corev1.Node
	for _, n := range nodes {
		if !strings.HasPrefix(n.Spec.ProviderID, vnode.ProviderPrefix) {
			own = append(own, n)
		}
	}
	switch {
	case len(own) == 0:
		return network.Node{}, problemUnknown
	case len(own) > 1:
		return network.Node{}, &Problem{Reason: ReasonSeveralNodes, Message: fmt.Sprintf("This cluster has %d nodes of its own. Only a cluster with one node can be connected.", len(own))}
	}
	ranges := rangesOf(own[0])
	if len(ranges) == 0 {
		return network.Node{}, &Problem{Reason: ReasonNoRange, Message: fmt.Sprintf("Node %s has no range of addresses for pods (spec.podCIDR).", own[0].Name)}
	}
	addresses, err := c.cfg.Addresses()
	if err != nil {
		return network.Node{}, &Problem{Reason: ReasonElsewhere, Message: fmt.Sprintf("The addresses of this machine cannot be read: %v.", err)}
	}
	var out network.Node
	for _, text := range ranges {
		pods, err := netip.ParsePrefix(text)
		if err != nil {
			continue
		}
		if host, ok := within(pods, addresses); ok {
			out.Pods, out.Host = append(out.Pods, pods.Masked()), append(out.Host, host)
		}
	}
	if len(out.Pods) == 0 {
		return network.Node{}, &Problem{Reason: ReasonElsewhere, Message: fmt.Sprintf("No address of this machine is in %s, the range of node %s: the agent does not run on that node, or no pod does.",
			strings.Join(ranges, ", "), own[0].Name)}
	}
	return out, nil
}

// rangesOf returns the ranges of a node's pods.
func rangesOf(n *corev1.Node) []string {
	if len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR != "" {
		return []string{n.Spec.PodCIDR}
	}
	return n.Spec.PodCIDRs
}

// within returns the first address of this machine in a range: that of the bridge of its
// pods.
func within(pods netip.Prefix, addresses []net.Addr) (netip.Addr, bool) {
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && pods.Contains(p.Addr()) {
			return p.Addr(), true
		}
	}
	return netip.Addr{}, false
}

// grants says who reaches whom, by what the caches have.
type grants struct {
	server    netip.AddrPort // the API server; not valid: nobody reaches it
	tokens    func(namespace string) bool
	pods      []netip.Prefix
	host      []netip.Addr
	consumer  func(namespace string) (id peer.ClusterID, known bool)
	providers map[string]peer.ClusterID // by node
	w         *watched
	holders   map[netip.Addr]int // how many living pods here show an address
	away      map[peer.ClusterID]away
}

// away are the addresses of our pods at a provider.
type away struct {
	all, enabled []netip.Prefix // enabled: those of namespaces that are enabled for sharing
	tokens       []netip.Prefix // those that may have tokens with them
}

// count counts who shows which address. After a reboot, pods show the address that they had until they are started again,
// and others may have got it meanwhile. Nothing says whose it is now, so a permission of one would be one to reach the other:
// an address that two show is granted to neither, until only one does.
func (g *grants) count() {
	g.holders = make(map[netip.Addr]int)
	for _, p := range g.w.pods.All() {
		if _, virtual := g.providers[p.Spec.NodeName]; virtual || p.Spec.HostNetwork || workload.Ended(p.Status.Phase) {
			continue
		}
		for _, a := range addresses(p, g.pods) {
			g.holders[a.Addr()]++
		}
	}
}

// place notes which of our pods are at which provider.
func (g *grants) place(uses map[peer.ClusterID]bool, n Network) {
	g.away = make(map[peer.ClusterID]away)
	blocks := make(map[peer.ClusterID][]netip.Prefix)
	for id := range uses {
		status, _ := n.Status(id)
		blocks[id] = status.Blocks.Theirs
	}
	for _, p := range g.w.pods.All() {
		id := g.providers[p.Spec.NodeName]
		if p.Spec.HostNetwork || workload.Ended(p.Status.Phase) {
			continue
		}
		if own := addresses(p, blocks[id]); len(own) > 0 {
			a := g.away[id]
			a.all = append(a.all, own...)
			if ns := g.w.namespaces.Get("", p.Namespace); ns != nil {
				a.enabled = append(a.enabled, own...)
				if ns.Labels[workload.LabelTokens] == "true" && g.tokens(p.Namespace) {
					a.tokens = append(a.tokens, own...)
				}
			}
			g.away[id] = a
		}
	}
	for _, a := range g.away { // so that what is the same looks the same
		slices.SortFunc(a.all, netip.Prefix.Compare)
		slices.SortFunc(a.enabled, netip.Prefix.Compare)
		slices.SortFunc(a.tokens, netip.Prefix.Compare)
	}
}

// between adds what our pods at other providers and those at a peer are connected with: each other, by way of us.
func (g *grants) between(id peer.ClusterID, out *network.Peer) {
	out.Thirds = []netip.Addr{}
	for _, other := range slices.Sorted(maps.Keys(g.away)) {
		if other == id || len(g.away[id].all) == 0 {
			continue
		}
		for _, p := range g.away[other].all {
			out.Thirds = append(out.Thirds, p.Addr())
		}
		if to := g.away[id].enabled; len(to) > 0 {
			out.Out = append(out.Out, filter.Grant{From: g.away[other].all, To: to, By: string(other)})
		}
	}
}

// here returns the addresses of a pod here that no other one shows.
func (g *grants) here(p *corev1.Pod) []netip.Prefix {
	return slices.DeleteFunc(addresses(p, g.pods), func(a netip.Prefix) bool { return g.holders[a.Addr()] > 1 })
}

// of returns what a peer is connected with.
func (g *grants) of(id peer.ClusterID, serves, uses bool, n Network) network.Peer {
	out := network.Peer{ID: id}
	status, _ := n.Status(id)
	block := status.Blocks.Whole() // with pods that the peer has elsewhere
	if len(block) == 0 {
		return out // nothing was agreed on yet
	}
	remote := g.away[id].all
	var guests, own, home []netip.Prefix // own: all that are nobody's guests; home: those of enabled namespaces
	for _, p := range g.w.pods.All() {
		if p.Spec.HostNetwork || workload.Ended(p.Status.Phase) {
			continue
		}
		_, virtual := g.providers[p.Spec.NodeName]
		consumer, _ := g.consumer(p.Namespace)
		switch {
		case virtual:
		case serves && consumer == id:
			guests = append(guests, g.here(p)...)
		case consumer == "":
			own = append(own, g.here(p)...)
			if g.w.namespaces.Get("", p.Namespace) != nil {
				home = append(home, g.here(p)...)
			}
		}
	}
	for _, list := range [][]netip.Prefix{guests, own, home} {
		slices.SortFunc(list, netip.Prefix.Compare)
	}
	if serves && len(guests) > 0 {
		theirs := without(block, remote) // our own pods there are in the same block
		out.In = append(out.In, filter.Grant{From: theirs, To: guests})
		out.Out = append(out.Out, filter.Grant{From: guests, To: theirs, By: string(id)})
	}
	if uses && len(remote) > 0 {
		for _, h := range g.host {
			own = append(own, netip.PrefixFrom(h, h.BitLen()))
		}
		out.Out = append(out.Out, filter.Grant{From: own, To: remote})
		if len(home) > 0 {
			out.In = append(out.In, filter.Grant{From: remote, To: home})
		}
		if from := g.away[id].tokens; len(from) > 0 && g.server.IsValid() {
			out.API = filter.API{From: from, At: g.server}
		}
	}
	g.between(id, &out)
	return out
}

// without returns the addresses of prefixes that are in none of others.
func without(prefixes, others []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range prefixes {
		inside := slices.DeleteFunc(slices.Clone(others), func(o netip.Prefix) bool { return !o.Overlaps(p) })
		switch {
		case len(inside) == 0:
			out = append(out, p)
		case !slices.ContainsFunc(inside, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() }):
			upper := p.Masked().Addr().AsSlice()
			upper[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
			addr, _ := netip.AddrFromSlice(upper)
			out = append(out, without([]netip.Prefix{netip.PrefixFrom(p.Masked().Addr(), p.Bits()+1), netip.PrefixFrom(addr, p.Bits()+1)}, inside)...)
		}
	}
	return out
}

// addresses returns the addresses of a pod that are within ranges.
func addresses(p *corev1.Pod, ranges []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, ip := range p.Status.PodIPs {
		addr, err := netip.ParseAddr(ip.IP)
		if err == nil && slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(addr) }) {
			out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return out
}
