package peering

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/offer"
)

const (
	// workers is how many clusters are reconciled at the same time. A write takes
	// the API server some milliseconds, most of them spent waiting for its disk.
	workers = 8

	// retryFirst and retryMax bound the pause before a cluster whose reconcile
	// failed is tried again.
	retryFirst = 50 * time.Millisecond
	retryMax   = 15 * time.Second
	// refusedRetry is the pause after the API server refused an object as invalid:
	// only another object can help, and that comes by itself.
	refusedRetry = 5 * time.Minute
	// longestWish bounds the pause that the API server may ask for.
	longestWish = time.Minute
	// steadyAfter is how long what goes along with a connection must have run for its
	// next failure to count as a new one.
	steadyAfter = time.Minute
	// unsettledRetry is the pause before a decision that waits for discovery to
	// settle is looked at again.
	unsettledRetry = time.Second
)

// session is one connection to an API server: from the first complete lists until
// the connection is lost.
type session struct {
	*sight
	link   *link
	client *client
	users  api.PeerUsers

	foreign  *store[*foreignCluster]
	requests *store[*api.PeeringRequest]
	offers   *store[*api.Advertisement]
	secrets  *store[*secret]
	roles    *store[*clusterRole]
	bindings *store[*clusterRoleBinding]
	nodes    *store[*offer.Node]

	ration *ration

	domains  *domains
	settings *runtimeConfig
	events   *announcer

	named      workqueue.TypedDelayingInterface[string] // ForeignClusters that people wrote, by name
	namedRetry workqueue.TypedRateLimiter[string]

	queue workqueue.TypedDelayingInterface[peer.ClusterID]
	retry workqueue.TypedRateLimiter[peer.ClusterID]
	check chan struct{} // what ensure made may be gone; capacity 1
	count chan struct{} // what there is to offer may have changed, or to whom; capacity 1

	mu      sync.Mutex
	refused map[peer.ClusterID]string // what was logged about a cluster
	failing map[string]bool           // kinds of failures that were logged
}

// patientRetries is how often something is tried again until its trouble is worth
// a line in the log: some ten seconds.
const patientRetries = 8

func (c *Controller) newSession(client *client) *session {
	s := &session{
		sight: &c.sight, link: c.link, client: client, users: api.PeerUsers{Namespace: c.cfg.Namespace},
		named:      workqueue.NewTypedDelayingQueue[string](),
		namedRetry: workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMax),
		queue:      workqueue.NewTypedDelayingQueue[peer.ClusterID](),
		retry:      workqueue.NewTypedItemExponentialFailureRateLimiter[peer.ClusterID](retryFirst, retryMax),
		check:      make(chan struct{}, 1),
		count:      make(chan struct{}, 1),
		refused:    make(map[peer.ClusterID]string),
		failing:    make(map[string]bool),
	}
	s.ration = newRation()
	s.foreign = newStore(foreignClusterKind(), s.foreignChanged())
	s.secrets = newStore(secretKind(c.cfg.Namespace), enqueuing(s, secretKind("").about))
	s.roles = newStore(roleKind(), enqueuing(s, roleKind().about))
	s.bindings = newStore(bindingKind(), enqueuing(s, bindingKind().about))
	s.requests = newStore(requestKind(), tracking(s, requestKind().about, func(m *memo) *trail { return &m.request }))
	s.offers = newStore(advertisementKind(), s.offerChanged())
	s.nodes = newStore(nodeKind(), func(_, _ *offer.Node, _ bool) { wake(s.count) })
	s.domains, s.settings = newDomains(s), newRuntimeConfig(s)
	s.events = newAnnouncer(s)
	return s
}

// enqueuing has the clusters looked at that a changed object is or was about.
func enqueuing[T object](s *session, about func(T) []peer.ClusterID) func(before, after T, restored bool) {
	var none T
	return func(before, after T, _ bool) {
		var ids []peer.ClusterID
		for _, o := range []T{before, after} {
			if o != none {
				ids = append(ids, about(o)...)
			}
		}
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			s.queue.Add(id)
		}
	}
}

// tracking is enqueuing for objects of which it matters who deleted them.
func tracking[T object](s *session, about func(T) []peer.ClusterID, trailOf func(*memo) *trail) func(before, after T, restored bool) {
	var none T
	enqueue := enqueuing(s, about)
	return func(before, after T, restored bool) {
		if after != none {
			for _, id := range about(after) {
				s.memory.with(id, func(m *memo) { trailOf(m).saw(after.GetUID(), s.cfg.Now()) })
			}
		} else {
			for _, id := range about(before) {
				s.memory.with(id, func(m *memo) { trailOf(m).gone(before.GetUID(), restored, s.cfg.Now()) })
			}
		}
		enqueue(before, after, restored)
	}
}

