package peering

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// ManagerSearchDomain owns the status of SearchDomains.
const ManagerSearchDomain = "liqo-agent-searchdomain"

func searchDomainKind() kind[*api.SearchDomain] {
	return kind[*api.SearchDomain]{
		gvk:   api.GroupVersion.WithKind(api.KindSearchDomain),
		path:  collection(api.GroupVersion, api.PluralSearchDomains),
		fresh: func() *api.SearchDomain { return &api.SearchDomain{} },
		about: func(*api.SearchDomain) []peer.ClusterID { return nil },
		trim:  func(d *api.SearchDomain) { d.ManagedFields = nil },
	}
}

// SearchDomainChanged says that the status of the SearchDomain with that name may
// have to say something else. It never blocks. Without a connection nothing is
// done about it, because the next connection begins with looking at all of them.
// Any goroutine may call it at any time.
func (c *Controller) SearchDomainChanged(name string) {
	if s := c.current(); s != nil {
		s.domains.agenda.add(name)
	}
}

// domains is the part of a session that is about SearchDomains: it tells which
// there are, and keeps their status. One goroutine runs it.
type domains struct {
	*session
	store  *store[*api.SearchDomain]
	agenda *agenda
	retry  workqueue.TypedRateLimiter[string]

	stale atomic.Bool             // something changed since told
	told  []*api.SearchDomain     // what Config.SearchDomains was told
	wrote map[string]domainStatus // what was written last, by name
}

// domainStatus is a status that was written, and the version of the object then.
type domainStatus struct {
	text    []byte
	version string
}

func newDomains(s *session) *domains {
	d := &domains{
		session: s, agenda: newAgenda(), wrote: make(map[string]domainStatus),
		retry: workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMax),
	}
	d.store = newStore(searchDomainKind(), func(before, after *api.SearchDomain, _ bool) {
		d.stale.Store(true)
		d.agenda.add(cmp.Or(after, before).Name)
	})
	return d
}

// run works until ctx ends.
func (d *domains) run(ctx context.Context) {
	if d.cfg.SearchDomains == nil && d.cfg.SearchDomainStatus == nil {
		return
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { follow(ctx, d.session, d.store) })
	d.work(ctx)
}

// work is run without what feeds the store.
func (d *domains) work(ctx context.Context) {
	if !d.await(ctx, d.store.synced, "SearchDomains") {
		return
	}
	d.tell(true)
	for _, o := range d.store.all() {
		d.agenda.add(o.Name)
	}
	for {
		name, ok := d.agenda.next(ctx)
		if !ok {
			return
		}
		d.tell(false)
		d.process(ctx, name)
	}
}

// await waits for the first list of a kind whose absence is no reason to do
// nothing else, and reports whether there was one before ctx ended.
func (s *session) await(ctx context.Context, synced <-chan struct{}, kind string) bool {
	patience := time.NewTimer(listTimeout)
	defer patience.Stop()
	for {
		select {
		case <-synced:
			return true
		case <-ctx.Done():
			return false
		case <-patience.C:
			s.complainOnce(kind, "the API server does not list "+kind+", asking again", errors.New(s.link.snapshot().LastError))
		}
	}
}

