package offload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"liqo.io/agent/sharing/workload"
)

// memo is what this process remembers about a pod. Everything goes on without it,
// at the cost of asking once more.
type memo struct {
	mine types.UID // the pod that the rest is about

	made  types.UID   // its copy, as created by us or seen
	seen  bool        // made was in the list of the provider's pods
	last  *corev1.Pod // the copy as it was there last
	ended bool        // the provider said that made is not there

	removing types.UID // deleted at the provider by us
	grace    int64     // with this grace period; negative: its own

	fed     time.Time // when ConfigMaps and Secrets were sent once more
	patched string    // resource version of the copy when it was patched, and the patch

	wrote  string // resource version of mine after we wrote its status
	status *corev1.PodStatus
	warned string // reason of the last warning
}

// about returns the memo for what the view shows, with what can be learnt from
// that.
func (m memo) about(mine, theirs *corev1.Pod) memo {
	if mine == nil {
		return memo{removing: m.removing, grace: m.grace}
	}
	if m.mine != mine.UID {
		m = memo{mine: mine.UID, removing: m.removing, grace: m.grace}
	}
	if theirs != nil && workload.IsCopy(mine, theirs) {
		m.made, m.seen, m.ended = theirs.UID, true, false
		// How a copy ends that the provider ends unasked counts for nothing.
		if m.last == nil || !terminal(theirs) || theirs.DeletionTimestamp == nil || mine.DeletionTimestamp != nil {
			m.last = theirs
		}
	}
	if terminal(mine) {
		m.last = nil // all is said
	}
	return m
}

// removed reports whether the deletion of a copy was asked for with that grace
// period or a shorter one.
func (m memo) removed(uid types.UID, grace int64) bool {
	return m.removing == uid && (m.grace == grace || grace < 0 || m.grace >= 0 && m.grace < grace)
}

// stands returns mine with the status that we gave it, if what is known of it is
// older than that.
func (m memo) stands(mine *corev1.Pod) *corev1.Pod {
	if m.status == nil || !older(mine.ResourceVersion, m.wrote) {
		return mine
	}
	written := *mine
	written.Status = *m.status
	return &written
}

// older reports whether a resource version is from before another one of the same
// object.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// written: mine has that status since it has that resource version.
func (m *memo) written(mine types.UID, version string, status *corev1.PodStatus) {
	if m.mine == mine {
		m.wrote, m.status = version, status
	}
}

// created: the provider created a copy of mine.
func (m *memo) created(mine, theirs types.UID) {
	if m.mine == mine && m.made != theirs {
		m.made, m.seen, m.ended = theirs, false, false
	}
}

// confirmed: the provider has theirs, or nothing, under the name of mine.
func (m *memo) confirmed(mine, theirs *corev1.Pod) {
	switch {
	case m.mine != mine.UID:
	case theirs != nil && workload.IsCopy(mine, theirs):
		m.created(mine.UID, theirs.UID)
	default:
		m.ended = true
	}
}

// deleted: the provider deletes theirs, or says that it is not there.
func (m *memo) deleted(theirs types.UID, grace int64, gone bool) {
	m.removing, m.grace = theirs, grace
	if gone && m.made == theirs {
		m.ended = true
	}
}
