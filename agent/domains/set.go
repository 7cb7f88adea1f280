package domains

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/api"
	"liqo.io/agent/dnssd"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// Domain is one that is looked in.
type Domain struct {
	config.SearchDomain        // Autojoin does not count
	autojoin            *bool  // nil: as the general setting says
	source              string // where it comes from, for people
	added               bool   // it was added with liqo-agent domains
	object              string // the SearchDomain that it comes from, if it does
	uid                 types.UID
	ignored             []string // where else it is given, without effect
}

// Set is all domains that are looked in, and what they list.
type Set struct {
	mu       sync.Mutex
	objects  []api.SearchDomain
	told     bool // the API server said which objects there are
	complete bool // byName has them
	byName   map[string]*Domain
	// useless says of SearchDomains that have no effect why.
	useless map[types.UID]string
	// listed are the leads that came from each domain.
	listed map[string]map[peer.Key]struct{}
	// remembered is what each domain listed when the last run ended, until it is looked in.
	remembered map[string][]dnssd.Instance
	// shown is what the status of each SearchDomain said last.
	shown map[types.UID]api.SearchDomainStatus
	// remarks say of clusters that are listed, by ID, why they are not joined.
	remarks map[peer.ClusterID]string
	// changed are the domains about which there is something new.
	changed map[string]struct{}

	again chan struct{} // the set is to be made anew; capacity 1
	news  chan struct{} // changed has something; capacity 1
}

func NewSet() *Set {
	return &Set{
		byName: make(map[string]*Domain), useless: make(map[types.UID]string),
		listed: make(map[string]map[peer.Key]struct{}), shown: make(map[types.UID]api.SearchDomainStatus),
		remembered: make(map[string][]dnssd.Instance),
		remarks:    make(map[peer.ClusterID]string),
		changed:    make(map[string]struct{}), again: make(chan struct{}, 1), news: make(chan struct{}, 1),
	}
}

// Tell is told the SearchDomains of the API server. It does not block.
func (d *Set) Tell(objects []api.SearchDomain) {
	d.mu.Lock()
	d.objects, d.told = objects, true
	d.mu.Unlock()
	work.Wake(d.again)
}

// remember takes what domains led to in an earlier run as listed.
func (d *Set) remember(seen []peer.Sighting) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range seen {
		if s.Source != peer.WAN {
			continue
		}
		if d.listed[s.Domain] == nil {
			d.listed[s.Domain] = make(map[peer.Key]struct{})
		}
		d.listed[s.Domain][s.Key()] = struct{}{}
		d.remembered[s.Domain] = append(d.remembered[s.Domain], dnssd.Instance{
			Name: s.Instance, URL: s.URL, Addrs: s.Addrs, ID: s.ClusterID, ClusterName: s.ClusterName, Namespace: s.Namespace,
			Fingerprint: s.Fingerprint, Version: s.Version, TTL: s.TTL,
		})
	}
}

// recall returns what is remembered of a domain, and forgets it.
func (d *Set) recall(domain string) []dnssd.Instance {
	d.mu.Lock()
	defer d.mu.Unlock()
	instances := d.remembered[domain]
	delete(d.remembered, domain)
	return instances
}

// note says that there is something new about a domain.
func (d *Set) note(name string) {
	d.mu.Lock()
	d.changed[name] = struct{}{}
	d.mu.Unlock()
	work.Wake(d.news)
}

// remark takes in why a cluster that domains list is not joined, "" for no reason, and
// has it shown if that is new.
func (d *Set) remark(id peer.ClusterID, why string, domains []string) {
	d.mu.Lock()
	news := d.remarks[id] != why
	if why == "" {
		delete(d.remarks, id)
	} else {
		d.remarks[id] = why
	}
	d.mu.Unlock()
	if news {
		for _, name := range domains {
			d.note(name)
		}
	}
}

// get returns one domain.
func (d *Set) get(name string) (Domain, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.byName[name]
	if one == nil {
		return Domain{}, false
	}
	return *one, true
}

// all returns every domain, sorted by name.
func (d *Set) all() []Domain {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]Domain, 0, len(d.byName))
	for _, name := range slices.Sorted(maps.Keys(d.byName)) {
		out = append(out, *d.byName[name])
	}
	return out
}

// Autojoins returns what domains with a word of their own say about joining.
func (d *Set) Autojoins() map[string]bool {
	out := make(map[string]bool)
	for _, one := range d.all() {
		if one.autojoin != nil {
			out[one.Domain] = *one.autojoin
		}
	}
	return out
}

// Names returns all domains; nil until the API server has said which SearchDomains
// there are.
func (d *Set) Names() []string {
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
func (d *Set) merge(loaded *config.Loaded, stored []state.SearchDomain) (looked []dnssd.Domain, dropped []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	byName, useless := make(map[string]*Domain), make(map[types.UID]string)
	add := func(one Domain) string {
		checked, err := config.CheckSearchDomain(one.SearchDomain)
		if err != nil {
			return err.Error()
		}
		one.SearchDomain = checked
		if first := byName[one.Domain]; first != nil {
			first.ignored = append(first.ignored, one.source)
			return first.source + " already sets the domain"
		}
		byName[one.Domain] = &one
		return ""
	}
	objects := slices.Clone(d.objects)
	slices.SortFunc(objects, func(a, b api.SearchDomain) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for _, o := range objects {
		if why := add(Domain{
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
		add(Domain{SearchDomain: one, autojoin: &one.Autojoin, source: loaded.Sources[fmt.Sprintf("search_domain[%d]", i)]})
	}
	for _, one := range stored {
		add(Domain{
			SearchDomain: config.SearchDomain{Domain: one.Domain, Server: one.Server, MinInterval: one.MinInterval, MaxInterval: one.MaxInterval},
			autojoin:     one.Autojoin, added: true, source: "command line (" + strings.TrimSuffix(one.By, " (command line)") + ")",
		})
	}
	for name := range d.byName {
		if byName[name] == nil {
			dropped = append(dropped, name)
		}
	}
	if d.told || loaded.Config.Cluster.Kubeconfig == conn.KubeconfigNone {
		// No other domain is looked in than these, whatever the last run did.
		for name := range d.listed {
			if byName[name] == nil && d.byName[name] == nil {
				dropped = append(dropped, name)
			}
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
func (d *Set) list(domain string, now map[peer.Key]struct{}) (gone []peer.Key, known bool) {
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
func (d *Set) drop(domain string) []peer.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, looked := d.byName[domain]; looked {
		return nil // it is back
	}
	gone := slices.Collect(maps.Keys(d.listed[domain]))
	delete(d.listed, domain)
	delete(d.remembered, domain)
	return gone
}

// objectsToShow returns the SearchDomains about which there is something new, those
// that have no effect among them.
func (d *Set) objectsToShow() []string {
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

// behind returns what a SearchDomain is about: a domain, or why it has no effect;
// neither while that is not known of the object that has the name now.
func (d *Set) behind(object string) (uid types.UID, domain, useless string) {
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
func (d *Set) show(uid types.UID, next func(shown api.SearchDomainStatus) api.SearchDomainStatus) api.SearchDomainStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	status := next(d.shown[uid])
	d.shown[uid] = status
	return status
}
