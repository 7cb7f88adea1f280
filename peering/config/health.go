package config

import (
	"context"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peering/objects"
)

// ManagerHealth owns the status of the ClusterConfig: its condition Healthy, and the
// settings that hold.
const ManagerHealth = "liqo-agent-health"

// Health is what the condition Healthy of the ClusterConfig is to say.
type Health struct {
	// Healthy: nothing is the matter.
	Healthy bool
	// Reason is one word for programs, and Message a sentence for people.
	Reason, Message string
}

// Changed says that Config.Health or Config.Effective may answer otherwise than before.
// It never blocks. Any goroutine may call it at any time.
func (r *Settings) Changed() { r.jobs.Add(showHealth) }

// show makes the status of the ClusterConfig say what is so.
func (r *Settings) show(ctx context.Context) work.Outcome {
	if r.cfg.Health == nil {
		return work.Done()
	}
	c := r.store.Get(api.ClusterConfigName)
	if c == nil || c.DeletionTimestamp != nil {
		return work.Done()
	}
	shown := c.Status.Condition(api.ConditionHealthy)
	var next api.ClusterConfigStatus
	if shown != nil {
		next.Conditions = []api.Condition{*shown}
	}
	if health, known := r.cfg.Health(); known {
		condition := api.Condition{
			Type: api.ConditionHealthy, Status: api.ConditionFalse, Reason: health.Reason, Message: health.Message,
			LastTransitionTime: metav1.NewTime(r.on.Now().Truncate(time.Second)),
		}
		if health.Healthy {
			condition.Status = api.ConditionTrue
		}
		if shown != nil && shown.Status == condition.Status {
			condition.LastTransitionTime = shown.LastTransitionTime
		}
		if shown == nil || shown.Status != condition.Status || shown.Reason != condition.Reason || shown.Message != condition.Message {
			next.Conditions = []api.Condition{condition}
		}
	}
	if r.cfg.Effective != nil {
		now := r.cfg.Effective()
		next.Effective = &now
	}
	if reflect.DeepEqual(next.Effective, c.Status.Effective) && (len(next.Conditions) == 0 || shown != nil && reflect.DeepEqual(next.Conditions[0], *shown)) {
		return work.Done()
	}
	object := objects.Applied{
		Metadata: objects.Meta{Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion},
		Status:   next,
	}
	written, err := objects.Apply(ctx, r.on.Client, r.store.Kind, "status", object, ManagerHealth, true)
	switch {
	case err == nil:
		r.store.Wrote(written)
	case apierrors.IsForbidden(err):
		return work.Permanent(err)
	}
	return objects.Result(err)
}
