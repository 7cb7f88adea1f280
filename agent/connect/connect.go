package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/network"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/connectivity"
	"liqo.io/agent/sharing/host"
	"liqo.io/agent/sharing/names"
	"liqo.io/agent/sharing/workload"
	"liqo.io/agent/state"
	"liqo.io/agent/throttle"
)

// Device is the name of the network device to all peers.
const Device = "liqo0"

// refusedPause is how long a peer that cannot be connected is left alone.
const refusedPause = 5 * time.Minute

// Database keeps addresses. It is *state.Store.
type Database interface {
	Networks(ctx context.Context) (map[peer.ClusterID]state.NetworkBlocks, error)
	SetNetwork(ctx context.Context, id peer.ClusterID, b state.NetworkBlocks) error
}

// Client connects to peers. It is *client.Client of package endpoint.
type Client interface {
	Network(ctx context.Context, target peer.Target) (net.Conn, error)
}

// Config is what a Connect needs. Its functions are called on several goroutines and must be
// quick.
type Config struct {
	Self     func() peer.ClusterID
	Settings func() config.Config
	Database Database
	Client   Client
	// Trusted reports whether a peer is trusted now, and not blocked: with others, no packets are exchanged.
	Trusted func(id peer.ClusterID) bool
	// Consumer returns whose guests are in a namespace here, "" for nobody's; known is false
	// while that is not known.
	Consumer func(namespace string) (id peer.ClusterID, known bool)
	// Tokens reports whether pods of a namespace may have service account tokens with them at
	// providers, if it is labelled so.
	Tokens func(namespace string) bool
	// Namespaces returns the namespaces here of a consumer, by those that they stand for.
	Namespaces func(consumer peer.ClusterID) map[string]string
	// Changed is told that what Use or Serve return about a peer has changed.
	Changed func(id peer.ClusterID)
	Logger  *slog.Logger
}

// Connect connects this cluster with peers. Its methods may be called from any goroutine.
type Connect struct {
	cfg    Config
	engine *network.Engine
	rules  *connectivity.Connectivity
	names  *names.Server

	mu      sync.Mutex
	targets map[peer.ClusterID]peer.Target
	shown   map[peer.ClusterID]*shown
	stated  map[peer.ClusterID]*stated
	changes *throttle.Buckets[peer.ClusterID]
	// versions is how many networks were made for pods.
	versions uint64
	asked    time.Time                      // when nameservers were asked for first, and not known
	silent   time.Time                      // the same of a cluster DNS that does not answer, zero once it has
	unnamed  map[peer.ClusterID]*time.Timer // for the end of these waits
}

// unknown is what pods show of a network of which nothing is known yet.
var unknown = &workload.Network{Unknown: true}

// How long a path may be without a connection before pods count as unreachable: their agent or
// ours may have been restarted, which ends no connection of theirs. New pods wait as long at first, for whom to ask for names.
const (
	graceAtFirst = 10 * time.Second
	graceLater   = 3 * time.Second
)

// graceOfDNS is how long new pods wait for a cluster DNS that does not answer, as after a start of the machine. It begins anew only
// after the DNS has answered.
const graceOfDNS = 2 * time.Minute

// absentAfter is for how long one of the two sides must have said that it connects no networks until pods run as if there
// had never been one. A peer whose agent or machine starts says so until it knows its nodes, and connections go on then.
const absentAfter = 2 * time.Minute

// shown is what is shown of the path to a peer.
type shown struct {
	down      string // why no packets pass, for the pods of a provider; "" while they do
	blocks    network.Blocks
	own       []netip.Prefix
	thirds    map[netip.Addr]netip.Addr
	pods      *workload.Network // made of these; nil: not yet
	held      *workload.Network // what pods show is left as it is; nil: not yet
	connected bool              // there was a connection since the agent started
	absent    bool              // there is no network, and not only one that is down, until there is a connection
	again     *time.Timer       // for the end of the grace; nil for none
}

