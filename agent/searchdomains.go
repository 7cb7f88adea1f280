package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/contact"
	"liqo.io/agent/agent/recorder"
	"liqo.io/agent/api"
	"liqo.io/agent/dnssd"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// searchDomain is a domain that is looked in.
type searchDomain struct {
	config.SearchDomain        // Autojoin does not count
	autojoin            *bool  // nil: as the general setting says
	source              string // where it comes from, for people
	added               bool   // it was added with liqo-agent domains
	object              string // the SearchDomain that it comes from, if it does
	uid                 types.UID
	ignored             []string // where else it is given, without effect
}

// searchDomains are all domains that are looked in, and what they list.
type searchDomains struct {
	// ordering is held while the set is made anew, and while what a domain lists is
	// taken in: else the older of two sets might come last, and leads of a domain that
	// was dropped meanwhile would stay. It comes before mu.
	ordering sync.Mutex

	mu       sync.Mutex
	objects  []api.SearchDomain
	told     bool // the API server said which objects there are
	complete bool // byName has them
	byName   map[string]*searchDomain
	// useless says of SearchDomains that have no effect why.
	useless map[types.UID]string
	// listed are the leads that came from each domain.
	listed map[string]map[peer.Key]struct{}
	// shown is what the status of each SearchDomain said last.
	shown map[types.UID]api.SearchDomainStatus
	// remarks say of clusters that are listed, by ID, why they are not joined.
	remarks map[peer.ClusterID]string
	// changed are the domains about which there is something new.
	changed map[string]struct{}

	again chan struct{} // the set is to be made anew; capacity 1
	news  chan struct{} // changed has something; capacity 1
}

func newSearchDomains() *searchDomains {
	return &searchDomains{
		byName: make(map[string]*searchDomain), useless: make(map[types.UID]string),
		listed: make(map[string]map[peer.Key]struct{}), shown: make(map[types.UID]api.SearchDomainStatus),
		remarks: make(map[peer.ClusterID]string),
		changed: make(map[string]struct{}), again: make(chan struct{}, 1), news: make(chan struct{}, 1),
	}
}

// tell is told the SearchDomains of the API server. It does not block.
func (d *searchDomains) tell(objects []api.SearchDomain) {
	d.mu.Lock()
	d.objects, d.told = objects, true
	d.mu.Unlock()
	wake(d.again)
}

// note says that there is something new about a domain.
func (d *searchDomains) note(name string) {
	d.mu.Lock()
	d.changed[name] = struct{}{}
	d.mu.Unlock()
	wake(d.news)
}

// remark takes in why a cluster that domains list is not joined, "" for no reason, and
// has it shown if that is new.
func (d *searchDomains) remark(id peer.ClusterID, why string, domains []string) {
	d.mu.Lock()
	news := d.remarks[id] != why
	if why == "" || len(domains) == 0 {
		delete(d.remarks, id)
	} else {
		d.remarks[id] = why
	}
	d.mu.Unlock()
	for _, name := range domains {
		if news {
			d.note(name)
		}
	}
}

// get returns one domain.
func (d *searchDomains) get(name string) (searchDomain, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.byName[name]
	if one == nil {
		return searchDomain{}, false
	}
	return *one, true
}

// all returns every domain, sorted by name.
func (d *searchDomains) all() []searchDomain {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]searchDomain, 0, len(d.byName))
	for _, name := range slices.Sorted(maps.Keys(d.byName)) {
		out = append(out, *d.byName[name])
	}
	return out
}

// autojoins returns what domains with a word of their own say about joining.
func (d *searchDomains) autojoins() map[string]bool {
	out := make(map[string]bool)
	for _, one := range d.all() {
		if one.autojoin != nil {
			out[one.Domain] = *one.autojoin
		}
	}
	return out
}

// names returns all domains; nil until the API server has said which SearchDomains
// there are.
func (d *searchDomains) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.complete {
		return nil
	}
	return slices.AppendSeq([]string{}, maps.Keys(d.byName))
}

