package offload

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/sharing/workload"
	"liqo.io/agent/throttle"
)

// How often the status of pods of one provider, and events about them, are written
// here, whatever that says of them. A pod that starts, or ends, is written twice or
// three times.
const (
	podRate, podBurst     = 0.5, 6   // writes a second of one pod
	writeRate, writeBurst = 20, 2400 // of all pods of the provider, and of events about them
	maxPaced              = 10_000   // pods of which it is remembered
)

// pace bounds how often is written what a provider says. It is safe for concurrent use.
type pace struct {
	pods *throttle.Buckets[key]
	all  *throttle.Buckets[struct{}]
	// events is for those about all pods.
	events *throttle.Buckets[struct{}]
}

func newPace() pace {
	all := func() *throttle.Buckets[struct{}] { return throttle.New[struct{}](writeRate, writeBurst, 1) }
	return pace{pods: throttle.New[key](podRate, podBurst, maxPaced), all: all(), events: all()}
}

// wait returns how long the status of a pod is not to be written yet. What it is then
// is what counts: nothing but what came in between is lost. That a pod has ended is
// said at once, because others wait for that, and it is said once.
func (p pace) wait(k key, from, to *corev1.PodStatus, now time.Time) time.Duration {
	if !workload.Ended(from.Phase) && workload.Ended(to.Phase) {
		p.all.Owe(struct{}{}, 1, now)
		return 0
	}
	if wait := max(p.pods.Wait(k, now), p.all.Wait(struct{}{}, now)); wait > 0 {
		return wait
	}
	if wait := p.all.Take(struct{}{}, now); wait > 0 { // another pod was quicker
		return wait
	}
	return p.pods.Take(k, now)
}
