package peering

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"liqo.io/agent/api"
	endpointclient "liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/config"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/peering/remote"
	"liqo.io/agent/sharing/offer"
)

// Config is what a Controller needs. All fields are required but those that say
// otherwise. Its functions are called on several goroutines.
type Config struct {
	// Kubeconfig returns the setting, as in conn.Config.
	Kubeconfig func() string
	// Registry knows the peers.
	Registry Registry
	// Identity returns who this cluster is; an empty ClusterID means "not known
	// yet", and then none is published.
	Identity func() peer.Identity
	// OnClusterID is called when the API server holds another valid cluster ID than
	// Identity returns; nothing is overwritten. It is called once per such ID and
	// connection, on a goroutine of the Controller that waits for it.
	OnClusterID func(id peer.ClusterID)
	// Namespace is where the ConfigMap with the cluster ID and the Secrets with the
	// peers' identities live, and the service accounts as which peers reach the API
	// server. It is created when it does not exist.
	Namespace string

	// Decisions keeps the decisions.
	Decisions Decisions
	// Peers calls the peers' endpoints.
	Peers remote.Caller
	// Greeting returns what is said about this cluster in those calls.
	Greeting func() wire.Greeting
	// LostAfter returns how long a peering outlives the absence of its peer; 0 is
	// for as long as it takes.
	LostAfter func() time.Duration
	// Webhook returns the manifest of the admission webhook's configuration, nil
	// while there is none. The field may be nil.
	Webhook func() map[string]any
	// Interval is the time between two looks at the state of a peer that there is
	// a peering with; 0 means 30 seconds.
	Interval time.Duration
	// Viewed is told that the View of a peer may have changed. It must not block.
	// The field may be nil.
	Viewed func(id peer.ClusterID)
	// Reached is told where a peer answered a call. It must not block. The field may
	// be nil.
	Reached func(id peer.ClusterID, at endpointclient.Result)
	// TokenUsed is told that a peer took the invite token it was asked with. The
	// field may be nil.
	TokenUsed func(id peer.ClusterID)

	// URLs asks the URLs that people wrote into ForeignClusters who is there. The
	// field may be nil: then nobody is asked.
	URLs URLProber
	// URLsAsked are the names of the ForeignClusters whose URLs led to a cluster when the
	// last run ended: those that are gone are told to URLs.Stop.
	URLsAsked []string

	// People is about what people say in SearchDomains and the ClusterConfig, and what
	// their status is to say.
	People config.Config
	// StatusChanged is told that Status answers otherwise than before in more than its
	// counters. It must neither block nor call Status. The field may be nil.
	StatusChanged func()

	// Sharing turns peerings into capacity. The field may be nil: then there are
	// peerings, and nothing else comes of them.
	Sharing Sharing
	// SharingSettings returns the settings of [sharing]. It is asked again and again;
	// SharingChanged says that the answer is another. The field may be nil: then all
	// that is free is offered, and every offer accepted.
	SharingSettings func() plan.SharingSettings
	// Liqo peers clusters by Liqo 1.x, and Engine returns the setting peering.engine. The fields
	// may be nil: then the agents peer all clusters.
	Liqo   Liqo
	Engine func() engine.Setting
	// While runs beside the Controller while there is a connection. The field may be
	// nil.
	While While

	// Logger receives one line per change of the connection.
	Logger *slog.Logger
	// Now is the clock; nil means time.Now. It must have a monotonic part.
	Now func() time.Time
}

// Controller keeps the objects about peers in the local API server equal to what
// the registry knows and the decision store says, and ours at the peers. See the
// package's documentation.
type Controller struct {
	observer
	link      *conn.Link
	looks     looks
	checkEach time.Duration // how often what the agent needs there is looked at

	mu       sync.Mutex
	session  *session         // nil while there is no connection
	upstream gateway.Upstream // of the session
	users    api.PeerUsers    // of the last session
}