// merge makes the set anew from all places that name domains: SearchDomains, the
// oldest first; the configuration file; the command line. The first that names a
// domain counts. It returns the domains to look in, and those that were dropped.
func (d *searchDomains) merge(loaded *config.Loaded, stored []state.SearchDomain) (looked []dnssd.Domain, dropped []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	byName, useless := make(map[string]*searchDomain), make(map[types.UID]string)
	add := func(one searchDomain) string {
		checked, err := config.CheckSearchDomain(one.SearchDomain)
		if err != nil {
			return err.Error()
		}
		one.SearchDomain = checked
		if first := byName[one.Domain]; first != nil {
			first.ignored = append(first.ignored, one.source)
			return "the domain comes from " + first.source + " already"
		}
		byName[one.Domain] = &one
		return ""
	}
	objects := slices.Clone(d.objects)
	slices.SortFunc(objects, func(a, b api.SearchDomain) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for _, o := range objects {
		if why := add(searchDomain{
			SearchDomain: config.SearchDomain{
				Domain: o.Spec.Domain, Server: o.Spec.Server,
				MinInterval: time.Duration(o.Spec.MinIntervalSeconds) * time.Second, MaxInterval: time.Duration(o.Spec.MaxIntervalSeconds) * time.Second,
			},
			autojoin: o.Spec.Autojoin, source: "SearchDomain " + o.Name, object: o.Name, uid: o.UID,
		}); why != "" {
			useless[o.UID] = why
		}
	}
	for i, one := range loaded.Config.SearchDomains {
		add(searchDomain{SearchDomain: one, autojoin: &one.Autojoin, source: loaded.Sources[fmt.Sprintf("search_domain[%d]", i)]})
	}
	for _, one := range stored {
		add(searchDomain{
			SearchDomain: config.SearchDomain{Domain: one.Domain, Server: one.Server, MinInterval: one.MinInterval, MaxInterval: one.MaxInterval},
			autojoin:     one.Autojoin, added: true, source: "command line (" + strings.TrimSuffix(one.By, " (command line)") + ")",
		})
	}
	for name := range d.byName {
		if byName[name] == nil {
			dropped = append(dropped, name)
		}
	}
	for name := range byName {
		d.changed[name] = struct{}{}
	}
	for uid := range d.shown {
		if !slices.ContainsFunc(objects, func(o api.SearchDomain) bool { return o.UID == uid }) {
			delete(d.shown, uid)
		}
	}
	d.byName, d.useless, d.complete = byName, useless, d.told
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		one := byName[name]
		looked = append(looked, dnssd.Domain{Name: name, Server: one.Server, MinInterval: one.MinInterval, MaxInterval: one.MaxInterval})
	}
	return looked, dropped
}

// list takes in what a domain lists now, and returns what it listed before and no
// longer does. It reports false when nobody looks in the domain any more.
func (d *searchDomains) list(domain string, now map[peer.Key]struct{}) (gone []peer.Key, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.byName[domain]; !known {
		return nil, false
	}
	for key := range d.listed[domain] {
		if _, still := now[key]; !still {
			gone = append(gone, key)
		}
	}
	d.listed[domain] = now
	return gone, true
}

// drop forgets what a domain listed, and returns it.
func (d *searchDomains) drop(domain string) []peer.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, looked := d.byName[domain]; looked {
		return nil // it is back
	}
	gone := slices.Collect(maps.Keys(d.listed[domain]))
	delete(d.listed, domain)
	return gone
}

// statusPause is how long news about a domain wait for more of them: a domain that
// lists a thousand clusters is one change, not a thousand.
const statusPause = 300 * time.Millisecond

// followDomains keeps the set of search domains as it is said to be, and has what
// was found shown.
func (s *session) followDomains(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	wake(s.domains.again)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.domains.again:
			if err := s.mergeDomains(ctx); err != nil {
				return err
			}
			timer.Reset(0)
		case <-s.domains.news:
			timer.Reset(statusPause)
		case <-timer.C:
			for _, object := range s.domains.objectsToShow() {
				s.peering.SearchDomainChanged(object)
			}
		}
	}
}

// mergeDomains makes the set of search domains anew, and puts it into effect.
func (s *session) mergeDomains(ctx context.Context) error {
	s.domains.ordering.Lock()
	defer s.domains.ordering.Unlock()
	stored, err := s.store.SearchDomains(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("read the search domains that were added: %w", err)
	}
	looked, dropped := s.domains.merge(s.current.Load(), stored)
	s.setPolicy(ctx) // before anything is found there: by which domain a host counts is kept
	s.poller.SetDomains(looked)
	for _, domain := range dropped {
		for _, key := range s.domains.drop(domain) {
			s.contacts.Drop(key, recorder.Absence{Reason: "the DNS domain " + domain + " is no longer looked in", Said: true})
		}
	}
	return nil
}

