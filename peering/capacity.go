package peering

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/sharing/offer"
)

const (
	// measureEach is the shortest time between two looks at what there is to offer:
	// hundreds of pods may start at once.
	measureEach = 250 * time.Millisecond
	// podsRetry is the time between two looks at why the pods are not listed.
	podsRetry = time.Second
)

// terms are the settings that offers depend on.
func terms(s plan.SharingSettings) offer.Terms {
	return offer.Terms{Percentage: s.Percentage, Overcommit: s.Overcommit, Hysteresis: s.Hysteresis}
}

// podFollower keeps the pods of the whole cluster while somebody is offered what
// they leave.
type podFollower struct {
	cache *kube.Cache[*offer.Pod]
	stop  func() // ends it, and waits for that
}

// followPods begins to follow the pods of the cluster, and wakes up count when
// what they ask for changes.
func (s *session) followPods(ctx context.Context) *podFollower {
	pods := kube.NewCache(kube.Kind[*offer.Pod]{
		Fresh: func() *offer.Pod { return &offer.Pod{} },
		Changed: func(before, after *offer.Pod) {
			if !before.Same(after) {
				work.Wake(s.count)
			}
		},
	})
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { pods.Follow(ctx, s.client, kube.Query{Path: "/api/v1/pods"}) })
	running.Go(func() {
		select {
		case <-pods.Synced():
			work.Wake(s.count)
		case <-ctx.Done():
		}
	})
	return &podFollower{cache: pods, stop: func() { cancel(); running.Wait() }}
}

// list returns the pods, or why they are not known.
func (f *podFollower) list() ([]*offer.Pod, error) {
	if !f.cache.HasSynced() {
		return nil, f.cache.Failure()
	}
	return f.cache.All(), nil
}

// followCapacity keeps what is offered in step with what the nodes can run and the
// pods leave of it, until ctx ends. Without consumers it follows no pods.
func (s *session) followCapacity(ctx context.Context) {
	var pods *podFollower
	defer func() {
		if pods != nil {
			pods.stop()
		}
	}()
	var last time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.count:
		case <-timer.C:
		}
		switch consumers := s.allocator.Consumers(); {
		case consumers == 0 && pods != nil:
			pods.stop()
			pods = nil
			s.allocator.Unknown("")
			continue
		case consumers == 0:
			continue
		case pods == nil:
			pods = s.followPods(ctx)
		}
		timer.Stop()
		if early := measureEach - time.Since(last); early > 0 {
			timer.Reset(early)
			continue
		}
		known, again := s.measure(pods)
		if known {
			last = time.Now()
		}
		if again > 0 {
			timer.Reset(again)
		}
	}
}

// measure finds out what there is to offer, and has the clusters looked at that
// have to be told. It reports whether that is known, and after how long it is to
// be called again; 0 for not before something changes.
func (s *session) measure(pods *podFollower) (known bool, again time.Duration) {
	list, err := pods.list()
	if list == nil {
		if err != nil {
			s.WarnOnce("pods", "the pods of this cluster cannot be listed, so nothing new is offered to other clusters", err)
			if s.allocator.Unknown(unlisted(err)) {
				s.enqueueConsumers()
			}
		}
		return false, podsRetry
	}
	settings := s.cfg.SharingSettings()
	changed, again := s.allocator.Measure(offer.Count(s.nodes.All(), list, settings.Labels, settings.Registries, settings.Storage), terms(settings), s.cfg.Now())
	for _, id := range changed {
		s.queue.Add(id)
	}
	return true, again
}

// unlisted says why the pods are not known, in a sentence that does not change
// from one attempt to the next.
func unlisted(err error) string {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return fmt.Sprintf("The agent may not list the pods of this cluster (%s).", apierrors.ReasonForError(err))
	}
	return "The pods of this cluster cannot be listed at the moment."
}

// enqueueConsumers has all consumers looked at.
func (s *session) enqueueConsumers() {
	for id := range s.allocator.Summary().Offers {
		s.queue.Add(id)
	}
}

// countConsumers finds out who the consumers are before the first of them is told
// anything: each of many is not to be promised everything first.
func (s *session) countConsumers() {
	for _, id := range s.requests.IDs() {
		if tenancy := s.observe(s, id).TenantSpec(s.cfg.Now()); tenancy != nil {
			s.allocator.Admit(id, tenancy.Admitted, tenancy.Asked)
		}
	}
}

// Told reports whether Config.Sharing was told of all clusters that there were when the connection to the API server began;
// false while there is none. Any goroutine may call it at any time.
func (c *Controller) Told() bool {
	s := c.current()
	return s != nil && s.toldAll()
}

// host tells how the use of this cluster by one that may be a consumer is to
// stand. It reports whether how it stands is not what the decision was made for.
func (s *session) host(d plan.Decision) (news bool) {
	t := d.Tenant
	if d.Replan || t == nil {
		return false
	}
	if s.allocator.Admit(t.ID, t.Admitted, t.Asked) {
		work.Wake(s.count)
	}
	if s.cfg.Sharing == nil {
		return false
	}
	busy := s.cfg.Sharing.Host(*t).Busy
	s.peers.with(t.ID, func(m *peerState) { news, m.hosting = m.hosting != busy, busy })
	return news
}
