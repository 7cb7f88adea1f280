package offload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/sharing/workload"
)

// podState is the memory of this process about a pod and its copy. Losing it costs only
// another request. Our writes at the provider are noted here rather than in the cache of the
// provider's pods, which holds only what the provider reports, within its bounds.
type podState struct {
	local types.UID // of the local pod

	// unsent: the pod appeared while this process watched, and was not sent. If false, an
	// earlier process may have sent it.
	unsent bool

	made  types.UID   // its copy, as created by us or seen
	seen  bool        // made was in the list of the provider's pods
	last  *corev1.Pod // the copy as it was seen last
	ended bool        // the provider said that made is not there

	removing types.UID // deleted at the provider by us
	grace    int64     // with this grace period; negative: its own

	fed     time.Time // when ConfigMaps and Secrets were sent again
	patched string    // resource version of the copy before the last patch, and the patch

	extended string                       // the same of the last ephemeral container
	debug    map[string]*workload.Refusal // ephemeral containers that are refused; not changed once it is here

	warned string // reason of the last warning
}

// about returns the state for the pods that are there now.
func (m podState) about(local, remote *corev1.Pod) podState {
	if local == nil {
		return podState{removing: m.removing, grace: m.grace}
	}
	if m.local != local.UID {
		m = podState{local: local.UID, removing: m.removing, grace: m.grace}
	}
	if remote != nil && workload.IsCopy(local, remote) {
		m.made, m.seen, m.ended = remote.UID, true, false
		// The final status of a copy that the provider deletes on its own does not count.
		if m.last == nil || !terminal(remote) || remote.DeletionTimestamp == nil || local.DeletionTimestamp != nil {
			m.last = remote
		}
	}
	if terminal(local) {
		m.last = nil // not needed any more
	}
	return m
}

// removed reports whether the deletion of a copy was requested with that grace period or a
// shorter one.
func (m podState) removed(uid types.UID, grace int64) bool {
	return m.removing == uid && (m.grace == grace || grace < 0 || m.grace >= 0 && m.grace < grace)
}

// created: the provider created a copy of local.
func (m *podState) created(local, remote types.UID) {
	if m.local == local && m.made != remote {
		m.made, m.seen, m.ended = remote, false, false
	}
}

// confirmed: the provider has remote, or nothing, under the name of local.
func (m *podState) confirmed(local, remote *corev1.Pod) {
	switch {
	case m.local != local.UID:
	case remote != nil && workload.IsCopy(local, remote):
		m.created(local.UID, remote.UID)
	default:
		m.ended = true
	}
}

// deleted: the provider deletes remote, or says that it does not exist.
func (m *podState) deleted(remote types.UID, grace int64, gone bool) {
	m.removing, m.grace = remote, grace
	if gone && m.made == remote {
		m.ended = true
	}
}
