package domains

import (
	"context"
	"fmt"
	"sync"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/dnssd"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/state"
)

// Store keeps the domains that were added with liqo-agent domains.
type Store interface {
	SearchDomains(ctx context.Context) ([]state.SearchDomain, error)
	SetSearchDomain(ctx context.Context, d state.SearchDomain, events ...peer.Event) error
	RemoveSearchDomain(ctx context.Context, domain string, events ...peer.Event) (bool, error)
}

// Poller looks in the domains.
type Poller interface {
	SetDomains(domains []dnssd.Domain)
	Last(domain string) (dnssd.Report, bool)
	Ask(domain string) bool
}

// Registry asks who is at the places that domains list.
type Registry interface {
	SetCandidate(c registry.Candidate)
	DropCandidate(k peer.Key, why registry.Absence)
	Candidate(k peer.Key) (registry.CandidateStatus, bool)
	Peer(id peer.ClusterID) (peer.Peer, bool)
}

// Decisions says why a cluster is not joined.
type Decisions interface {
	Policy(id peer.ClusterID) plan.Policy
}

// Peering shows SearchDomains what was found.
type Peering interface {
	View(id peer.ClusterID) plan.View
	SearchDomainChanged(name string)
}

// Config is what a Keeper needs. All of it is required.
type Config struct {
	// Self is this cluster.
	Self func() peer.Identity
	// Loaded is the configuration in use.
	Loaded func() *config.Loaded

	Store     Store
	Poller    Poller
	Registry  Registry
	Decisions Decisions
	Peering   Peering

	// Merged has the decision store decide by the set as it is now.
	Merged func(ctx context.Context)
	Now    func() time.Time

	// Seen is what saw peers when the last run ended. What domains led to is taken as
	// listed until they are looked in again, or nobody looks in them any more.
	Seen []peer.Sighting
}

// Keeper keeps the set of search domains as it is said to be, and has what was found
// shown. It answers the control socket about them.
type Keeper struct {
	cfg Config
	set *Set

	// ordering is held while the set is made anew, and while what a domain lists is
	// taken in: else the older of two sets might come last, and leads of a domain that
	// was dropped meanwhile would stay. It comes before the lock of the set.
	ordering sync.Mutex
}

// New returns a Keeper of a set. Run does the work.
func New(set *Set, cfg Config) *Keeper {
	set.remember(cfg.Seen)
	cfg.Seen = nil
	return &Keeper{cfg: cfg, set: set}
}

// Recall returns what a domain listed when the last run ended, to whoever is about to
// look in it for the first time. It returns it once.
func (k *Keeper) Recall(domain string) []dnssd.Instance { return k.set.recall(domain) }

// Again has the set made anew: what is configured changed. It does not block.
func (k *Keeper) Again() { work.Wake(k.set.again) }

// statusPause is how long news about a domain wait for more of them, and statusPatience
// how long they do while more come: a domain that lists a thousand clusters is one
// change, not a thousand.
const statusPause, statusPatience = 300 * time.Millisecond, 5 * time.Second

// Run makes the set anew whenever what it is made of changes, and has what was found
// shown.
func (k *Keeper) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	work.Wake(k.set.again)
	var since time.Time // of the first news that are not shown, zero for none
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.set.again:
			if err := k.merge(ctx); err != nil {
				return err
			}
			timer.Reset(0)
		case <-k.set.news:
			if since.IsZero() {
				since = time.Now()
			}
			timer.Reset(min(statusPause, statusPatience-time.Since(since)))
		case <-timer.C:
			since = time.Time{}
			for _, object := range k.set.objectsToShow() {
				k.cfg.Peering.SearchDomainChanged(object)
			}
		}
	}
}

// merge makes the set anew, and puts it into effect.
func (k *Keeper) merge(ctx context.Context) error {
	k.ordering.Lock()
	defer k.ordering.Unlock()
	stored, err := k.cfg.Store.SearchDomains(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("read the stored search domains: %w", err)
	}
	looked, dropped := k.set.merge(k.cfg.Loaded(), stored)
	k.cfg.Merged(ctx) // before anything is found there: by which domain a host counts is kept
	k.cfg.Poller.SetDomains(looked)
	for _, domain := range dropped {
		for _, key := range k.set.drop(domain) {
			k.cfg.Registry.DropCandidate(key, registry.Absence{Reason: "the search domain " + domain + " was removed", Evidence: registry.Withdrawn})
		}
	}
	return nil
}

// Looked takes in what a look at a domain gave.
func (k *Keeper) Looked(r dnssd.Report) {
	k.ordering.Lock()
	defer k.ordering.Unlock()
	now := make(map[peer.Key]struct{}, len(r.Instances))
	for _, i := range r.Instances {
		now[keyOf(r.Domain, i.Name)] = struct{}{}
	}
	skipped := make(map[peer.Key]dnssd.Skip)
	for _, skip := range r.Skipped {
		skipped[keyOf(r.Domain, skip.Name)] = skip
	}
	gone, known := k.set.list(r.Domain, now)
	if !known {
		return
	}
	for _, key := range gone {
		why := registry.Absence{Reason: "it is no longer in the DNS domain " + r.Domain, Evidence: registry.Withdrawn}
		if skip, there := skipped[key]; there {
			why = registry.Absence{Reason: "its records in the DNS domain " + r.Domain + " are incomplete: " + skip.Message, Evidence: registry.Expired}
		}
		k.cfg.Registry.DropCandidate(key, why)
	}
	for _, i := range r.Instances {
		k.cfg.Registry.SetCandidate(registry.Candidate{
			Source: peer.WAN, Domain: r.Domain, Instance: i.Name, URL: i.URL, Addrs: i.Addrs, ClusterID: i.ID, Fingerprint: i.Fingerprint,
			ClusterName: i.ClusterName, Namespace: i.Namespace, Version: i.Version, TTL: i.TTL,
		})
	}
	k.set.note(r.Domain)
}

// Probed is told of a candidate about which something else is known. It does not block.
func (k *Keeper) Probed(c peer.Key) {
	if c.Domain != "" {
		k.set.note(c.Domain)
	}
}

// Remark has shown in the domains that list a cluster why it is not joined. What was said of one that none
// lists any more is forgotten: whoever writes into a domain can list others without end.
func (k *Keeper) Remark(id peer.ClusterID) {
	p, _ := k.cfg.Registry.Peer(id)
	why := ""
	if len(p.Domains) > 0 {
		why = k.whyNotJoined(id)
	}
	k.set.remark(id, why, p.Domains)
}

// keyOf is the key of what a search domain lists under a name.
func keyOf(domain, name string) peer.Key {
	return peer.Key{Source: peer.WAN, Domain: domain, Instance: name}
}
