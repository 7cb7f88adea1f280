package vnode

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/kube/work"
)

const (
	// leaseDuration is what a kubelet says. Nobody acts upon it: the node lifecycle
	// controller has a grace period of its own.
	leaseDuration = 40 * time.Second
	// leaseRequests is how many Leases are renewed at the same time, so that a slow
	// API server gets all of them within the grace period.
	leaseRequests = 8
	// leaseTimeout bounds one renewal.
	leaseTimeout = 5 * time.Second
	// leaseFirst and leaseMax bound the pause before a renewal is tried again.
	leaseFirst = 200 * time.Millisecond
	leaseMax   = 2 * time.Second
)

// lease is as much of a Lease as matters here.
type lease struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Metadata   leaseMeta `json:"metadata"`
	Spec       leaseSpec `json:"spec"`
}

type leaseMeta struct {
	Name            string                  `json:"name"`
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
}

type leaseSpec struct {
	HolderIdentity string            `json:"holderIdentity"`
	Duration       int32             `json:"leaseDurationSeconds"`
	RenewTime      *metav1.MicroTime `json:"renewTime"`
}

// beat is the heartbeat of one node. The goroutine of session.beat owns it; one
// renewal at a time works on it, as long as busy is set.
type beat struct {
	node     string
	uid      types.UID
	due      time.Time
	busy     bool
	gone     bool // there is no such node any more, and its Lease is to go
	settled  bool // its place among the others is found
	failures int
	// renewed is the time that the Lease shows, nil while that is not known. It must
	// grow, even when the clock of this machine is set back: the node lifecycle
	// controller looks at nothing else.
	renewed *metav1.MicroTime
}

type renewal struct {
	*beat
	err error
}

// beat renews the Leases of all nodes of ours until ctx ends.
func (s *session) beat(ctx context.Context) {
	beats := make(map[string]*beat)
	results := make(chan renewal, leaseRequests)
	running := 0
	defer func() {
		for ; running > 0; running-- {
			<-results
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.muster(beats)
		now := s.cfg.Now()
		next := now.Add(time.Minute)
		for _, b := range beats {
			switch {
			case b.busy:
			case b.due.After(now):
				if b.due.Before(next) {
					next = b.due
				}
			case running < leaseRequests:
				b.busy = true
				running++
				go func() { results <- renewal{b, s.renew(ctx, b)} }()
			} // the others when there is room
		}
		timer.Reset(next.Sub(now))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.beats:
			// The heartbeat may be another.
			for _, b := range beats {
				if latest := s.cfg.Now().Add(s.cfg.Settings().Heartbeat); b.due.After(latest) {
					b.due = latest
				}
			}
		case r := <-results:
			running--
			r.busy = false
			if r.gone && r.err == nil {
				delete(beats, r.node)
			} else {
				s.after(r)
			}
		}
	}
}

// muster has a beat for each node of ours. That of a node that is not there any more
// stays until its Lease is deleted: only who renews a Lease can delete it for good.
func (s *session) muster(beats map[string]*beat) {
	there := make(map[string]bool)
	for _, n := range s.nodes.All() {
		if whose(n) == "" {
			continue
		}
		there[n.Name] = true
		if b := beats[n.Name]; b == nil || !b.busy && (b.uid != n.UID || b.gone) {
			beats[n.Name] = &beat{node: n.Name, uid: n.UID}
		}
	}
	for name, b := range beats {
		if !there[name] && !b.gone && !b.busy {
			b.gone, b.due = true, time.Time{}
		}
	}
}

// after says when a Lease is due again.
func (s *session) after(r renewal) {
	heartbeat := s.cfg.Settings().Heartbeat
	now := s.cfg.Now()
	if r.err != nil {
		s.leaseFailures.Add(1)
		r.failures++
		pause := work.Backoff{First: leaseFirst, Max: min(leaseMax, heartbeat)}.Pause(r.failures)
		r.due = now.Add(max(pause, min(work.RetryAfter(r.err), heartbeat/2)))
		if r.failures == patientRetries {
			s.cfg.Logger.Warn("the lease of a virtual node cannot be renewed; the node will be considered dead", "node", r.node, "error", r.err)
		}
		return
	}
	if r.failures >= patientRetries {
		s.cfg.Logger.Info("the lease of a virtual node is renewed again", "node", r.node)
	}
	s.leases.Add(1)
	r.failures = 0
	r.due = now.Add(heartbeat)
	if !r.settled {
		// All of them began at the same moment; from here on they are spread.
		r.settled = true
		r.due = now.Add(heartbeat/2 + share(r.node, heartbeat/2))
	}
}

// share returns a part of a span that is a name's own.
func share(name string, span time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return time.Duration(int64(span) / 1024 * int64(h.Sum32()%1024))
}

// renew renews a Lease, and makes it if there is none; or deletes it.
func (s *session) renew(ctx context.Context, b *beat) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	path := leasePath + "/" + b.node
	if b.gone {
		err := s.client.Delete(ctx, path, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return err
	}
	if b.renewed == nil {
		var found lease
		err := s.client.Get(ctx, path, &found)
		switch {
		case apierrors.IsNotFound(err):
			return s.createLease(ctx, b)
		case err != nil:
			return err
		}
		b.renewed = found.Spec.RenewTime
	}
	wanted := s.lease(b)
	patch, err := json.Marshal(map[string]any{"metadata": wanted.Metadata, "spec": wanted.Spec})
	if err != nil {
		return fmt.Errorf("lease of node %s: %w", b.node, err)
	}
	var got lease
	err = s.client.Patch(ctx, path, manager, types.MergePatchType, patch, &got)
	if apierrors.IsNotFound(err) {
		return s.createLease(ctx, b)
	}
	if err == nil {
		b.renewed = got.Spec.RenewTime
	}
	return err
}

func (s *session) createLease(ctx context.Context, b *beat) error {
	wanted := s.lease(b)
	err := s.client.Create(ctx, leasePath, wanted, nil)
	if apierrors.IsAlreadyExists(err) {
		b.renewed = nil
	}
	if err == nil {
		b.renewed = wanted.Spec.RenewTime
	}
	return err
}

// lease is the Lease of a node as it is to be now.
func (s *session) lease(b *beat) lease {
	now := metav1.NewMicroTime(s.cfg.Now())
	if b.renewed != nil && !b.renewed.Time.Before(now.Time) {
		now = metav1.NewMicroTime(b.renewed.Add(time.Millisecond))
	}
	duration := max(leaseDuration, s.cfg.Settings().Heartbeat*8/5)
	return lease{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease",
		Metadata: leaseMeta{Name: b.node, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: b.node, UID: b.uid}}},
		Spec:     leaseSpec{HolderIdentity: b.node, Duration: int32(duration / time.Second), RenewTime: &now},
	}
}
