package peering

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
)

// ManagerConfig created the ClusterConfig, and owns nothing in its spec.
const ManagerConfig = "liqo-agent-config"

// recreatePause is how long the ClusterConfig may be missing after somebody
// deleted it until the agent makes an empty one: whoever replaces it, by deleting
// and creating it, is not to find that the agent was quicker.
const recreatePause = 2 * time.Second

func clusterConfigKind() kind[*api.ClusterConfig] {
	return kind[*api.ClusterConfig]{
		gvk:   api.ConfigGroupVersion.WithKind(api.KindClusterConfig),
		path:  collection(api.ConfigGroupVersion, api.PluralClusterConfigs),
		fresh: func() *api.ClusterConfig { return &api.ClusterConfig{} },
		about: func(*api.ClusterConfig) []peer.ClusterID { return nil },
		trim:  func(c *api.ClusterConfig) { c.ManagedFields = nil },
	}
}

// runtimeConfig is the part of a session that is about the ClusterConfig: it tells
// what it says, makes an empty one when there is none, and has it show how the agent
// is. One goroutine runs it.
type runtimeConfig struct {
	*session
	store   *store[*api.ClusterConfig]
	changes chan struct{} // capacity 1
	unwell  chan struct{} // how the agent is has changed; capacity 1
	retry   workqueue.TypedRateLimiter[string]
}

func newRuntimeConfig(s *session) *runtimeConfig {
	r := &runtimeConfig{
		session: s, changes: make(chan struct{}, 1), unwell: make(chan struct{}, 1),
		retry: workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMax),
	}
	r.store = newStore(clusterConfigKind(), func(_, _ *api.ClusterConfig, _ bool) { wake(r.changes) })
	return r
}

// run works until ctx ends.
func (r *runtimeConfig) run(ctx context.Context) {
	if r.cfg.ClusterConfig == nil {
		return
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { follow(ctx, r.session, r.store) })
	r.work(ctx)
}

// work is run without what feeds the store.
func (r *runtimeConfig) work(ctx context.Context) {
	if !r.await(ctx, r.store.synced, "ClusterConfigs") {
		return
	}
	told := r.spec()
	r.cfg.ClusterConfig(copied(told))
	timer := time.NewTimer(0) // It is created at once if it never was there.
	defer timer.Stop()
	showing := time.NewTimer(0)
	defer showing.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.unwell:
			showing.Reset(0)
		case <-showing.C:
			if again := r.show(ctx); again > 0 {
				showing.Reset(again)
			}
		case <-r.changes:
			showing.Reset(0)
			if r.store.get(api.ClusterConfigName) == nil {
				timer.Reset(recreatePause)
			}
		case <-timer.C:
			if again := r.ensure(ctx); again > 0 {
				timer.Reset(again)
			}
			showing.Reset(0)
		}
		if now := r.spec(); !reflect.DeepEqual(told, now) {
			told = now
			r.cfg.ClusterConfig(copied(now))
		}
	}
}

// spec returns what the ClusterConfig says, nil when there is none.
func (r *runtimeConfig) spec() *api.ClusterConfigSpec {
	c := r.store.get(api.ClusterConfigName)
	if c == nil || c.DeletionTimestamp != nil {
		return nil
	}
	return &c.Spec
}

func copied(spec *api.ClusterConfigSpec) *api.ClusterConfigSpec {
	if spec == nil {
		return nil
	}
	out := spec.DeepCopy()
	return &out
}

// ensure makes a ClusterConfig without settings if there is none. It returns the
// pause before it is to be tried again, 0 for never.
func (r *runtimeConfig) ensure(ctx context.Context) time.Duration {
	if r.store.get(api.ClusterConfigName) != nil {
		return 0
	}
	made, err := createClusterConfig(ctx, r.client)
	switch {
	case err == nil:
		r.store.wrote(made)
		r.retry.Forget(api.ClusterConfigName)
		return 0
	case apierrors.IsAlreadyExists(err), ctx.Err() != nil:
		return 0 // The watch is about to tell.
	}
	r.link.note(err)
	r.checkIfMissing(err)
	if r.retry.NumRequeues(api.ClusterConfigName) == patientRetries {
		r.complainOnce("ClusterConfig", "the ClusterConfig cannot be created, trying again", err)
	}
	pause := jitter(r.retry.When(api.ClusterConfigName))
	r.cfg.Logger.Debug("creating the ClusterConfig failed, trying again", "in", pause, "error", err)
	return pause
}

// createClusterConfig creates a ClusterConfig that sets nothing. It is a plain
// create, because server-side apply has no way to leave alone an object that
// somebody else made a moment ago.
func createClusterConfig(ctx context.Context, c *client) (*api.ClusterConfig, error) {
	k := clusterConfigKind()
	object := applied{Metadata: appliedMeta{
		Name: api.ClusterConfigName, Labels: map[string]string{api.LabelManagedBy: api.ManagedByAgent},
	}}
	object.APIVersion, object.Kind = k.gvk.GroupVersion().String(), k.gvk.Kind
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	text, err = kube.Body(c.rest.Post().AbsPath(k.path).Param("fieldManager", ManagerConfig).Body(text).
		SetHeader("Content-Type", runtime.ContentTypeJSON).MaxRetries(0).Do(ctx))
	made := k.fresh()
	if err == nil {
		err = json.Unmarshal(text, made)
	}
	if err != nil {
		return nil, fmt.Errorf("create %s %s: %w", k.gvk.Kind, api.ClusterConfigName, err)
	}
	return made, nil
}