// New returns a Controller that does nothing until Run is called.
func New(cfg Config) *Controller {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Webhook == nil {
		cfg.Webhook = func() map[string]any { return nil }
	}
	if cfg.Viewed == nil {
		cfg.Viewed = func(peer.ClusterID) {}
	}
	if cfg.Reached == nil {
		cfg.Reached = func(peer.ClusterID, endpointclient.Result) {}
	}
	if cfg.SharingSettings == nil {
		cfg.SharingSettings = plan.DefaultSharing
	}
	if cfg.TokenUsed == nil {
		cfg.TokenUsed = func(peer.ClusterID) {}
	}
	c := &Controller{
		observer:  observer{cfg: &cfg, peers: newPeerStates(), allocator: offer.NewAllocator(), urls: newURLProbes(cfg.URLs, cfg.URLsAsked)},
		users:     api.PeerUsers{Namespace: cfg.Namespace},
		checkEach: time.Minute,
	}
	c.link = conn.New(conn.Config{
		Kubeconfig: cfg.Kubeconfig, Another: c.peers.anotherServer, StatusChanged: cfg.StatusChanged, Logger: cfg.Logger, Now: cfg.Now,
	})
	c.remote = remote.New(remote.Config{
		Peers: cfg.Peers, Greeting: cfg.Greeting, Changed: c.answered, Reached: cfg.Reached, TokenUsed: cfg.TokenUsed,
		Interval: cfg.Interval, Logger: cfg.Logger,
	})
	return c
}

// SetInterval changes Config.Interval, for looks planned from now on. Any
// goroutine may call it at any time.
func (c *Controller) SetInterval(d time.Duration) { c.remote.SetInterval(d) }

// Enqueue says that something about a cluster may have changed. It never blocks.
// Without a connection nothing is done about it, because the next connection
// begins with looking at every cluster; only that a peer is back is kept, so that
// an absence that ended does not count. Any goroutine may call it at any time.
func (c *Controller) Enqueue(id peer.ClusterID) {
	if s := c.current(); s != nil {
		s.queue.Add(id)
		return
	}
	c.observer.noteReach(id)
}

// answered takes in that something is known about a peer's side that was not.
func (c *Controller) answered(id peer.ClusterID) {
	c.Enqueue(id)
	c.cfg.Viewed(id)
}

// current returns the session, nil while there is no connection.
func (c *Controller) current() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// APIStatus says how the Controller gets on with the API server.
type APIStatus struct {
	conn.Status
	// ForeignClusters is the number of objects in the API server.
	ForeignClusters int
	// DiskPressed are the nodes of this cluster whose disks are nearly full, in order.
	DiskPressed []string
}

// Status says how the Controller gets on with the API server. Any goroutine may
// call it at any time.
func (c *Controller) Status() APIStatus {
	status := APIStatus{Status: c.link.Status()}
	if s := c.current(); s != nil {
		status.ForeignClusters = s.foreign.Len()
		for _, n := range s.nodes.All() {
			if n.DiskPressed() {
				status.DiskPressed = append(status.DiskPressed, n.Name)
			}
		}
		slices.Sort(status.DiskPressed)
	}
	return status
}

// Stats are what the Controller did since New, besides what Status
// says.
type Stats struct {
	conn.Stats

	// Reconciled are the looks at a cluster that came to an end. Retried are those
	// that failed and are tried again, and Rejected those where the API server refused
	// an object as invalid.
	Reconciled, Retried, Rejected uint64
}

// looks counts looks at clusters by how they ended.
type looks struct{ reconciled, retried, rejected atomic.Uint64 }

// Stats returns the counts. Any goroutine may call it at any time.
func (c *Controller) Stats() Stats {
	return Stats{
		Stats:      c.link.Stats(),
		Reconciled: c.looks.reconciled.Load(), Retried: c.looks.retried.Load(), Rejected: c.looks.rejected.Load(),
	}
}

// Run works until ctx ends, and returns nil then. It waits for a kubeconfig and
// for an API server as long as it takes, and starts over when one of them is
// replaced or fails.
//
// The peers are asked and told all the time, also while there is no API server.
func (c *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	asked := make(chan error, 1)
	go func() {
		defer cancel()
		asked <- c.remote.Run(ctx)
	}()
	c.link.Run(ctx, c.connect)
	cancel()
	return <-asked
}