// looked takes in what a look at a domain gave.
func (s *session) looked(r dnssd.Report) {
	s.domains.ordering.Lock()
	defer s.domains.ordering.Unlock()
	now := make(map[peer.Key]struct{}, len(r.Instances))
	for _, i := range r.Instances {
		now[keyOf(r.Domain, i.Name)] = struct{}{}
	}
	skipped := make(map[peer.Key]dnssd.Skip)
	for _, skip := range r.Skipped {
		skipped[keyOf(r.Domain, skip.Name)] = skip
	}
	gone, known := s.domains.list(r.Domain, now)
	if !known {
		return
	}
	for _, key := range gone {
		why := recorder.Absence{Reason: "it is no longer in the DNS domain " + r.Domain, Said: true}
		if skip, there := skipped[key]; there {
			why = recorder.Absence{Reason: "its records in the DNS domain " + r.Domain + " are incomplete: " + skip.Message, Expired: true}
		}
		s.contacts.Drop(key, why)
	}
	for _, i := range r.Instances {
		s.contacts.Set(contact.Lead{
			Key: keyOf(r.Domain, i.Name), URL: i.URL, Addrs: i.Addrs, ID: i.ID, Fingerprint: i.Fingerprint,
			ClusterName: i.ClusterName, Namespace: i.Namespace, Version: i.Version, TTL: i.TTL,
		})
	}
	s.domains.note(r.Domain)
}

// keyOf is the key of what a search domain lists under a name.
func keyOf(domain, name string) peer.Key {
	return peer.Key{Source: peer.WAN, Domain: domain, Instance: name}
}

// objectsToShow returns the SearchDomains about which there is something new, those
// that have no effect among them.
func (d *searchDomains) objectsToShow() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for _, o := range d.objects {
		if _, useless := d.useless[o.UID]; useless {
			out = append(out, o.Name)
		}
	}
	for name := range d.changed {
		if one := d.byName[name]; one != nil && one.object != "" {
			out = append(out, one.object)
		}
	}
	clear(d.changed)
	return out
}

// entry is something that a search domain lists.
type entry struct {
	name, url       string
	id              peer.ClusterID // who answers there; "" for nobody
	cluster         string
	reason, message string // why it is left out, or with no reason why it is not joined
}

// entries returns what a domain lists, by name.
func (s *session) entries(r dnssd.Report) []entry {
	out := make([]entry, 0, len(r.Instances)+len(r.Skipped))
	for _, i := range r.Instances {
		e := entry{name: i.Name, url: i.URL, reason: string(contact.Asking), message: "nobody was asked there yet"}
		if state, found := s.contacts.State(keyOf(r.Domain, i.Name)); found {
			e.id, e.cluster, e.reason, e.message = state.ID, state.ClusterName, string(state.Reason), state.Message
			if state.Reason == contact.Ourselves {
				e.id, e.cluster, e.message = s.id, s.self().ClusterName, "this cluster itself"
			} else if state.Reason == "" {
				e.message = s.whyNotJoined(state.ID)
			}
		}
		out = append(out, e)
	}
	for _, skip := range r.Skipped {
		out = append(out, entry{name: skip.Name, reason: string(skip.Reason), message: skip.Message})
	}
	slices.SortFunc(out, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return out
}

// whyNotJoined says why a cluster is not joined that somebody said is to be, or that is
// to be by itself; "" when it is joined, or nobody said so.
func (s *session) whyNotJoined(id peer.ClusterID) string {
	if why := s.ledger.Standing(id).Unjoined.Message; why != "" {
		return why
	}
	if view := s.peering.View(id).Outgoing; view.Wanted && !view.Joined {
		return view.Message
	}
	return ""
}

// remarked has shown in the domains that list a cluster why it is not joined.
func (s *session) remarked(id peer.ClusterID) {
	if p, known := s.recorder.Peer(id); known && len(p.Domains) > 0 {
		s.domains.remark(id, s.whyNotJoined(id), p.Domains)
	}
}

// maxShownEntries is how many entries the status of a SearchDomain lists.
const maxShownEntries = 100

// searchDomainStatus is what the status of a SearchDomain is to say; false while
// nothing is known.
func (s *session) searchDomainStatus(object string) (api.SearchDomainStatus, bool) {
	uid, domain, why := s.domains.behind(object)
	now := metav1.NewTime(s.now().Truncate(time.Second))
	switch {
	case why != "":
		return api.SearchDomainStatus{Conditions: []api.Condition{
			{Type: api.ConditionIgnored, Status: api.ConditionTrue, Reason: "NoEffect", Message: "It has no effect: " + why + ".", LastTransitionTime: now},
		}}, true
	case domain == "":
		return api.SearchDomainStatus{}, false
	}
	r, found := s.poller.Last(domain)
	if !found {
		return api.SearchDomainStatus{}, false
	}
	entries := s.entries(r)
	return s.domains.show(uid, func(shown api.SearchDomainStatus) api.SearchDomainStatus {
		return statusOf(r, entries, shown, now)
	}), true
}

// behind returns what a SearchDomain is about: a domain, or why it has no effect;
// neither while that is not known of the object that has the name now.
func (d *searchDomains) behind(object string) (uid types.UID, domain, useless string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.objects {
		if o.Name == object {
			uid = o.UID
		}
	}
	if why, is := d.useless[uid]; is {
		return uid, "", why
	}
	for name, one := range d.byName {
		if uid != "" && one.uid == uid {
			return uid, name, ""
		}
	}
	return uid, "", ""
}

// show replaces what the status of a SearchDomain says.
func (d *searchDomains) show(uid types.UID, next func(shown api.SearchDomainStatus) api.SearchDomainStatus) api.SearchDomainStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	status := next(d.shown[uid])
	d.shown[uid] = status
	return status
}

