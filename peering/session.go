package peering

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/access"
	"liqo.io/agent/peering/config"
	"liqo.io/agent/peering/deletion"
	"liqo.io/agent/peering/events"
	"liqo.io/agent/peering/foreign"
	"liqo.io/agent/peering/install"
	"liqo.io/agent/peering/objects"
	"liqo.io/agent/sharing/offer"
)

const (
	// workers is how many clusters are reconciled at the same time. A write takes
	// the API server some milliseconds, most of them spent waiting for its disk.
	workers = 8

	// unsettledRetry is the pause before a decision that waits for discovery to
	// settle is looked at again.
	unsettledRetry = time.Second
)

// session is one connection to an API server: from the first complete lists until
// the connection is lost.
type session struct {
	*observer
	*conn.Session
	client *kube.Client
	keeper *install.Keeper
	looks  *looks
	users  api.PeerUsers

	foreign  *objects.Store[*foreign.Cluster]
	requests *objects.Store[*api.PeeringRequest]
	offers   *objects.Store[*api.Advertisement]
	access   *access.Objects
	nodes    *objects.Store[*offer.Node]

	quota *acceptQuota

	domains  *config.Domains
	settings *config.Settings
	events   *events.Recorder

	named *work.Queue[string] // ForeignClusters that people wrote, by name
	queue *work.Queue[peer.ClusterID]
	count chan struct{} // what there is to offer may have changed, or to whom; capacity 1

	mu      sync.Mutex
	refused map[peer.ClusterID]string // what was logged about a cluster
	// untold are the clusters that there were at the beginning, and of which Config.Sharing was not told since.
	untold map[peer.ClusterID]struct{}
}

func (c *Controller) newSession(connection *conn.Session, client *kube.Client) *session {
	s := &session{
		observer: &c.observer, Session: connection, client: client, looks: &c.looks, users: api.PeerUsers{Namespace: c.cfg.Namespace},
		count:   make(chan struct{}, 1),
		refused: make(map[peer.ClusterID]string), untold: make(map[peer.ClusterID]struct{}),
	}
	s.keeper = install.NewKeeper(install.Config{
		Identity: c.cfg.Identity, OnClusterID: c.cfg.OnClusterID, Namespace: c.cfg.Namespace, Webhook: c.cfg.Webhook, Logger: c.cfg.Logger,
	}, connection, client)
	s.named, s.queue = objects.NewQueue(s.attemptedNamed), objects.NewQueue(s.attempted)
	s.quota = newAcceptQuota()
	s.foreign = objects.NewStore(foreign.Kind(), s.foreignChanged(), s.keeper.CheckIfMissing)
	s.access = access.New(client, c.cfg.Namespace, s.queue.Add, s.keeper.CheckIfMissing)
	s.requests = objects.NewStore(requestKind(), tracking(s, requestKind(), func(m *peerState) *deletion.Tracker { return &m.request }), s.keeper.CheckIfMissing)
	s.offers = objects.NewStore(advertisementKind(), s.offerChanged(), s.keeper.CheckIfMissing)
	s.nodes = objects.NewStore(nodeKind(), func(_, _ *offer.Node, _ bool) { work.Wake(s.count) }, s.keeper.CheckIfMissing)
	people := config.Connection{Session: connection, Client: client, CheckIfMissing: s.keeper.CheckIfMissing, Logger: c.cfg.Logger, Now: c.cfg.Now}
	s.domains, s.settings = config.NewDomains(c.cfg.People, people), config.NewSettings(c.cfg.People, people)
	s.events = events.NewRecorder(events.Config{
		Client: client, Now: c.cfg.Now, Logger: c.cfg.Logger,
		Refused: func(err error) { s.WarnOnce("events", "what happens to peers cannot be told by Events", err) },
	})
	return s
}

// enqueuing has the clusters looked at that a changed object is or was about.
func enqueuing[T kube.Object](s *session, k objects.Kind[T]) func(before, after T, restored bool) {
	return func(before, after T, _ bool) {
		for _, id := range k.Concerned(before, after) {
			s.queue.Add(id)
		}
	}
}

// tracking is enqueuing for objects of which it matters who deleted them.
func tracking[T kube.Object](s *session, k objects.Kind[T], trackerOf func(*peerState) *deletion.Tracker) func(before, after T, restored bool) {
	enqueue := enqueuing(s, k)
	return func(before, after T, restored bool) {
		if !kube.IsNil(after) {
			for _, id := range k.About(after) {
				s.peers.with(id, func(m *peerState) { trackerOf(m).Observed(after.GetUID(), s.cfg.Now()) })
			}
		} else {
			for _, id := range k.About(before) {
				s.peers.with(id, func(m *peerState) { trackerOf(m).Deleted(before.GetUID(), restored, s.cfg.Now()) })
			}
		}
		enqueue(before, after, restored)
	}
}