// wake sends to a channel of capacity 1, unless it was done before.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// connect installs the custom resources and works until the connection is lost
// or ctx ends. Every goroutine it starts has ended when it returns.
func (c *Controller) connect(ctx context.Context, client *client, upstream endpoint.Upstream, config *rest.Config) error {
	if err := ensureCRDs(ctx, client); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := c.newSession(client)
	var running sync.WaitGroup
	defer func() {
		cancel(nil)
		s.named.ShutDown()
		s.queue.ShutDown()
		running.Wait()
	}()
	rights, err := s.askRights(ctx, config)
	if err != nil {
		return err
	}
	defer rights.Close()
	s.users.Former = rights.former
	upstream.Users = s.users
	running.Go(func() { follow(ctx, s, s.foreign) })
	running.Go(func() { follow(ctx, s, s.requests) })
	running.Go(func() { follow(ctx, s, s.offers) })
	running.Go(func() { follow(ctx, s, s.secrets) })
	running.Go(func() { follow(ctx, s, s.roles) })
	running.Go(func() { follow(ctx, s, s.bindings) })
	running.Go(func() { follow(ctx, s, s.nodes) })
	running.Go(func() { s.settings.run(ctx) })
	if err := s.sync(ctx); err != nil {
		return err
	}
	s.memory.resume(s.requests, s.offers)
	s.memory.reconnected(s.cfg.Now())
	defer func() { s.memory.leave(s.requests, s.offers) }()
	s.countConsumers()

	// From here on Enqueue reaches the queue. What it missed before is added right
	// after: no change can fall between.
	c.attach(s, upstream)
	defer func() {
		c.attach(nil, endpoint.Upstream{})
		for _, id := range c.cfg.Registry.IDs() {
			c.cfg.Viewed(id)
		}
	}()
	c.link.connected(cancel)
	defer func() { c.link.disconnected(context.Cause(ctx)) }()
	s.enqueueAll()
	for range workers {
		running.Go(func() { s.work(ctx) })
	}
	running.Go(func() { s.followNamed(ctx) })
	running.Go(func() { s.keep(ctx, c.checkEach) })
	running.Go(func() { s.domains.run(ctx) })
	running.Go(func() { s.followCapacity(ctx, s.observed(config)) })
	running.Go(func() { s.runWhile(ctx, config) })
	running.Go(func() { s.askVersion(ctx) })
	running.Go(func() { s.events.run(ctx) })
	running.Go(func() { rights.await(ctx, c.pollEvery, cancel) })
	<-ctx.Done()
	return context.Cause(ctx)
}

// runWhile runs what goes along with the connection, until ctx ends.
func (s *session) runWhile(ctx context.Context, config *rest.Config) {
	if s.cfg.While == nil {
		return
	}
	config = s.observed(config)
	for wait := newBackoff(); ; {
		began := time.Now()
		if err := s.cfg.While(ctx, config); err != nil && ctx.Err() == nil {
			s.link.note(err)
			s.complainOnce("while", "sharing with peers failed, trying again", err)
		}
		if time.Since(began) >= steadyAfter {
			wait = newBackoff()
		}
		if wait.sleep(ctx) != nil {
			return
		}
	}
}

// observed returns the configuration of a client whose requests tell how the
// connection is.
func (s *session) observed(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(s.link.wrap)
	return config
}

func (c *Controller) attach(s *session, upstream endpoint.Upstream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.upstream = s, upstream
	if s != nil {
		c.users = s.users
	}
}

// follow keeps a store up to date until ctx ends.
func follow[T object](ctx context.Context, s *session, st *store[T]) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := listKind(ctx, s.client, st.kind, opts)
			if err != nil {
				s.checkIfMissing(err)
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := watchKind(ctx, s.client, st.kind, opts)
			s.checkIfMissing(err)
			return w, err
		},
	}
	r := cache.NewReflectorWithOptions(lw, st.kind.fresh(), st, cache.ReflectorOptions{
		Name: st.kind.gvk.Kind,
		Backoff: &wait.Backoff{
			Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Cap: backoffMax, Steps: math.MaxInt32,
		},
	})
	r.RunWithContext(ctx)
}