// New returns a Connect that connects nobody. It starts nothing.
func New(cfg Config) *Connect {
	c := &Connect{
		cfg: cfg, targets: make(map[peer.ClusterID]peer.Target), shown: make(map[peer.ClusterID]*shown),
		stated: make(map[peer.ClusterID]*stated), unnamed: make(map[peer.ClusterID]*time.Timer), changes: throttle.New[peer.ClusterID](changeRate, changeBurst, changePeers),
	}
	c.engine = network.New(network.Config{
		Self: cfg.Self, Device: Device, Dial: c.dial, Trusted: cfg.Trusted, Load: c.load,
		Store: func(ctx context.Context, id peer.ClusterID, b network.Blocks) error {
			return cfg.Database.SetNetwork(ctx, id, state.NetworkBlocks(b))
		},
		Range: func() netip.Prefix {
			if p, err := netip.ParsePrefix(cfg.Settings().Sharing.NetworkRange); err == nil {
				return p
			}
			return network.DefaultRange
		},
		Changed: c.changed, Logger: cfg.Logger,
	})
	c.names = names.New(names.Config{
		Namespaces: cfg.Namespaces, Outside: func() bool { return cfg.Settings().Sharing.GuestEgress != host.EgressNone },
		Changed: c.changedForAll, Logger: cfg.Logger,
	})
	c.rules = connectivity.New(connectivity.Config{
		Network: c.engine, Names: c.names, Enabled: func() bool { return cfg.Settings().Sharing.Network == config.NetworkAuto },
		Tokens: cfg.Tokens, Consumer: cfg.Consumer, Changed: c.changedForAll, Logger: cfg.Logger,
	})
	return c
}

// Endpoint returns what takes the connections of peers for packets.
func (c *Connect) Endpoint() endpoint.Network { return c.engine }

// Run carries packets, until ctx ends.
func (c *Connect) Run(ctx context.Context) error { return c.engine.Run(ctx) }

// RunNames answers the DNS queries of guests, until ctx ends.
func (c *Connect) RunNames(ctx context.Context) error { return c.names.Run(ctx) }

// RunRules decides who reaches whom, by what the local API server says, until ctx ends.
func (c *Connect) RunRules(ctx context.Context, local *rest.Config) error {
	return c.rules.Run(ctx, local)
}

// Touch says that settings, or who owns which namespace, may have changed.
func (c *Connect) Touch() { c.rules.Touch() }

// Settled says that all peers that are joined were told of: what is left of others goes.
func (c *Connect) Settled() { c.rules.Settled() }

// Use says whether this cluster uses resources of a peer, and where any peer with which it
// shares is. It returns what pods there show of their network here, nil for nothing.
func (c *Connect) Use(id peer.ClusterID, target peer.Target, joined bool) *workload.Network {
	c.mu.Lock()
	moved := !reflect.DeepEqual(c.targets[id], target)
	if target.Fingerprint.IsZero() {
		delete(c.targets, id)
	} else {
		c.targets[id] = target
	}
	c.mu.Unlock()
	c.rules.Use(id, joined)
	if target.Fingerprint.IsZero() {
		c.engine.Distrust(id)
	}
	if moved {
		c.engine.Moved(id)
	}
	if !joined {
		return nil
	}
	return c.pods(id)
}

// Decided says that something was decided about a peer. The connection to one that is not trusted any more ends at once: while
// there is no API server, nobody calls Use, and while a blocked provider's node is drained, its target stays.
func (c *Connect) Decided(id peer.ClusterID) {
	if c.cfg.Trusted(id) {
		c.engine.Moved(id) // it may be again
	} else {
		c.engine.Distrust(id)
	}
}

