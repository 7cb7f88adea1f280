package vnode

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/spec"
)

const (
	// bindings is how long after its cordon a node may still get a pod that the
	// scheduler had decided about before.
	bindings = time.Second
	// evictAgain is the pause before a pod is evicted again that a
	// PodDisruptionBudget protects.
	evictAgain = 5 * time.Second
	// goneWait is how long the pods of a provider that is gone may take to vanish.
	goneWait = 30 * time.Second
	// lastWait is how long pods that were deleted after the drain timeout may take
	// to end. The node goes after that, and the pod garbage collector sees to them.
	lastWait = time.Minute
)

// drain is how far the removal of a node is. Nodes.mu guards it; only the worker
// that has the node changes it.
type drain struct {
	since   time.Time // the cordon; zero before it
	blocked map[types.UID]blocked
}

// blocked is a pod that cannot be evicted yet.
type blocked struct {
	until     time.Time // not to be tried before
	name, why string
}

// maxTold bounds how many blocked pods a message names.
const maxTold = 3

// describe says how far the removal is.
func (d drain) describe(pods int) (reason, message string) {
	if pods == 0 {
		return ReasonRemoving, "the node is being removed"
	}
	message = count(pods, "pod is", "pods are") + " left on the node"
	var names []string
	for _, b := range d.blocked {
		names = append(names, b.name+": "+b.why)
	}
	slices.Sort(names)
	if len(names) > 0 {
		message += "; " + text.List(names, maxTold, "; ")
	}
	return ReasonDraining, message
}

// remove takes the next steps in the removal of a node: cordon, drain, delete. It
// has no memory beyond the agent's life, and needs none: it goes on with what is
// there, and gives pods the whole drain timeout again.
func (s *session) remove(ctx context.Context, p spec.Node, node *corev1.Node) (time.Duration, error) {
	if node == nil {
		return 0, nil
	}
	if node.DeletionTimestamp == nil {
		if err := s.shape(ctx, node, wanted(p, judge(p), s.cfg.Kubelet(), node)); err != nil {
			return 0, err
		}
	}
	now := s.cfg.Now()
	d, going := s.draining(p.ID, func(d *drain) {
		if d.since.IsZero() {
			d.since = now
			s.cfg.Logger.Info("draining the node of a provider", "node", node.Name, "gone", p.Gone)
		}
	})
	if !going {
		return 0, nil
	}
	elapsed := now.Sub(d.since)
	if elapsed < bindings {
		return bindings - elapsed, nil
	}
	pods := s.bound(node.Name)
	var left, resident []*pod
	for _, pod := range pods {
		if pod.stays() {
			resident = append(resident, pod)
		} else {
			left = append(left, pod)
		}
	}
	timeout, wait := s.cfg.Settings().DrainTimeout, lastWait
	if p.Gone {
		timeout, wait = 0, goneWait
	}
	if len(left) > 0 && elapsed < timeout+wait {
		if p.Gone {
			return goneWait - elapsed, nil // sharing/offload deletes them
		}
		again, err := s.evict(ctx, p.ID, left, elapsed >= timeout)
		if elapsed < timeout {
			again = min(again, timeout-elapsed)
		} else {
			again = min(again, timeout+wait-elapsed)
		}
		return again, err
	}
	if len(left) > 0 {
		s.cfg.Logger.Warn("pods remain on the node of a removed provider; Kubernetes deletes them", "node", node.Name, "pods", len(left))
	}
	for _, pod := range resident {
		// Nothing of them runs anywhere, and others like them would come.
		if err := s.deletePod(ctx, pod, new(int64)); err != nil {
			return 0, err
		}
	}
	return 0, s.deleteNode(ctx, node)
}

// deleteNode deletes a node. Its Lease goes after it: see session.beat.
func (s *session) deleteNode(ctx context.Context, node *corev1.Node) error {
	if node.DeletionTimestamp != nil {
		return nil // somebody's finalizer holds it
	}
	err := s.client.Delete(ctx, nodesPath+"/"+node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	s.nodes.Deleted("", node.Name, node.UID)
	s.cfg.Logger.Info("removed the node of a provider", "node", node.Name)
	return nil
}

// draining changes how far the removal of a node is, and returns that. It reports
// false when the node is wanted again: Set has it looked at.
func (s *session) draining(id peer.ClusterID, change func(*drain)) (drain, bool) {
	s.Nodes.mu.Lock()
	defer s.Nodes.mu.Unlock()
	r := s.records[id]
	if r == nil || r.want.Wanted {
		return drain{}, false
	}
	change(&r.drain)
	return r.drain, true
}

// evict evicts pods, or deletes them when their time is up, and returns after how
// long it wants to be called again.
func (s *session) evict(ctx context.Context, id peer.ClusterID, pods []*pod, late bool) (time.Duration, error) {
	slices.SortFunc(pods, func(a, b *pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	d, _ := s.draining(id, func(*drain) {})
	after := make(map[types.UID]blocked)
	again := evictAgain
	var failed error
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || ctx.Err() != nil {
			continue
		}
		now := s.cfg.Now()
		if b, waits := d.blocked[pod.UID]; waits && !late && now.Before(b.until) {
			after[pod.UID] = b
			again = min(again, b.until.Sub(now))
			continue
		}
		if _, going := s.draining(id, func(*drain) {}); !going {
			return 0, nil
		}
		var err error
		if late {
			err = s.deletePod(ctx, pod, nil)
		} else {
			err = s.evictPod(ctx, pod)
		}
		switch {
		case apierrors.IsTooManyRequests(err) || !late && apierrors.IsInternalError(err):
			// A budget does not allow it now; or several are for this pod, which
			// the API server calls an internal error.
			after[pod.UID] = blocked{until: now.Add(evictAgain), name: pod.Namespace + "/" + pod.Name, why: obstacle(err)}
		case err != nil:
			failed = cmp.Or(failed, err)
		}
	}
	s.draining(id, func(d *drain) { d.blocked = after })
	return again, failed
}

// obstacle returns what the API server says keeps a pod from being evicted.
func obstacle(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if d := status.Status().Details; d != nil {
			for _, c := range d.Causes {
				if c.Type == policyv1.DisruptionBudgetCause {
					return text.Sentence(c.Message)
				}
			}
		}
		return text.Sentence(status.Status().Message)
	}
	return text.Sentence(err.Error())
}

func (s *session) evictPod(ctx context.Context, p *pod) error {
	err := s.client.Create(ctx, podPath(p)+"/eviction", policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}},
	}, nil)
	return ignoreGone(err)
}

// deletePod deletes a pod with its own grace period, or another.
func (s *session) deletePod(ctx context.Context, p *pod, grace *int64) error {
	return ignoreGone(s.client.Delete(ctx, podPath(p), metav1.DeleteOptions{
		GracePeriodSeconds: grace, Preconditions: &metav1.Preconditions{UID: &p.UID},
	}))
}

// ignoreGone takes it for done that there is no such pod, or another of its name.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func podPath(p *pod) string { return "/api/v1/namespaces/" + p.Namespace + "/pods/" + p.Name }
