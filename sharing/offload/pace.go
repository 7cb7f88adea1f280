package offload

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/sharing/workload"
	"liqo.io/agent/throttle"
)

// Limits of the writes that the pods of one provider cause in the local API server. The
// start or end of a pod takes two or three writes.
const (
	podRate, podBurst     = 0.5, 6   // writes a second of one pod
	writeRate, writeBurst = 20, 2400 // of all pods of the provider, and of events about them
	maxPaced              = 10_000   // pods with a bucket
)

// pace limits the writes that a provider causes. It is safe for concurrent use.
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

// wait returns after how long the status of a pod may be written. It is computed again
// then, so only intermediate states are lost. The end of a pod is written at once: it
// happens once, and others wait for it.
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
