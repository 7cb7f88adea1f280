package peering

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
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
	// unsettledRetry is the pause before a decision that waits for discovery to
	// settle is looked at again.
	unsettledRetry = time.Second
)

// session is one connection to an API server: from the first complete list of
// ForeignClusters until the connection is lost.
type session struct {
	cfg    *Config
	link   *link
	client *client
	store  *store
	queue  workqueue.TypedDelayingInterface[peer.ClusterID]
	retry  workqueue.TypedRateLimiter[peer.ClusterID]
	check  chan struct{} // what ensure made may be gone; capacity 1

	mu      sync.Mutex
	refused map[peer.ClusterID]string // what was logged about a cluster
	failing map[string]bool           // kinds of failures that were logged
}

// patientRetries is how often something is tried again until its trouble is worth
// a line in the log: some ten seconds.
const patientRetries = 8

// connect installs the custom resources and works until the connection is lost
// or ctx ends. Every goroutine it starts has ended when it returns.
func (c *Controller) connect(ctx context.Context, client *client) error {
	if err := ensureCRDs(ctx, client); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	queue := workqueue.NewTypedDelayingQueue[peer.ClusterID]()
	s := &session{
		cfg: &c.cfg, link: c.link, client: client, queue: queue, store: newStore(queue.Add),
		retry:   workqueue.NewTypedItemExponentialFailureRateLimiter[peer.ClusterID](retryFirst, retryMax),
		check:   make(chan struct{}, 1),
		refused: make(map[peer.ClusterID]string),
		failing: make(map[string]bool),
	}
	var running sync.WaitGroup
	defer func() {
		cancel(nil)
		queue.ShutDown()
		running.Wait()
	}()
	running.Go(func() { s.reflect(ctx) })
	if err := s.sync(ctx); err != nil {
		return err
	}

	// From here on Enqueue reaches the queue. What it missed before is added right
	// after: no change can fall between.
	c.attach(s)
	defer c.attach(nil)
	c.link.connected(cancel)
	defer func() { c.link.disconnected(context.Cause(ctx)) }()
	s.enqueueAll()
	for range workers {
		running.Go(func() { s.work(ctx) })
	}
	running.Go(func() { s.keep(ctx, c.checkEach) })
	<-ctx.Done()
	return context.Cause(ctx)
}

func (c *Controller) attach(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = s
}

// reflect keeps the store up to date until ctx ends.
func (s *session) reflect(ctx context.Context) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := s.client.list(ctx, opts)
			s.checkIfMissing(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := s.client.watch(ctx, opts)
			s.checkIfMissing(err)
			return w, err
		},
	}
	r := cache.NewReflectorWithOptions(lw, &api.ForeignCluster{}, s.store, cache.ReflectorOptions{
		Name: "foreignclusters",
		Backoff: &wait.Backoff{
			Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Cap: backoffMax, Steps: math.MaxInt32,
		},
	})
	r.RunWithContext(ctx)
}

// sync waits for the first complete list.
func (s *session) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	select {
	case <-s.store.synced:
		return nil
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
			return cause
		}
		return errors.New("the API server does not list ForeignClusters: " + s.link.snapshot().LastError)
	}
}