// tell tells which SearchDomains there are, if that is not what was told already
// or if it is to be told again.
func (d *domains) tell(again bool) {
	if !d.stale.Swap(false) && !again || d.cfg.SearchDomains == nil {
		return
	}
	all := slices.DeleteFunc(d.store.all(), func(o *api.SearchDomain) bool { return o.DeletionTimestamp != nil })
	slices.SortFunc(all, func(a, b *api.SearchDomain) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	if !again && slices.EqualFunc(all, d.told, sameDomain) {
		return
	}
	d.told = all
	var out []api.SearchDomain
	for _, o := range all {
		out = append(out, *o.DeepCopy())
	}
	d.cfg.SearchDomains(out)
}

// sameDomain reports whether two objects say the same, but for their status, and
// are the same.
func sameDomain(a, b *api.SearchDomain) bool {
	return a.Name == b.Name && a.UID == b.UID && a.Generation == b.Generation && reflect.DeepEqual(a.Spec, b.Spec)
}

// process looks at the status of one object and decides when to try again.
func (d *domains) process(ctx context.Context, name string) {
	err := d.show(ctx, name)
	switch {
	case err == nil:
		d.retry.Forget(name)
	case ctx.Err() != nil:
		// The next connection looks at every object.
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		d.retry.Forget(name)
		d.complainOnce("status of SearchDomain "+name, "the status of a SearchDomain cannot be written", err)
		d.agenda.addAfter(name, jitter(refusedRetry))
	default:
		d.checkIfMissing(err)
		if !apierrors.IsConflict(err) {
			d.link.note(err)
		}
		if d.retry.NumRequeues(name) == patientRetries {
			d.complainOnce("SearchDomain "+string(apierrors.ReasonForError(err)), "the status of a SearchDomain cannot be written, trying again", err)
		}
		pause := jitter(d.retry.When(name))
		if seconds, asked := apierrors.SuggestsClientDelay(err); asked {
			pause += min(time.Duration(seconds)*time.Second, longestWish)
		}
		d.cfg.Logger.Debug("writing a status failed, trying again", "searchdomain", name, "in", pause, "error", err)
		d.agenda.addAfter(name, pause)
	}
}

// show makes an object's status say what is known.
func (d *domains) show(ctx context.Context, name string) error {
	o := d.store.get(name)
	if o == nil || o.DeletionTimestamp != nil {
		delete(d.wrote, name)
		return nil
	}
	if d.cfg.SearchDomainStatus == nil {
		return nil
	}
	if d.cfg.SearchDomains != nil && !slices.ContainsFunc(d.told, func(t *api.SearchDomain) bool { return sameDomain(t, o) }) {
		return nil // It changed a moment ago, so it is on the agenda again, or about to be.
	}
	wanted, known := d.cfg.SearchDomainStatus(name)
	if !known {
		return nil
	}
	wanted = presentable(wanted, o.Status, d.cfg.Now())
	text, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	shown, err := json.Marshal(o.Status)
	if err != nil {
		return err
	}
	// What others added to the status stays, and is no reason to write it again.
	if last := d.wrote[name]; bytes.Equal(text, shown) || last.version == o.ResourceVersion && bytes.Equal(text, last.text) {
		return nil
	}
	// The UID alone does not keep this out of an object that has taken the place of
	// this one: where a status is written, the API server does not look at it.
	object := applied{Metadata: appliedMeta{Name: name, UID: o.UID, ResourceVersion: o.ResourceVersion}, Status: wanted}
	written, err := applyKind(ctx, d.client, d.store.kind, "status", object, ManagerSearchDomain, true)
	if err != nil {
		return err
	}
	d.store.wrote(written)
	d.wrote[name] = domainStatus{text, written.ResourceVersion}
	return nil
}

// maxFound and maxEntryText are the limits of the schema for what a domain lists:
// the API server would refuse the whole status for one text of a stranger's that
// is too long.
const (
	maxFound     = 100
	maxEntryText = 1024
)

// presentable returns a status as it is to be written over the one that is shown:
// in an order that does not depend on that of answers, within the limits of the
// schema, and with the old times where nothing changed.
func presentable(wanted, shown api.SearchDomainStatus, now time.Time) api.SearchDomainStatus {
	wanted = wanted.DeepCopy()
	second := metav1.NewTime(now.Truncate(time.Second))
	if q, old := wanted.LastQuery, shown.LastQuery; q != nil {
		switch {
		case old != nil && !old.Time.IsZero() && old.Outcome == q.Outcome && old.Server == q.Server && old.Authenticated == q.Authenticated:
			q.Time = old.Time
		case q.Time.IsZero():
			q.Time = second
		}
	}
	for i := range wanted.Found {
		e := &wanted.Found[i]
		e.Name, e.Message = shortened(e.Name), shortened(e.Message)
	}
	slices.SortFunc(wanted.Found, func(a, b api.SearchDomainEntry) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ClusterID, b.ClusterID), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	wanted.Found = wanted.Found[:min(len(wanted.Found), maxFound)]
	for i := range wanted.Conditions {
		c := &wanted.Conditions[i]
		old := shown.Condition(c.Type)
		switch {
		case old != nil && old.Status == c.Status:
			c.LastTransitionTime = old.LastTransitionTime
		case c.LastTransitionTime.IsZero():
			c.LastTransitionTime = second
		}
	}
	slices.SortStableFunc(wanted.Conditions, func(a, b api.Condition) int { return cmp.Compare(a.Type, b.Type) })
	return wanted
}

// shortened returns text without what is beyond the limit and what is no text.
func shortened(text string) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if utf8.RuneCountInString(text) <= maxEntryText {
		return text
	}
	return string([]rune(text)[:maxEntryText-1]) + "…"
}
