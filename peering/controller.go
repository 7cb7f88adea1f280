package peering

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"liqo.io/agent/peer"
)

// Registry is what the Controller asks about peers. Its methods are called on
// several goroutines.
type Registry interface {
	// Peer returns what is known about a cluster, and false when nothing is.
	Peer(id peer.ClusterID) (peer.Peer, bool)
	// IDs returns every cluster of which anything is known.
	IDs() []peer.ClusterID
	// Settled reports whether discovery has had the time to see who is there. While
	// it is false, no ForeignCluster of a cluster that Peer knows nothing about is
	// deleted. It never becomes false again.
	Settled() bool
}

// Config is what a Controller needs. All fields but Now are required.
type Config struct {
	// Kubeconfig returns the setting: a path, "" for the usual places ($KUBECONFIG,
	// K3s's own, ~/.kube/config), or KubeconfigNone. It is asked again and again,
	// so a changed setting takes effect by itself.
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
	// Namespace is where the ConfigMap with the cluster ID lives. It is created
	// when it does not exist.
	Namespace string
	// Logger receives one line per change of the connection.
	Logger *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Controller keeps the ForeignClusters of the local API server equal to what
// the registry knows. See the package's documentation.
type Controller struct {
	cfg       Config
	locator   locator
	link      *link
	pollEvery time.Duration // how often the kubeconfig's files are looked at
	checkEach time.Duration // how often what ensure made is looked at

	mu      sync.Mutex
	session *session // nil while there is no connection
}

// New returns a Controller that does nothing until Run is called.
func New(cfg Config) *Controller {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Controller{
		cfg:       cfg,
		locator:   newLocator(),
		link:      &link{log: cfg.Logger, now: cfg.Now, status: APIStatus{Since: cfg.Now()}},
		pollEvery: 3 * time.Second,
		checkEach: time.Minute,
	}
}

// Enqueue says that something about a cluster may have changed. It never blocks
// and keeps nothing: without a connection it does nothing, because the next
// connection begins with looking at every cluster. Any goroutine may call it at
// any time.
func (c *Controller) Enqueue(id peer.ClusterID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil {
		c.session.queue.Add(id)
	}
}

// Status says how the Controller gets on with the API server. Any goroutine may
// call it at any time.
func (c *Controller) Status() APIStatus {
	status := c.link.snapshot()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil {
		status.ForeignClusters = c.session.store.len()
	}
	return status
}

// Run works until ctx ends, and returns nil then. It waits for a kubeconfig and
// for an API server as long as it takes, and starts over when one of them is
// replaced or fails.
func (c *Controller) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if found, err := c.await(ctx); err == nil {
			c.use(ctx, found)
		}
	}
	return nil
}

// use works with one kubeconfig until it is replaced or ctx ends.
func (c *Controller) use(ctx context.Context, found kubeconfig) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() { cancel(c.replaced(ctx, found)) })

	c.link.trying(found.config.Host, found.name())
	client, err := newClient(found.config, c.link)
	if err != nil {
		c.link.waiting(err)
		<-ctx.Done()
		return
	}
	for wait := newBackoff(); ; {
		err := c.connect(ctx, client)
		client.close()
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errLost) {
			wait = newBackoff()
		} else {
			c.link.waiting(err)
		}
		if wait.sleep(ctx) != nil {
			return
		}
	}
}

// backoff is a growing pause, up to ten seconds, with jitter so that boxes that
// lost their power together do not come back in step.
type backoff struct{ next time.Duration }

const (
	backoffFirst = 200 * time.Millisecond
	backoffMax   = 10 * time.Second
)

func newBackoff() *backoff { return &backoff{next: backoffFirst} }

func (b *backoff) sleep(ctx context.Context) error {
	pause := b.next
	b.next = min(2*b.next, backoffMax)
	return sleep(ctx, jitter(pause))
}

// jitter returns between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// sleep waits for d, or returns the cause of ctx's end.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
