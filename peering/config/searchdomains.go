package config

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering/objects"
)

// ManagerSearchDomain owns the status of SearchDomains.
const ManagerSearchDomain = "liqo-agent-searchdomain"

func searchDomainKind() objects.Kind[*api.SearchDomain] {
	return objects.Kind[*api.SearchDomain]{
		GVK:   api.GroupVersion.WithKind(api.KindSearchDomain),
		Path:  api.Collection(api.GroupVersion, api.PluralSearchDomains),
		Fresh: func() *api.SearchDomain { return &api.SearchDomain{} },
		Trim:  func(d *api.SearchDomain) { d.ManagedFields = nil },
	}
}

// Domains is about the SearchDomains of one API server: it tells which there are, and
// keeps their status. One goroutine runs it.
type Domains struct {
	cfg   Config
	on    Connection
	store *objects.Store[*api.SearchDomain]
	names *work.Queue[string]

	stale atomic.Bool             // something changed since told
	told  []*api.SearchDomain     // what Config.SearchDomains was told
	wrote map[string]domainStatus // what was written last, by name
}

// domainStatus is a status that was written, and the version of the object then.
type domainStatus struct {
	text    []byte
	version string
}

// NewDomains returns Domains that do nothing until Run is called.
func NewDomains(cfg Config, c Connection) *Domains {
	d := &Domains{cfg: cfg, on: c, wrote: make(map[string]domainStatus)}
	d.names = objects.NewQueue(d.attempted)
	d.store = objects.NewStore(searchDomainKind(), func(before, after *api.SearchDomain, _ bool) {
		d.stale.Store(true)
		d.names.Add(cmp.Or(after, before).Name)
	}, c.CheckIfMissing)
	return d
}

// Changed says that the status of the SearchDomain with that name may have to say
// something else. It never blocks. Any goroutine may call it at any time.
func (d *Domains) Changed(name string) { d.names.Add(name) }

// Run works until ctx ends.
func (d *Domains) Run(ctx context.Context) {
	if d.cfg.SearchDomains == nil && d.cfg.SearchDomainStatus == nil {
		return
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { d.store.Follow(ctx, d.on.Client) })
	d.work(ctx)
}

// work is Run without what feeds the store.
func (d *Domains) work(ctx context.Context) {
	if !d.on.Await(ctx, conn.Listed{Kind: "SearchDomains", Synced: d.store.Synced()}) {
		return
	}
	d.tell(true)
	for _, o := range d.store.All() {
		d.names.Add(o.Name)
	}
	d.names.Run(ctx, 1, d.process)
}

// tell tells which SearchDomains there are, if that is not what was told already
// or if it is to be told again.
func (d *Domains) tell(again bool) {
	if !d.stale.Swap(false) && !again || d.cfg.SearchDomains == nil {
		return
	}
	all := slices.DeleteFunc(d.store.All(), func(o *api.SearchDomain) bool { return o.DeletionTimestamp != nil })
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

// process tells which SearchDomains there are, and looks at the status of one.
func (d *Domains) process(ctx context.Context, name string) work.Outcome {
	d.tell(false)
	return objects.Result(d.show(ctx, name))
}

// attempted takes in how that ended.
func (d *Domains) attempted(name string, a work.Attempt) {
	switch err := a.Err; {
	case err == nil:
	case a.Permanent:
		d.on.WarnOnce("status of SearchDomain "+name, "the status of a SearchDomain cannot be written", err)
	default:
		d.on.CheckIfMissing(err)
		if !apierrors.IsConflict(err) {
			d.on.NoteError(err)
		}
		if a.Failures == objects.PatientRetries {
			d.on.WarnOnce("SearchDomain "+string(apierrors.ReasonForError(err)), "the status of a SearchDomain cannot be written, trying again", err)
		}
		d.on.Logger.Debug("writing a status failed, trying again", "searchdomain", name, "in", a.Next, "error", err)
	}
}

// show makes an object's status say what is known.
func (d *Domains) show(ctx context.Context, name string) error {
	o := d.store.Get(name)
	if o == nil || o.DeletionTimestamp != nil {
		delete(d.wrote, name)
		return nil
	}
	if d.cfg.SearchDomainStatus == nil {
		return nil
	}
	if d.cfg.SearchDomains != nil && !slices.ContainsFunc(d.told, func(t *api.SearchDomain) bool { return sameDomain(t, o) }) {
		return nil // It changed a moment ago, so it is due again, or about to be.
	}
	wanted, known := d.cfg.SearchDomainStatus(name)
	if !known {
		return nil
	}
	wanted = presentable(wanted, o.Status, d.on.Now())
	body, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	shown, err := json.Marshal(o.Status)
	if err != nil {
		return err
	}
	// What others added to the status stays, and is no reason to write it again.
	if last := d.wrote[name]; bytes.Equal(body, shown) || last.version == o.ResourceVersion && bytes.Equal(body, last.text) {
		return nil
	}
	// The UID alone does not keep this out of an object that has taken the place of
	// this one: where a status is written, the API server does not look at it.
	object := objects.Applied{Metadata: objects.Meta{Name: name, UID: o.UID, ResourceVersion: o.ResourceVersion}, Status: wanted}
	written, err := objects.Apply(ctx, d.on.Client, d.store.Kind, "status", object, ManagerSearchDomain, true)
	if err != nil {
		return err
	}
	d.store.Wrote(written)
	d.wrote[name] = domainStatus{body, written.ResourceVersion}
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
		e.Name, e.Message = text.Line(e.Name, maxEntryText), text.Line(e.Message, maxEntryText)
	}
	slices.SortFunc(wanted.Found, func(a, b api.SearchDomainEntry) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ClusterID, b.ClusterID), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	wanted.Found = wanted.Found[:min(len(wanted.Found), maxFound)]
	for i := range wanted.Conditions {
		if c := &wanted.Conditions[i]; !c.KeepTransition(shown.Conditions) && c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = second
		}
	}
	slices.SortStableFunc(wanted.Conditions, func(a, b api.Condition) int { return cmp.Compare(a.Type, b.Type) })
	return wanted
}
