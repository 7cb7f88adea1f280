package offload

import (
	"context"
	"time"

	"liqo.io/agent/kube"
	"liqo.io/agent/sharing/workload"
)

// sweepEvery is how often it is looked whether all that was copied is still at the provider, as it was sent.
const sweepEvery = 5 * time.Minute

// seen takes in what a list of the provider has of the copy, nil if it is not there: one that somebody changed or removed is
// to be sent again. The list was asked for when rn.writes was since. The copy is held.
func (c *copied) seen(o *workload.ObjectCopy, since uint64) {
	if c.written > since {
		return // the list may be older
	}
	if c.there = o != nil; !c.there || o.ResourceVersion != c.revision {
		c.version = ""
	}
}

// of returns the keys of the copies of a kind.
func (rn *remoteNamespace) of(what kind) (refs []key) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	for ref := range rn.copies {
		if ref.kind == what {
			refs = append(refs, ref)
		}
	}
	return refs
}

// sweep enqueues all copies in a remote namespace, also those of earlier runs. What somebody changed or removed there is
// sent again. It returns after how long to do so again.
func (pc *controller) sweep(ctx context.Context, origin string) (again time.Duration, err error) {
	rn := pc.remoteNamespace(origin)
	if rn == nil {
		return 0, nil
	}
	for _, what := range []kind{aConfigMap, aSecret} {
		since := rn.writes.Load()
		sent, err := pc.sent(ctx, rn, what)
		if err != nil {
			return 0, err
		}
		if what == aSecret {
			if sent, err = pc.sweepTokens(ctx, rn, sent, since); err != nil {
				return 0, err
			}
		}
		found := make(map[key]*workload.ObjectCopy)
		for _, ref := range rn.of(what) {
			found[ref] = nil
		}
		for _, o := range sent {
			found[key{what, origin, o.Name}] = o
		}
		for ref, o := range found {
			if !rn.takes(ref) {
				continue // the next time
			}
			c := rn.hold(ref)
			c.seen(o, since)
			rn.letGo(ref, c)
			pc.queue.Add(ref)
		}
	}
	if err := pc.sweepServices(ctx, rn); err != nil && !refusal(err) { // an older provider knows none
		return 0, err
	}
	return sweepEvery, nil
}

// sweepServices enqueues the Services in a remote namespace, also those of earlier runs, and
// those that somebody removed there. What somebody changed there is sent again.
func (pc *controller) sweepServices(ctx context.Context, rn *remoteNamespace) error {
	since := rn.writes.Load()
	services, err := pc.sent(ctx, rn, aService)
	if err != nil {
		return err
	}
	sent, err := pc.sent(ctx, rn, aSlice)
	if err != nil {
		return err
	}
	type service struct {
		there  *workload.ObjectCopy // nil for none
		slices map[string]string    // revisions of its EndpointSlices, by name
	}
	found := make(map[key]*service)
	at := func(name string) *service {
		ref := key{aService, rn.origin, name}
		if found[ref] == nil {
			found[ref] = &service{slices: make(map[string]string)}
		}
		return found[ref]
	}
	for _, o := range services {
		at(o.Name).there = o
	}
	for _, o := range sent {
		if name := workload.SliceService(o.Name); name != "" {
			at(name).slices[o.Name] = o.ResourceVersion
		}
	}
	for _, ref := range rn.of(aService) {
		at(ref.name)
	}
	for ref, s := range found {
		if !rn.takes(ref) {
			continue // the next time
		}
		c := rn.hold(ref)
		c.seen(s.there, since)
		for name, known := range c.slices {
			if revision, there := s.slices[name]; known.written <= since && (!there || revision != known.revision) {
				c.slices[name] = sentSlice{}
			}
		}
		for name := range s.slices {
			if _, known := c.slices[name]; !known {
				c.slices[name] = sentSlice{}
			}
		}
		rn.letGo(ref, c)
		pc.queue.Add(ref)
	}
	return nil
}

// sent returns what agents of this cluster have sent of a kind.
func (pc *controller) sent(ctx context.Context, rn *remoteNamespace, what kind) ([]*workload.ObjectCopy, error) {
	return kube.List(ctx, rn.client, kube.Query{Path: key{kind: what}.collection(rn.name)}, kube.Kind[*workload.ObjectCopy]{
		Fresh:  func() *workload.ObjectCopy { return &workload.ObjectCopy{} },
		Keep:   func(o *workload.ObjectCopy) bool { return o.Annotations[workload.AnnotationOriginUID] != "" },
		Bounds: &kube.Bounds{Objects: maxSwept, Bytes: maxTheirs, List: maxListed, Object: maxTold},
	})
}