// statusOf is what the status of a SearchDomain says about a look. shown is what it
// said before: what only wording makes different stays as it was. Whoever writes it
// carries times over, and cuts texts to what the schema takes.
func statusOf(r dnssd.Report, entries []entry, shown api.SearchDomainStatus, now metav1.Time) api.SearchDomainStatus {
	status := api.SearchDomainStatus{LastQuery: &api.SearchDomainQuery{
		Time: metav1.NewTime(r.At.Truncate(time.Second)), Outcome: string(r.Outcome), Server: r.Server, Authenticated: r.Authenticated,
	}}
	before := make(map[string]api.SearchDomainEntry, len(shown.Found))
	for _, e := range shown.Found {
		before[e.Name] = e
	}
	var out, unjoined []string
	for _, e := range entries {
		switch {
		case e.reason == "":
			if status.Clusters++; e.message != "" {
				unjoined = append(unjoined, e.name+": "+e.message)
			}
		case e.reason == string(contact.Ourselves):
			// A domain of one's own lists oneself, too.
		default:
			out = append(out, e.name+" ("+e.reason+")")
		}
		if len(status.Found) == maxShownEntries {
			continue
		}
		item := api.SearchDomainEntry{Name: e.name, ClusterID: string(e.id), Reason: e.reason, Message: e.message}
		if old, there := before[item.Name]; there && item.Reason != "" && old.Reason == item.Reason && old.ClusterID == item.ClusterID {
			item.Message = old.Message
		}
		status.Found = append(status.Found, item)
	}
	resolved := api.Condition{Type: api.ConditionResolved, Status: api.ConditionFalse, Reason: string(r.Outcome), Message: r.Message, LastTransitionTime: now}
	if r.Outcome.Conclusive() {
		resolved.Status = api.ConditionTrue
	}
	complete := api.Condition{Type: api.ConditionComplete, Status: api.ConditionTrue, Reason: "AllAnswer",
		Message: "Everything that the domain lists is a cluster that answers.", LastTransitionTime: now}
	if len(out) > 0 {
		const named = 3
		complete.Status, complete.Reason = api.ConditionFalse, "SomeLeftOut"
		complete.Message = fmt.Sprintf("%d of %d are left out, such as %s.", len(out), len(entries), strings.Join(out[:min(len(out), named)], ", "))
	}
	status.Conditions = []api.Condition{complete, resolved}
	if n := len(unjoined); n > 0 {
		status.Conditions = append(status.Conditions, api.Condition{Type: api.ConditionAutojoined, Status: api.ConditionFalse, Reason: "SomeNotJoined",
			Message: fmt.Sprintf("%d of %d are not joined, such as %s", n, status.Clusters, unjoined[0]), LastTransitionTime: now})
	}
	if old := shown.LastQuery; old != nil && old.Outcome == status.LastQuery.Outcome && old.Authenticated == status.LastQuery.Authenticated {
		// Which of the servers answered is of no interest as long as the answer is the
		// same; neither is how a failure is worded.
		status.LastQuery.Server = old.Server
		for _, c := range shown.Conditions {
			if c.Type == api.ConditionResolved && c.Status == resolved.Status {
				status.Conditions[1].Message = c.Message
			}
		}
	}
	return status
}