// connect installs the custom resources and works until the connection is lost
// or ctx ends. Every goroutine it starts has ended when it returns.
func (c *Controller) connect(ctx context.Context, connection *conn.Session) error {
	client, err := kube.New(connection.Observed())
	if err != nil {
		return err
	}
	defer client.Close()
	s := c.newSession(connection, client)
	if err := s.keeper.CRDs(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	rights, err := access.AskRights(ctx, connection, c.cfg.Namespace, c.cfg.Logger)
	if err != nil {
		return err
	}
	defer rights.Close()
	s.users.Former = rights.Former
	passage := connection.Passage
	upstream := gateway.Upstream{Base: passage.Base, Transport: passage.Transport, Upgrade: passage.Upgrade, Users: s.users}
	running.Go(func() { s.foreign.Follow(ctx, s.client) })
	running.Go(func() { s.requests.Follow(ctx, s.client) })
	running.Go(func() { s.offers.Follow(ctx, s.client) })
	running.Go(func() { s.access.Follow(ctx) })
	running.Go(func() { s.nodes.Follow(ctx, s.client) })
	running.Go(func() { s.settings.Run(ctx) })
	if err := s.sync(ctx); err != nil {
		return err
	}
	s.peers.resume(s.requests, s.offers)
	s.peers.reconnected(s.cfg.Now())
	defer func() { s.peers.leave(s.requests, s.offers) }()
	s.countConsumers()
	for _, id := range s.known() {
		s.untold[id] = struct{}{}
	}

	// From here on Enqueue reaches the queue. What it missed before is added right
	// after: no change can fall between.
	c.attach(s, upstream)
	defer func() {
		c.attach(nil, gateway.Upstream{})
		for _, id := range c.cfg.Registry.IDs() {
			c.cfg.Viewed(id)
		}
	}()
	s.Connected(cancel)
	defer func() { s.Disconnected(context.Cause(ctx)) }()
	s.enqueueAll()
	running.Go(func() { s.queue.Run(ctx, workers, s.process) })
	running.Go(func() { s.followNamed(ctx) })
	running.Go(func() { s.keeper.Run(ctx, c.checkEach) })
	running.Go(func() { s.domains.Run(ctx) })
	running.Go(func() { s.followCapacity(ctx) })
	if s.cfg.While != nil {
		running.Go(func() { s.cfg.While(ctx, s.Observed()) })
	}
	running.Go(func() { s.AskVersion(ctx, s.client) })
	running.Go(func() { s.events.Run(ctx) })
	running.Go(func() { rights.Await(ctx, cancel) })
	<-ctx.Done()
	return context.Cause(ctx)
}

func (c *Controller) attach(s *session, upstream gateway.Upstream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.upstream = s, upstream
	if s != nil {
		c.users = s.users
	}
}

// sync waits for the first complete list of every kind.
func (s *session) sync(ctx context.Context) error {
	return s.Sync(ctx, slices.Concat([]conn.Listed{
		{Kind: "ForeignClusters", Synced: s.foreign.Synced()},
		{Kind: "PeeringRequests", Synced: s.requests.Synced()},
		{Kind: "Advertisements", Synced: s.offers.Synced()},
	}, s.access.Listed(), []conn.Listed{
		{Kind: "Nodes", Synced: s.nodes.Synced()},
	}))
}

func (s *session) enqueueAll() {
	for _, id := range s.known() {
		s.queue.Add(id)
	}
}

// known returns the clusters that there is anything about, some of them more than once.
func (s *session) known() []peer.ClusterID {
	return slices.Concat(s.cfg.Registry.IDs(), s.foreign.IDs(), s.requests.IDs(), s.offers.IDs(), s.access.IDs())
}

// told notes that Config.Sharing was told of a cluster.
func (s *session) told(id peer.ClusterID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.untold, id)
}

// toldAll reports whether it was told of all clusters that there were at the beginning.
func (s *session) toldAll() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.untold) == 0
}

// result says whether an error can pass by itself.
func result(err error) work.Outcome {
	if errors.Is(err, errNameTaken) {
		return work.Permanent(err)
	}
	return objects.Result(err)
}

// process reconciles one cluster.
func (s *session) process(ctx context.Context, id peer.ClusterID) work.Outcome {
	s.peers.with(id, func(m *peerState) { m.looked, m.failed = s.cfg.Now(), nil })
	err := s.reconcile(ctx, id)
	if err != nil {
		s.peers.with(id, func(m *peerState) { m.failed = err })
	}
	s.cfg.Viewed(id)
	return result(err)
}

// attempted takes in how that ended.
func (s *session) attempted(id peer.ClusterID, a work.Attempt) {
	switch err := a.Err; {
	case err == nil:
		s.looks.reconciled.Add(1)
		s.warn(id, nil)
	case a.Permanent:
		s.looks.rejected.Add(1)
		s.warn(id, err)
	case apierrors.IsConflict(err), errors.Is(err, access.ErrReplaced), errors.Is(err, foreign.ErrMadeByOthers), errors.Is(err, errNoRoom):
		// Something changed meanwhile: what it is now is about to be known.
		s.looks.retried.Add(1)
		s.cfg.Logger.Debug("an object changed meanwhile, reconciling again", "cluster", id, "in", a.Next, "error", err)
	default:
		s.looks.retried.Add(1)
		s.NoteError(err)
		s.keeper.CheckIfMissing(err)
		if a.Failures == objects.PatientRetries {
			s.WarnOnce(string(apierrors.ReasonForError(err)), "what was decided about peers cannot be carried out, trying again", err)
		}
		s.cfg.Logger.Debug("carrying out an action failed, trying again", "cluster", id, "in", a.Next, "error", err)
	}
}

// warn logs err once per cluster until it changes; nil resets.
func (s *session) warn(id peer.ClusterID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.refused, id)
		return
	}
	s.NoteError(err)
	if s.refused[id] != err.Error() {
		s.refused[id] = err.Error()
		s.cfg.Logger.Warn("an object about the cluster cannot be written", "cluster", id, "error", err)
	}
}
