package agent

import (
	"context"
	"fmt"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/dnssd"
	"liqo.io/agent/dnssd/resolver"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// Domains implements control.Backend.
func (b *backend) Domains(context.Context) ([]control.Domain, error) {
	all := b.domains.all()
	out := make([]control.Domain, 0, len(all))
	for _, one := range all {
		out = append(out, b.domainView(one))
	}
	return out, nil
}

func (b *backend) domainView(one searchDomain) control.Domain {
	view := control.Domain{
		Name: one.Domain, Autojoin: one.autojoin, Server: one.Server,
		MinIntervalSeconds: int64(one.MinInterval / time.Second), MaxIntervalSeconds: int64(one.MaxInterval / time.Second),
		Source: one.source, Ignored: append([]string{}, one.ignored...), Browsed: []string{}, Entries: []control.DomainEntry{},
	}
	r, found := b.poller.Last(one.Domain)
	if !found {
		return view
	}
	view.LastQuery, view.NextQuery = r.At, r.Next
	view.Outcome, view.Message = string(r.Outcome), r.Message
	view.AnsweredBy, view.Authenticated = r.Server, r.Authenticated
	view.Browsed = append(view.Browsed, r.Domains...)
	for _, e := range b.asSession().entries(r) {
		view.Entries = append(view.Entries, control.DomainEntry{
			Name: e.name, URL: e.url, ClusterID: string(e.id), Cluster: e.cluster, Reason: e.reason, Message: e.message,
		})
	}
	return view
}

// AddDomain implements control.Backend.
func (b *backend) AddDomain(ctx context.Context, opts control.DomainOptions) error {
	checked, err := config.CheckSearchDomain(config.SearchDomain{
		Domain: opts.Name, Server: opts.Server, MinInterval: opts.MinInterval, MaxInterval: opts.MaxInterval,
	})
	if err != nil {
		return &control.Error{Kind: control.ErrInvalid, Message: "the search domain: " + err.Error(), Cause: err}
	}
	if known, found := b.domains.get(checked.Domain); found && !known.added {
		return elsewhere(known)
	}
	event := peer.Event{At: b.now(), ID: b.id, Kind: peer.EventDomainAdded, Detail: checked.Domain + by(opts.By)}
	err = b.store.SetSearchDomain(ctx, state.SearchDomain{
		Domain: checked.Domain, Autojoin: opts.Autojoin, Server: checked.Server,
		MinInterval: checked.MinInterval, MaxInterval: checked.MaxInterval, By: opts.By, At: b.now(),
	}, event)
	if err != nil {
		return fmt.Errorf("store the search domain: %w", err)
	}
	return b.mergedDomains(ctx)
}

// RemoveDomain implements control.Backend.
func (b *backend) RemoveDomain(ctx context.Context, name, who string) error {
	known, found := b.domains.get(name)
	if found && !known.added {
		return elsewhere(known)
	}
	event := peer.Event{At: b.now(), ID: b.id, Kind: peer.EventDomainRemoved, Detail: name + by(who)}
	removed, err := b.store.RemoveSearchDomain(ctx, name, event)
	if err != nil {
		return fmt.Errorf("remove the search domain: %w", err)
	}
	if !removed {
		return noDomain(name)
	}
	return b.mergedDomains(ctx)
}

// AskDomain implements control.Backend.
func (b *backend) AskDomain(_ context.Context, name string) error {
	if _, found := b.domains.get(name); !found || !b.poller.Ask(name) {
		return noDomain(name)
	}
	return nil
}

// mergedDomains puts what was stored into effect before the person who asked for it
// is answered.
func (b *backend) mergedDomains(ctx context.Context) error {
	if err := b.asSession().mergeDomains(ctx); err != nil {
		return err
	}
	wake(b.domains.news)
	return nil
}

func elsewhere(d searchDomain) error {
	advice := "change it there and reload the configuration"
	if d.object != "" {
		advice = "kubectl edit searchdomain " + d.object + ", or kubectl delete searchdomain " + d.object
	}
	return &control.Error{Kind: control.ErrRefused, Message: fmt.Sprintf("%s comes from %s, which has the last word", d.Domain, d.source), Advice: advice}
}

func noDomain(name string) error {
	return &control.Error{Kind: control.ErrNotFound, Message: fmt.Sprintf("%s is no search domain", name), Advice: "liqo-agent domains list"}
}

// by names who did something, for the history.
func by(who string) string {
	if who == "" {
		return ""
	}
	return ", by " + who
}

// domainsStatus sums up the search domains, for status.
func (b *backend) domainsStatus() []control.DomainSummary {
	out := make([]control.DomainSummary, 0)
	for _, one := range b.domains.all() {
		status := control.DomainSummary{Domain: one.Domain, Source: one.source}
		if r, found := b.poller.Last(one.Domain); found {
			status.Outcome = string(r.Outcome)
			if r.Outcome != resolver.Found || !r.Complete {
				status.Message = r.Message
			}
			status.Clusters = b.clusters(r)
		}
		out = append(out, status)
	}
	return out
}

// clusters counts the clusters that a domain lists and that answer.
func (b *backend) clusters(r dnssd.Report) int {
	n := 0
	for _, i := range r.Instances {
		if state, found := b.contacts.State(keyOf(r.Domain, i.Name)); found && state.Reason == "" {
			n++
		}
	}
	return n
}

// networksStatus says what counts on each link, if there are networks.
func (b *backend) networksStatus(cfg config.Config, links []control.Link) []control.LinkNetwork {
	out := make([]control.LinkNetwork, 0)
	for _, l := range links {
		use, known := b.networks.of(l.Name)
		if !known || len(cfg.Networks) == 0 {
			continue
		}
		d := cfg.Discovery
		out = append(out, control.LinkNetwork{
			Link: l.Name, Rule: use.Name, Why: use.Why,
			Advertise: use.Advertise && d.EnableAdvertisement, Discover: use.Discover && d.EnableDiscovery, Autojoin: use.Autojoin && d.Autojoin,
		})
	}
	return out
}
