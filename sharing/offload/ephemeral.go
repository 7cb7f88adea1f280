package offload

import (
	"context"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/agent/sharing/workload"
)

// extend adds an ephemeral container to the copy. One that is refused is not tried again: it cannot
// be changed, and a person who wants another one adds it.
func (pc *controller) extend(ctx context.Context, k key, v view, rn *remoteNamespace, s step) (again time.Duration, err error) {
	why := s.why
	if why == nil {
		if why, again, err = pc.sendEphemeral(ctx, k, v, rn, s); why == nil {
			return again, err
		}
	}
	pc.remember(k, func(m *podState) {
		if m.local == v.local.UID {
			m.debug = maps.Clone(m.debug) // others may read it
			if m.debug == nil {
				m.debug = make(map[string]*workload.Refusal)
			}
			m.debug[s.container] = why
		}
	})
	pc.tell(ctx, "Pod", &v.local.ObjectMeta, "ephemeral container "+s.container, why)
	return time.Nanosecond, nil // the status says so, too
}

// sendEphemeral sends an ephemeral container, after what it references. It returns why the provider
// refuses it.
func (pc *controller) sendEphemeral(ctx context.Context, k key, v view, rn *remoteNamespace, s step) (why *workload.Refusal, again time.Duration, err error) {
	if again := pc.holds(); again > 0 {
		return nil, again, nil
	}
	if !v.ready {
		return nil, 0, nil // enqueued again once it is
	}
	if _, err := pc.send(ctx, rn, v); err != nil { // what is refused, the container waits for
		return nil, 0, err
	}
	err = rn.client.Patch(ctx, podPath(rn.name, k.name)+"/ephemeralcontainers", "", workload.PatchType, s.patch, nil)
	switch {
	case err == nil:
		pc.remember(k, func(m *podState) { m.extended = v.remote.ResourceVersion + string(s.patch) })
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// Another pod, or none: the watch tells soon.
	case refusal(err):
		return &workload.Refusal{
			Reason: workload.ReasonRefusedByProvider, Message: "The provider does not let the ephemeral container " + s.container + " in: " + words(err),
		}, 0, nil
	default:
		return nil, 0, err
	}
	return nil, 0, nil
}