// sync waits for the first complete list of every kind.
func (s *session) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	for _, first := range []struct {
		kind   string
		synced chan struct{}
	}{
		{"ForeignClusters", s.foreign.synced},
		{"PeeringRequests", s.requests.synced},
		{"Advertisements", s.offers.synced},
		{"Secrets in namespace " + s.cfg.Namespace, s.secrets.synced},
		{"ClusterRoles", s.roles.synced},
		{"ClusterRoleBindings", s.bindings.synced},
		{"Nodes", s.nodes.synced},
	} {
		select {
		case <-first.synced:
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
				return cause
			}
			return fmt.Errorf("the API server does not list %s: %s", first.kind, s.link.snapshot().LastError)
		}
	}
	return nil
}

func (s *session) enqueueAll() {
	for _, ids := range [][]peer.ClusterID{
		s.cfg.Registry.IDs(), s.foreign.ids(), s.requests.ids(), s.offers.ids(), s.secrets.ids(), s.roles.ids(), s.bindings.ids(),
	} {
		for _, id := range ids {
			s.queue.Add(id)
		}
	}
}

func (s *session) work(ctx context.Context) {
	for {
		id, down := s.queue.Get()
		if down {
			return
		}
		s.process(ctx, id)
		s.queue.Done(id)
	}
}

// lookAfter has a cluster looked at after a pause, if it is not before.
func (s *session) lookAfter(id peer.ClusterID, pause time.Duration) {
	at := s.cfg.Now().Add(pause)
	s.memory.with(id, func(m *memo) {
		if m.next.IsZero() || at.Before(m.next) {
			m.next = at
		}
	})
	s.queue.AddAfter(id, pause)
}

// process reconciles one cluster and decides when to look at it again.
func (s *session) process(ctx context.Context, id peer.ClusterID) {
	s.memory.with(id, func(m *memo) { m.looked, m.next, m.failed = s.cfg.Now(), time.Time{}, nil })
	err := s.reconcile(ctx, id)
	if err != nil {
		s.memory.with(id, func(m *memo) { m.failed = err })
	}
	s.cfg.Viewed(id)
	switch {
	case err == nil:
		s.link.looks.reconciled.Add(1)
		s.retry.Forget(id)
		s.complain(id, nil)
	case ctx.Err() != nil:
		// The next connection looks at every cluster.
	case errors.Is(err, errNameTaken), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		s.link.looks.rejected.Add(1)
		s.retry.Forget(id)
		s.complain(id, err)
		s.lookAfter(id, jitter(refusedRetry))
	case apierrors.IsConflict(err), errors.Is(err, errReplaced), errors.Is(err, errMadeByOthers), errors.Is(err, errNoRoom):
		// Something changed meanwhile: what it is now is about to be known.
		s.link.looks.retried.Add(1)
		pause := jitter(s.retry.When(id))
		s.cfg.Logger.Debug("an object changed meanwhile, looking again", "cluster", id, "in", pause, "error", err)
		s.lookAfter(id, pause)
	default:
		s.link.looks.retried.Add(1)
		s.link.note(err)
		s.checkIfMissing(err)
		if s.retry.NumRequeues(id) == patientRetries {
			s.complainOnce(string(apierrors.ReasonForError(err)), "what was decided about peers cannot be carried out, trying again", err)
		}
		pause := jitter(s.retry.When(id))
		if seconds, asked := apierrors.SuggestsClientDelay(err); asked {
			pause += min(time.Duration(seconds)*time.Second, longestWish)
		}
		s.cfg.Logger.Debug("carrying out a decision failed, trying again", "cluster", id, "in", pause, "error", err)
		s.lookAfter(id, pause)
	}
}

// complain logs why nothing can be done for a cluster, once as long as the
// reason stays the same; nil is the end of it.
func (s *session) complain(id peer.ClusterID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.refused, id)
		return
	}
	s.link.note(err)
	if s.refused[id] != err.Error() {
		s.refused[id] = err.Error()
		s.cfg.Logger.Warn("an object about the cluster cannot be written", "cluster", id, "error", err)
	}
}

// complainOnce logs a failure that lasts, once for each kind while the connection
// lasts: the API server may fail in the same way for a thousand clusters.
func (s *session) complainOnce(kind, message string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link.note(err)
	if !s.failing[kind] {
		s.failing[kind] = true
		s.cfg.Logger.Warn(message, "error", err)
	}
}
