package host

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

// Ephemeral takes a consumer's patch that adds an ephemeral container to one of its pods, and
// returns the one that may be sent. Room for it is reserved until done is called, once, with what
// the API server answered, as for Pod; without an answer, for 30 s.
func (h *Host) Ephemeral(ctx context.Context, id peer.ClusterID, namespace, name string, body []byte) (clean []byte, done func(changed []byte), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	st, err := h.room(id, namespace)
	if err != nil {
		return nil, nil, err
	}
	in := h.in(st, namespace)
	clean, no := workload.AdmitEphemeral(body, in)
	if no != nil {
		return nil, nil, refusedIn(in, no)
	}
	a, key := st.tenant.account, keyOf(namespace, name)
	room, refused := a.extend(key, int64(len(clean)), podsPerSlot*st.offer.Pods().Value()*bytesPerPod)
	if refused != nil {
		return nil, nil, refused
	}
	var once sync.Once
	return clean, func(changed []byte) {
		once.Do(func() {
			if pod := (&guestPod{}); changed != nil && json.Unmarshal(changed, pod) == nil && pod.UID != "" {
				st.session.pods.Wrote(pod)
			} else if changed != nil {
				return // not known: until it is seen, or for a while
			}
			a.extended(key, room)
		})
	}, nil
}

// extension is room for an ephemeral container that was let through and not seen.
type extension struct {
	size  int64 // in bytes
	until time.Time
}

// extend makes room for an ephemeral container of so many bytes in a pod, or says why there is
// none. limit is for the bytes of all pods of the consumer.
func (a *account) extend(key string, size, limit int64) (*extension, *Refused) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	s := a.slots[key]
	if s == nil || s.pod == nil {
		return nil, refuse(ReasonNotReady, "this cluster does not know pod %s yet; try again", key).after(retryNotReady)
	}
	if n := s.pod.ephemeral + len(s.extended); n >= workload.MaxEphemeralContainers {
		return nil, refuse(ReasonTooManyPods, "the pod has %d ephemeral containers, which stay until it is deleted, and the limit is %d; create the pod anew", n, workload.MaxEphemeralContainers)
	}
	var bytes int64
	for _, s := range a.slots {
		bytes += s.size()
	}
	if bytes+size > limit {
		return nil, refuse(ReasonTooManyPods, "the pods of this consumer, including those that have ended, have %d bytes of JSON here, and %d more exceed the limit of %d; delete some", bytes, size, limit).after(retryUsedUp)
	}
	e := &extension{size: size, until: a.now().Add(reservation)}
	s.extended = append(s.extended, e)
	return e, nil
}

// extended ends an extension: the pod counts as it is.
func (a *account) extended(key string, e *extension) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.slots[key]; s != nil {
		s.extended = slices.DeleteFunc(s.extended, func(other *extension) bool { return other == e })
		a.tidy(key, s)
	}
}
