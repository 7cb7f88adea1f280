package offer

import (
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/registry"
)

const (
	// Life is how long an offer stands.
	Life = 6 * time.Hour
	// renewal is when it is made anew: two hours before its end, and as much as
	// spread earlier, so that the offers to a hundred consumers are not written in
	// one minute.
	renewal = Life - 2*time.Hour
	spread  = 30 * time.Minute

	// settles is how long what was measured must differ from what a consumer was told
	// until it is told: a node that is not ready for the time its kubelet restarts is
	// no news to anyone.
	settles = 10 * time.Second
	// gathers is the same for what was decided: another setting, more or fewer
	// consumers. It is short, and yet has ten consumers that come at once change the
	// offers of the others once.
	gathers = time.Second
)

// Terms are the settings that offers depend on.
type Terms struct {
	Percentage, Overcommit int // as in Split
	// Hysteresis is by how many percent an amount has to change to be told.
	Hysteresis int
}

// Allocator knows what there is to offer, who the consumers are, and what each of them
// was told. Nothing is on disk: what an earlier process told is taken from the
// consumers themselves. All methods may be called from any goroutine; times are
// to have a monotonic part.
type Allocator struct {
	mu        sync.Mutex
	terms     Terms
	pool      *Pool                                     // nil while it is not known
	why       string                                    // it is not known, a sentence
	bare      time.Time                                 // since when no node counts, while the pool is not known; else zero
	consumers map[peer.ClusterID]api.RequestedResources // what they ask for
	told      map[peer.ClusterID]*told
}

// told is the offer that a consumer has.
type told struct {
	spec    *api.AdvertisementSpec
	amounts Amounts
	split   Split
	from    registry.List // that Images of spec were looked at with
	renewed time.Time     // by the monotonic clock: when it was made, or would have been
	since   time.Time     // since when another one would be made; zero while that is not so
	stale   bool          // that is so for long enough
}

// Own returns the registries that this cluster's own pods use; nil while that is not
// known.
func (a *Allocator) Own() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pool == nil {
		return nil
	}
	return a.pool.Registries.Own
}

// NewAllocator returns an Allocator without consumers, that knows of nothing to offer.
func NewAllocator() *Allocator {
	return &Allocator{consumers: make(map[peer.ClusterID]api.RequestedResources), told: make(map[peer.ClusterID]*told)}
}

// Admit says whether a cluster is a consumer, and how much it asks for. Consumers share
// the pool. It reports whether that is new; then Measure is to be called, for the others.
// What a cluster was told that is no consumer is forgotten.
func (a *Allocator) Admit(id peer.ClusterID, admitted bool, asked api.RequestedResources) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was, there := a.consumers[id]
	changed = there != admitted || there && was != asked
	if admitted {
		a.consumers[id] = asked
	} else {
		delete(a.consumers, id)
		delete(a.told, id)
	}
	return changed
}

// Consumers returns how many there are.
func (a *Allocator) Consumers() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.consumers)
}

// Unknown says that it is not known what there is to offer, and why, in a sentence.
// Offers stay as they are, and none is made. It reports whether that is news.
func (a *Allocator) Unknown(why string) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	changed = a.pool != nil || a.why != why
	a.pool, a.why, a.bare = nil, why, time.Time{}
	return changed
}

// Why returns why it is not known what there is to offer, in a sentence; "" when it
// is known, or about to be.
func (a *Allocator) Why() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.why
}

// Measure takes in what there is to offer now, and on which terms. It returns the
// consumers to whom Offer has something new to say, and after how long it wants to
// be called again; 0 for not before something changes.
//
// When nothing was known before and no node counts, that is believed only after a
// while: the nodes may not be ready yet.
func (a *Allocator) Measure(pool Pool, terms Terms, now time.Time) (changed []peer.ClusterID, again time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.terms = terms
	if a.pool == nil && pool.Nodes == 0 {
		if a.bare.IsZero() {
			a.bare = now
		}
		if left := settles - now.Sub(a.bare); left > 0 {
			a.why = "No node of this cluster is ready for pods of peers."
			return nil, left
		}
	}
	a.pool, a.why, a.bare = &pool, "", time.Time{}
	for id, asked := range a.consumers {
		split := a.split(len(a.consumers), asked)
		want := split.Of(pool.Free)
		t := a.told[id]
		if t == nil {
			changed = append(changed, id)
			continue
		}
		if !t.differs(want, split, &pool, terms.Hysteresis) {
			t.since, t.stale, t.split, t.from = time.Time{}, false, split, pool.Registries
			continue
		}
		if t.since.IsZero() {
			t.since = now
		}
		wait := settles
		switch {
		case t.amounts.empty() && !want.empty():
			wait = 0 // what there was not is news
		case t.split != split:
			wait = gathers
		}
		if left := wait - now.Sub(t.since); left > 0 {
			if again == 0 || left < again {
				again = left
			}
			continue
		}
		t.stale = true
		changed = append(changed, id)
	}
	slices.Sort(changed)
	return changed, again
}

// split returns how the pool is shared out among that many, for one who asked for that much.
func (a *Allocator) split(consumers int, asked api.RequestedResources) Split {
	return Split{Percentage: a.terms.Percentage, Overcommit: a.terms.Overcommit, Consumers: max(consumers, 1), Asked: asked}
}

// differs reports whether another offer is to be made. What people decided is told
// exactly; the number of consumers is not as important.
func (t *told) differs(want Amounts, split Split, pool *Pool, hysteresis int) bool {
	if t.split.Percentage != split.Percentage || t.split.Overcommit != split.Overcommit || t.split.Asked != split.Asked {
		hysteresis = 0
	}
	return want.differs(t.amounts, hysteresis) || !maps.Equal(t.spec.Labels, pool.Labels) || t.namesOthers(pool.Registries)
}

