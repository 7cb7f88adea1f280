package config

import (
	"context"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peering/objects"
)

// ManagerConfig created the ClusterConfig, and owns nothing in its spec.
const ManagerConfig = "liqo-agent-config"

// recreatePause is how long the ClusterConfig may be missing after somebody
// deleted it until the agent makes an empty one: whoever replaces it, by deleting
// and creating it, is not to find that the agent was quicker, also if that takes two
// kubectl on a slow machine.
const recreatePause = 10 * time.Second

func clusterConfigKind() objects.Kind[*api.ClusterConfig] {
	return objects.Kind[*api.ClusterConfig]{
		GVK:   api.ConfigGroupVersion.WithKind(api.KindClusterConfig),
		Path:  api.Collection(api.ConfigGroupVersion, api.PluralClusterConfigs),
		Fresh: func() *api.ClusterConfig { return &api.ClusterConfig{} },
		Trim:  func(c *api.ClusterConfig) { c.ManagedFields = nil },
	}
}

// Settings is about the ClusterConfig of one API server: it tells what it says, makes an
// empty one when there is none, and has it show how the agent is. One goroutine runs it.
type Settings struct {
	cfg   Config
	on    Connection
	store *objects.Store[*api.ClusterConfig]
	jobs  *work.Queue[configJob]
	told  *api.ClusterConfigSpec // what Config.ClusterConfig was told
}

// configJob is something that is done about the ClusterConfig.
type configJob string

const (
	makeConfig configJob = "creating the ClusterConfig"
	showHealth configJob = "showing how the agent is"
)

// NewSettings returns Settings that do nothing until Run is called.
func NewSettings(cfg Config, c Connection) *Settings {
	r := &Settings{cfg: cfg, on: c}
	r.jobs = objects.NewQueue(r.attempted)
	r.store = objects.NewStore(clusterConfigKind(), func(_, _ *api.ClusterConfig, _ bool) { r.observed() }, c.CheckIfMissing)
	return r
}

// observed takes in that the ClusterConfig is another, or gone.
func (r *Settings) observed() {
	r.jobs.Add(showHealth)
	if r.store.Get(api.ClusterConfigName) == nil {
		r.jobs.Drop(makeConfig)
		r.jobs.AddAfter(makeConfig, recreatePause)
	}
}

// Run works until ctx ends.
func (r *Settings) Run(ctx context.Context) {
	if r.cfg.ClusterConfig == nil {
		return
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { r.store.Follow(ctx, r.on.Client) })
	r.work(ctx)
}

// work is Run without what feeds the store.
func (r *Settings) work(ctx context.Context) {
	if !r.on.Await(ctx, conn.Listed{Kind: "ClusterConfigs", Synced: r.store.Synced()}) {
		return
	}
	r.told = r.spec()
	r.cfg.ClusterConfig(copied(r.told))
	r.jobs.Add(makeConfig) // at once if it never was there
	r.jobs.Add(showHealth)
	r.jobs.Run(ctx, 1, r.do)
}

// do does a job, and tells first what the ClusterConfig says if that is another.
func (r *Settings) do(ctx context.Context, job configJob) work.Outcome {
	if now := r.spec(); !reflect.DeepEqual(r.told, now) {
		r.told = now
		r.cfg.ClusterConfig(copied(now))
	}
	if job == makeConfig {
		return objects.Result(r.ensure(ctx))
	}
	return r.show(ctx)
}

// attempted takes in how that ended.
func (r *Settings) attempted(job configJob, a work.Attempt) {
	switch {
	case a.Err == nil:
		return
	case a.Permanent && job == showHealth:
		r.on.WarnOnce("health", "the ClusterConfig cannot show how the agent is", a.Err)
		return
	case job == makeConfig:
		r.on.NoteError(a.Err)
		if a.Failures == objects.PatientRetries || a.Permanent {
			r.on.WarnOnce("ClusterConfig", "the ClusterConfig cannot be created, trying again", a.Err)
		}
	}
	r.on.CheckIfMissing(a.Err)
	r.on.Logger.Debug(string(job)+" failed, trying again", "in", a.Next, "error", a.Err)
}

// spec returns what the ClusterConfig says, nil when there is none.
func (r *Settings) spec() *api.ClusterConfigSpec {
	c := r.store.Get(api.ClusterConfigName)
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

// ensure makes a ClusterConfig without settings if there is none.
func (r *Settings) ensure(ctx context.Context) error {
	if r.store.Get(api.ClusterConfigName) != nil {
		return nil
	}
	made, err := createClusterConfig(ctx, r.on.Client)
	if apierrors.IsAlreadyExists(err) {
		return nil // The watch is about to tell.
	}
	if err == nil {
		r.store.Wrote(made)
	}
	return err
}

// createClusterConfig creates a ClusterConfig that sets nothing. It is a plain
// create, because server-side apply has no way to leave alone an object that
// somebody else made a moment ago.
func createClusterConfig(ctx context.Context, c *kube.Client) (*api.ClusterConfig, error) {
	k := clusterConfigKind()
	object := objects.Applied{Metadata: objects.Meta{
		Name: api.ClusterConfigName, Labels: map[string]string{api.LabelManagedBy: api.ManagedByAgent},
	}}
	object.APIVersion, object.Kind = k.GVK.GroupVersion().String(), k.GVK.Kind
	made := k.Fresh()
	if err := c.CreateAs(ctx, k.Path, ManagerConfig, object, made); err != nil {
		return nil, err
	}
	return made, nil
}