func (s *session) enqueueAll() {
	for _, id := range s.cfg.Registry.IDs() {
		s.queue.Add(id)
	}
	for _, id := range s.store.ids() {
		s.queue.Add(id)
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

// errNameTaken: no ForeignCluster can be created for a cluster.
var errNameTaken = errors.New("a ForeignCluster that is not about this cluster has its ID as name; delete it or give it another name")

// process reconciles one cluster and decides when to look at it again.
func (s *session) process(ctx context.Context, id peer.ClusterID) {
	err := s.reconcile(ctx, id)
	switch {
	case err == nil:
		s.retry.Forget(id)
		s.complain(id, nil)
	case ctx.Err() != nil:
		// The next connection looks at every cluster.
	case errors.Is(err, errNameTaken), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		s.retry.Forget(id)
		s.complain(id, err)
		s.queue.AddAfter(id, jitter(refusedRetry))
	default:
		s.link.note(err)
		s.checkIfMissing(err)
		if s.retry.NumRequeues(id) == patientRetries {
			s.complainOnce(string(apierrors.ReasonForError(err)), "ForeignClusters cannot be written, trying again", err)
		}
		pause := jitter(s.retry.When(id))
		if seconds, asked := apierrors.SuggestsClientDelay(err); asked {
			pause += min(time.Duration(seconds)*time.Second, longestWish)
		}
		s.cfg.Logger.Debug("writing a ForeignCluster failed, trying again", "cluster", id, "in", pause, "error", err)
		s.queue.AddAfter(id, pause)
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
		s.cfg.Logger.Warn("the cluster's ForeignCluster cannot be written", "cluster", id, "error", err)
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

// reconcile takes the next steps for one cluster.
func (s *session) reconcile(ctx context.Context, id peer.ClusterID) error {
	obs := Observed{ID: id, Settled: s.cfg.Registry.Settled(), Objects: s.store.about(id)}
	if p, known := s.cfg.Registry.Peer(id); known {
		obs.Peer = &p
	}
	if !obs.Settled && obs.unseen() && len(obs.Objects) > 0 {
		s.queue.AddAfter(id, unsettledRetry)
	}
	if obs.blocked() {
		return errNameTaken
	}
	for _, action := range Plan(obs, s.cfg.Now()) {
		if action.UID == "" && action.Kind == UpdateStatus {
			action.UID = s.store.uid(action.Name) // of what the Create before it made
		}
		written, err := s.client.do(ctx, action)
		switch {
		case action.Kind == Delete && (err == nil || apierrors.IsNotFound(err)):
			s.store.deleted(action)
		case err != nil:
			return err
		default:
			s.store.wrote(written)
		}
		s.cfg.Logger.Debug("wrote a ForeignCluster", "action", action.Kind, "name", action.Name)
	}
	return nil
}

// checkIfMissing has the custom resources looked at when err says that the API
// server does not serve what was asked for.
func (s *session) checkIfMissing(err error) {
	if apierrors.IsNotFound(err) {
		select {
		case s.check <- struct{}{}:
		default:
		}
	}
}

// keep keeps the custom resources, the namespace and the ConfigMap in place
// until ctx ends: at once, then at intervals, and whenever they seem to be gone.
func (s *session) keep(ctx context.Context, every time.Duration) {
	var told peer.ClusterID // the other cluster ID that was reported
	retry := newBackoff()
	for failures := 0; ; {
		err := s.ensure(ctx, &told)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errBadConfigMap):
			// Only a person can correct it.
			s.complainOnce("ConfigMap", "the ConfigMap with the cluster ID holds none and is left alone", err)
		case err != nil:
			s.link.note(err)
			s.cfg.Logger.Debug("cannot put the agent's own objects in place, trying again", "error", err)
			if failures++; failures == patientRetries {
				s.complainOnce("own objects", "cannot put the agent's own objects in place, trying again", err)
			}
			if retry.sleep(ctx) != nil {
				return
			}
			continue
		}
		retry, failures = newBackoff(), 0
		// A burst of failed requests asks for one look, not for one each.
		if sleep(ctx, backoffFirst) != nil {
			return
		}
		timer := time.NewTimer(jitter(every))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.check:
		}
		timer.Stop()
	}
}

// ensure puts in place what the agent needs in the API server. told is the
// other cluster ID that was reported last.
func (s *session) ensure(ctx context.Context, told *peer.ClusterID) error {
	if err := ensureCRDs(ctx, s.client); err != nil {
		return err
	}
	own := s.cfg.Identity().ClusterID
	if own == "" {
		return nil
	}
	other, err := ensureIdentity(ctx, s.client, s.cfg.Namespace, own)
	if err != nil {
		return err
	}
	if other != "" && other != *told {
		s.cfg.OnClusterID(other)
	}
	*told = other
	return nil
}