// Serve says whether a peer uses resources of this cluster, and returns the addresses here of the
// peer's pods, wherever these run, nil while there are none, and whether it is known that no
// packets pass.
func (c *Connect) Serve(id peer.ClusterID, joined bool) (network []netip.Prefix, down bool) {
	c.rules.Serve(id, joined)
	if !joined {
		return nil, true
	}
	c.rules.Touch() // its namespaces may be others
	problem := c.rules.Problem()
	status, ok := c.engine.Status(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	known, sure := c.path(id, problem, status, ok)
	if known == nil {
		return nil, sure
	}
	if known.absent {
		return nil, true
	}
	return status.Blocks.Whole(), known.down != ""
}

// Nameservers returns the addresses at which pods of a consumer that is served are to ask for names, nil while
// these cannot be answered, or the consumer cannot be connected. known is false for a moment after the start, and for longer
// while the cluster DNS does not answer: a pod keeps for all of its life whom it was told to ask.
func (c *Connect) Nameservers(id peer.ClusterID) (servers []netip.Addr, known bool) {
	problem := c.rules.Problem()
	status, ok := c.engine.Status(id)
	pending := c.names.Pending() // before the other: it may end with that one's beginning
	return c.nameservers(id, problem, status, ok, c.names.Serving(), pending)
}

func (c *Connect) nameservers(id peer.ClusterID, problem *connectivity.Problem, status network.Status, ok bool, serving []netip.Addr, pending bool) (servers []netip.Addr, known bool) {
	undecided := !ok && passes(problem)
	c.mu.Lock()
	defer c.mu.Unlock()
	if timer := c.unnamed[id]; timer != nil {
		timer.Stop()
		delete(c.unnamed, id)
	}
	if len(serving) > 0 {
		c.silent = time.Time{}
	}
	switch {
	case !undecided && (!ok || len(status.Blocks.Theirs) == 0 && status.Problem != nil):
		return nil, true
	case !undecided && (len(serving) > 0 || !pending):
		return serving, true
	}
	since, grace := &c.asked, graceAtFirst
	if !undecided || problem != nil && problem.Passing {
		// After a start of the machine, the bridge of its pods may have no address before CoreDNS is among these.
		since, grace = &c.silent, graceOfDNS
	}
	if since.IsZero() {
		*since = time.Now()
	}
	wait := grace - time.Since(*since)
	if wait <= 0 { // pods without these names are better than none
		return nil, true
	}
	c.unnamed[id] = time.AfterFunc(wait, func() { c.cfg.Changed(id) })
	return nil, false
}

// Names returns what there is to know about the DNS queries of guests: at which addresses they
// are answered, none if they are not; how many were; and why they are not answered, nil if
// nobody needs it.
func (c *Connect) Names() ([]netip.Addr, names.Stats, error) {
	return c.names.Serving(), c.names.Stats(), c.names.Problem()
}

// pods returns what pods of a peer show of their network here: the same pointer while it
// says the same.
func (c *Connect) pods(id peer.ClusterID) *workload.Network {
	problem := c.rules.Problem()
	status, ok := c.engine.Status(id)
	return c.show(id, problem, status, ok)
}

func (c *Connect) show(id peer.ClusterID, problem *connectivity.Problem, status network.Status, ok bool) *workload.Network {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, sure := c.path(id, problem, status, ok)
	switch {
	case known == nil && !sure:
		return unknown // or it is connected in a moment, with the addresses that are stored
	case known == nil, known.absent:
		return nil
	case !known.connected && problem == nil && (known.down == "" || absence(status) != ""):
		// Before the agent started, pods may have been without a network.
		if held := known.held; held == nil || held.Down != known.down || held.Domain != c.rules.Domain() {
			known.held = &workload.Network{Unknown: true, Down: known.down, Domain: c.rules.Domain()}
		}
		return known.held
	}
	if known.pods == nil || known.pods.Down != known.down || !reflect.DeepEqual(known.blocks, status.Blocks) || !slices.Equal(known.own, status.Own) {
		known.blocks, known.own, known.thirds = status.Blocks, status.Own, status.Thirds
		c.versions++
		known.pods = &workload.Network{
			Here: status.Blocks.Here, Blocks: status.Blocks.Theirs, Down: known.down, Domain: c.rules.Domain(),
			There:  func(pod netip.Addr) (netip.Addr, bool) { return status.Blocks.There(pod, status.Own) },
			Thirds: status.Thirds, Version: c.versions,
		}
	}
	if !reflect.DeepEqual(known.thirds, status.Thirds) {
		known.thirds = status.Thirds
		next := *known.pods
		next.Thirds = status.Thirds
		known.pods = &next
	}
	return known.pods
}

// passes reports whether a peer that is not connected may be in a moment.
func passes(problem *connectivity.Problem) bool {
	return problem == nil || problem.Reason == connectivity.ReasonUnknown || problem.Passing
}

// path returns what is known of the path to a peer, nil while nothing was agreed on, and whether
// that is sure, and not only not known yet. c.mu is held.
func (c *Connect) path(id peer.ClusterID, problem *connectivity.Problem, status network.Status, ok bool) (known *shown, sure bool) {
	if !ok && passes(problem) || ok && !status.Known {
		return nil, false
	}
	known = c.shown[id]
	if !ok || len(status.Blocks.Theirs) == 0 {
		if known != nil {
			stop(&known.again)
			delete(c.shown, id)
		}
		return nil, true
	}
	if known == nil {
		known = &shown{}
		c.shown[id] = known
	}
	stop(&known.again)
	switch wait := grace(known.connected) - time.Since(status.Since); {
	case problem != nil: // the connection ends soon
		known.down = "The network to the provider ends soon: " + problem.Message
	case status.State == network.Connected:
		known.connected, known.absent, known.down = true, false, ""
	case status.State == network.Connecting && wait > 0:
		known.again = time.AfterFunc(wait, func() { c.cfg.Changed(id) })
	default:
		known.down = "No packets pass between this cluster and the provider."
		if status.Problem != nil {
			known.down = fmt.Sprintf("No packets pass between this cluster and the provider: %v.", status.Problem)
		}
		switch wait := absentAfter - time.Since(status.Since); {
		case known.absent || absence(status) == "":
		case wait > 0:
			known.again = time.AfterFunc(wait, func() { c.cfg.Changed(id) })
		default:
			known.absent = true
		}
	}
	return known, true
}

// Refresh reads what the kernel counts, for Status.
func (c *Connect) Refresh() { c.engine.Refresh() }

// Status returns what is known about the network to a peer; false when it is not to be
// connected.
func (c *Connect) Status(id peer.ClusterID) (network.Status, bool) { return c.engine.Status(id) }

// Probe measures the way to a peer and back.
func (c *Connect) Probe(ctx context.Context, id peer.ClusterID) (time.Duration, error) {
	return c.engine.Probe(ctx, id)
}

// Problem returns why this cluster cannot be connected with any other, nil if it can.
func (c *Connect) Problem() *connectivity.Problem { return c.rules.Problem() }

// dial connects to a peer for packets.
func (c *Connect) dial(ctx context.Context, id peer.ClusterID) (net.Conn, error) {
	c.mu.Lock()
	target, known := c.targets[id]
	c.mu.Unlock()
	if !known || !c.cfg.Trusted(id) {
		return nil, errNoTarget
	}
	conn, err := c.cfg.Client.Network(ctx, target)
	var no *wire.Refused
	if errors.As(err, &no) && no.Reason != wire.ReasonNoNetwork { // that may be about to change
		return nil, refused{err}
	}
	return conn, err
}

// errNoTarget: a peer cannot be called.
var errNoTarget = errors.New("it is not known where the peer is, or its key is not trusted")

// refused is the error of a peer that does not want to be connected.
type refused struct{ error }

// RetryAfter says when it makes sense to try again.
func (refused) RetryAfter() time.Duration { return refusedPause }

// Unwrap returns what the peer said.
func (r refused) Unwrap() error { return r.error }

func (c *Connect) load(ctx context.Context) (map[peer.ClusterID]network.Blocks, error) {
	stored, err := c.cfg.Database.Networks(ctx)
	out := make(map[peer.ClusterID]network.Blocks, len(stored))
	for id, b := range stored {
		out[id] = network.Blocks(b)
	}
	return out, err
}

// changed is told that the path to a peer may be another.
func (c *Connect) changed(id peer.ClusterID) {
	c.rules.Touch()
	c.cfg.Changed(id)
}

// changedForAll is told that what is returned about all peers may be something else.
func (c *Connect) changedForAll() {
	c.mu.Lock()
	ids := make([]peer.ClusterID, 0, len(c.targets))
	for id := range c.targets {
		ids = append(ids, id)
	}
	c.mu.Unlock()
	for _, id := range ids {
		c.cfg.Changed(id)
	}
}
