package install

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
)

// The field managers of what a Keeper writes.
const (
	// ManagerWebhook owns the configuration of the admission webhook.
	ManagerWebhook = "liqo-agent-webhook"
	// ManagerCRDs owns the custom resource definitions.
	ManagerCRDs = "liqo-agent-crds"
	// ManagerIdentity owns the namespace and the ConfigMap with the cluster ID.
	ManagerIdentity = "liqo-agent-identity"
)

// patientRetries is how often something fails until its trouble is worth a line in the
// log: nearly half a minute.
const patientRetries = 9

// Config says what a Keeper keeps in place.
type Config struct {
	// Identity returns who this cluster is; an empty ClusterID means "not known yet", and
	// then none is published.
	Identity func() peer.Identity
	// OnClusterID is called when the API server holds another valid cluster ID than
	// Identity returns; nothing is overwritten. It is called once per such ID, and Run
	// waits for it.
	OnClusterID func(id peer.ClusterID)
	// Namespace is where the ConfigMap with the cluster ID lives. It is created when it
	// does not exist.
	Namespace string
	// Webhook returns the manifest of the admission webhook's configuration, nil while
	// there is none.
	Webhook func() map[string]any
	// Logger is for what people look at only when they look for a fault.
	Logger *slog.Logger
}

// Keeper keeps what the agent needs in one API server in place: the custom resources, the
// configuration of the webhook, and the namespace and the ConfigMap with the cluster ID.
type Keeper struct {
	cfg     Config
	session *conn.Session
	client  *kube.Client
	check   chan struct{} // something may be gone; capacity 1
	// newer is the generation of the custom resource definitions if it is above ours,
	// else 0.
	newer atomic.Int64
	// settled is for each of api.CRDs the resource version in which it was found as it is to be; "" is none.
	settled []string
	told    peer.ClusterID // the other cluster ID that was reported last
}

// NewKeeper returns a Keeper for a connection. It does nothing yet.
func NewKeeper(cfg Config, session *conn.Session, client *kube.Client) *Keeper {
	return &Keeper{cfg: cfg, session: session, client: client, check: make(chan struct{}, 1), settled: make([]string, len(api.CRDs()))}
}

// NewerCRDs returns the generation of the custom resource definitions when a newer agent
// brought them, and 0 when they are our own, or nothing is known. Any goroutine may call
// it at any time.
func (k *Keeper) NewerCRDs() int { return int(k.newer.Load()) }

// CheckIfMissing has everything looked at when err says that the API server does not
// serve what was asked for. It never blocks. Any goroutine may call it at any time.
func (k *Keeper) CheckIfMissing(err error) {
	if !apierrors.IsNotFound(err) {
		return
	}
	work.Wake(k.check)
}

// Run keeps everything in place until ctx ends: it looks at once, then at intervals, and
// whenever something seems to be gone.
func (k *Keeper) Run(ctx context.Context, every time.Duration) {
	for failures := 0; ; {
		err := k.ensure(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errBadConfigMap):
			// Only a person can correct it.
			k.session.WarnOnce("ConfigMap", "the ConfigMap with the cluster ID holds none and is left alone", err)
		case err != nil:
			k.session.NoteError(err)
			k.cfg.Logger.Debug("cannot install the agent's objects, trying again", "error", err)
			if failures++; failures == patientRetries {
				k.session.WarnOnce("own objects", "cannot install the agent's objects, trying again", err)
			}
			if work.Sleep(ctx, conn.Backoff.Pause(failures)) != nil {
				return
			}
			continue
		}
		failures = 0
		// A burst of failed requests asks for one look, not for one each.
		if work.Sleep(ctx, conn.Backoff.First) != nil {
			return
		}
		timer := time.NewTimer(wait.Jitter(every/2, 1))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-k.check:
		}
		timer.Stop()
	}
}

// ensure looks at everything once, and puts in place what is not.
func (k *Keeper) ensure(ctx context.Context) error {
	if err := k.CRDs(ctx); err != nil {
		if ctx.Err() == nil {
			k.session.Placed(nil, err)
		}
		return err
	}
	var hook error
	if webhook := k.cfg.Webhook(); webhook != nil {
		hook = ensureWebhook(ctx, k.client, webhook)
	}
	others := k.publish(ctx)
	if ctx.Err() == nil {
		k.session.Placed(hook, others)
	}
	return cmp.Or(hook, others)
}

// publish has the ConfigMap say which cluster this is.
func (k *Keeper) publish(ctx context.Context) error {
	own := k.cfg.Identity().ClusterID
	if own == "" {
		return nil
	}
	other, err := ensureIdentity(ctx, k.client, k.cfg.Namespace, own)
	if err != nil {
		return err
	}
	if other != "" && other != k.told {
		k.cfg.OnClusterID(other)
	}
	k.told = other
	return nil
}