// namesOthers reports whether the offer has an image from none of the registries.
func (t *told) namesOthers(from registry.List) bool {
	return !t.from.Equal(from) && slices.ContainsFunc(t.spec.Images, func(image api.ContainerImage) bool {
		return len(allowed(image.Names, from)) < len(image.Names)
	})
}

// Prior is what is known about a consumer besides what an Allocator keeps: what it asks for,
// and the offer of an earlier process.
type Prior struct {
	// Asked is how much it asks for.
	Asked api.RequestedResources
	// Unknown: the consumer may have an offer, and has not said so yet.
	Unknown bool
	// Spec is the one that it has; nil when it has none.
	Spec *api.AdvertisementSpec
}

// Offer returns what we, who go by the ID self, offer to a consumer, or to a
// cluster that is about to be one. It is shared and must not be changed, and it is
// the same until it is to be sent again. It is nil while nothing can be offered:
// it is not known what there is, or whether an earlier process offered something.
// What that one offered stays while it is as good as what would be offered now.
func (a *Allocator) Offer(self, id peer.ClusterID, prior Prior, now time.Time) *api.AdvertisementSpec {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.next(self, id, prior, now)
	if t == nil {
		return nil
	}
	a.told[id] = t
	return t.spec
}

// Peek returns what Offer would, and is no offer.
func (a *Allocator) Peek(self, id peer.ClusterID, prior Prior, now time.Time) *api.AdvertisementSpec {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.next(self, id, prior, now); t != nil {
		return t.spec
	}
	return nil
}

// next returns what a cluster is to be told, nil for nothing. a.mu is held.
func (a *Allocator) next(self, id peer.ClusterID, prior Prior, now time.Time) *told {
	t := a.told[id]
	switch {
	case self == "":
		return nil
	case a.pool == nil:
		return t
	case t == nil && prior.Unknown:
		return nil
	}
	consumers := len(a.consumers)
	if _, there := a.consumers[id]; !there {
		consumers++
	}
	split := a.split(consumers, prior.Asked)
	want := split.Of(a.pool.Free)
	if t == nil {
		t = a.adopt(self, prior.Spec, want, split, now)
	}
	if t == nil || a.replaces(id, t, want, split, now) {
		made := now.UTC().Truncate(time.Second)
		t = &told{amounts: want, split: split, renewed: now, spec: &api.AdvertisementSpec{
			ClusterID: string(self), ResourceQuota: api.ResourceQuota{Hard: want.Texts()}, Labels: a.pool.Labels, Images: a.pool.Images,
			Timestamp: metav1.NewTime(made), TimeToLive: metav1.NewTime(made.Add(Life)),
		}, from: a.pool.Registries}
	}
	return t
}

// replaces reports whether a consumer is to be told something else than t.
func (a *Allocator) replaces(id peer.ClusterID, t *told, want Amounts, split Split, now time.Time) bool {
	age := now.Sub(t.renewed)
	_, consumes := a.consumers[id]
	// What was told somebody who then became no consumer is not kept for long.
	late := age >= renewalOf(id) || !consumes && age >= settles
	return late || t.stale && t.differs(want, split, a.pool, a.terms.Hysteresis)
}

// adopt returns the offer that a consumer has from an earlier process, nil when
// there is none or it is not good any more. Who has it could have changed it: it
// is not taken if it says more than what would be offered now, but for what makes
// no difference, nor if it says more than was asked for.
func (a *Allocator) adopt(self peer.ClusterID, spec *api.AdvertisementSpec, want Amounts, split Split, now time.Time) *told {
	if spec == nil || spec.ClusterID != string(self) || len(spec.Prices) > 0 || spec.TimeToLive.Sub(spec.Timestamp.Time) != Life {
		return nil
	}
	age := now.Sub(spec.Timestamp.Time)
	t := &told{spec: spec, amounts: parseAll(spec.ResourceQuota.Hard), split: split, renewed: now.Add(-age)}
	if age < 0 || age >= renewal || len(t.amounts) != len(spec.ResourceQuota.Hard) || t.differs(want, split, a.pool, a.terms.Hysteresis) || split.bound(t.amounts) {
		return nil
	}
	t.from = a.pool.Registries
	return t
}

// Due returns after how long the offer to a cluster is to be made anew, 0 when it
// has none.
func (a *Allocator) Due(id peer.ClusterID, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.told[id]
	if t == nil {
		return 0
	}
	return max(t.renewed.Add(renewalOf(id)).Sub(now), time.Second)
}

// renewalOf spreads the renewal of offers over the consumers.
func renewalOf(id peer.ClusterID) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return renewal - time.Duration(h.Sum32()%uint32(spread/time.Second))*time.Second
}

// Summary is what an Allocator holds, for people.
type Summary struct {
	// Pool is what there is to offer; nil while that is not known, and then Why is a
	// sentence about that, or empty.
	Pool *Pool
	Why  string
	// Offers are what the consumers were told; nil for one that was told nothing yet.
	// They are shared and must not be changed.
	Offers map[peer.ClusterID]*api.AdvertisementSpec
}

// Summary returns what is known.
func (a *Allocator) Summary() Summary {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := Summary{Pool: a.pool, Why: a.why, Offers: make(map[peer.ClusterID]*api.AdvertisementSpec, len(a.consumers))}
	for id := range a.consumers {
		out.Offers[id] = nil
		if t := a.told[id]; t != nil {
			out.Offers[id] = t.spec
		}
	}
	return out
}
