package domains

import (
	"context"
	"fmt"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/dnssd"
	"liqo.io/agent/dnssd/resolver"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// Domains implements socket.Domains.
func (k *Keeper) Domains(context.Context) ([]control.Domain, error) {
	all := k.set.all()
	out := make([]control.Domain, 0, len(all))
	for _, one := range all {
		out = append(out, k.view(one))
	}
	return out, nil
}

func (k *Keeper) view(one Domain) control.Domain {
	view := control.Domain{
		Name: one.Domain, Autojoin: one.autojoin, Server: one.Server,
		MinIntervalSeconds: int64(one.MinInterval / time.Second), MaxIntervalSeconds: int64(one.MaxInterval / time.Second),
		Source: one.source, Ignored: append([]string{}, one.ignored...), Browsed: []string{}, Entries: []control.DomainEntry{},
	}
	r, found := k.cfg.Poller.Last(one.Domain)
	if !found {
		return view
	}
	view.LastQuery, view.NextQuery = r.At, r.Next
	view.Outcome, view.Message = string(r.Outcome), r.Message
	view.AnsweredBy, view.Authenticated = r.Server, r.Authenticated
	view.Browsed = append(view.Browsed, r.Domains...)
	for _, e := range k.entries(r) {
		view.Entries = append(view.Entries, control.DomainEntry{
			Name: e.name, URL: e.url, ClusterID: string(e.id), Cluster: e.cluster, Reason: e.reason, Message: e.message,
		})
	}
	return view
}

// AddDomain implements socket.Domains.
func (k *Keeper) AddDomain(ctx context.Context, opts control.DomainOptions) error {
	checked, err := config.CheckSearchDomain(config.SearchDomain{
		Domain: opts.Name, Server: opts.Server, MinInterval: opts.MinInterval, MaxInterval: opts.MaxInterval,
	})
	if err != nil {
		return &control.Error{Kind: control.ErrInvalid, Message: "search domain: " + err.Error(), Cause: err}
	}
	if known, found := k.set.get(checked.Domain); found && !known.added {
		return elsewhere(known)
	}
	event := peer.Event{At: k.cfg.Now(), ID: k.cfg.Self().ClusterID, Kind: peer.EventDomainAdded, Detail: checked.Domain + by(opts.By)}
	err = k.cfg.Store.SetSearchDomain(ctx, state.SearchDomain{
		Domain: checked.Domain, Autojoin: opts.Autojoin, Server: checked.Server,
		MinInterval: checked.MinInterval, MaxInterval: checked.MaxInterval, By: opts.By, At: k.cfg.Now(),
	}, event)
	if err != nil {
		return fmt.Errorf("store the search domain: %w", err)
	}
	return k.stored(ctx)
}

// RemoveDomain implements socket.Domains.
func (k *Keeper) RemoveDomain(ctx context.Context, name, who string) error {
	known, found := k.set.get(name)
	if found && !known.added {
		return elsewhere(known)
	}
	event := peer.Event{At: k.cfg.Now(), ID: k.cfg.Self().ClusterID, Kind: peer.EventDomainRemoved, Detail: name + by(who)}
	removed, err := k.cfg.Store.RemoveSearchDomain(ctx, name, event)
	if err != nil {
		return fmt.Errorf("remove the search domain: %w", err)
	}
	if !removed {
		return noDomain(name)
	}
	return k.stored(ctx)
}

// AskDomain implements socket.Domains.
func (k *Keeper) AskDomain(_ context.Context, name string) error {
	if _, found := k.set.get(name); !found || !k.cfg.Poller.Ask(name) {
		return noDomain(name)
	}
	return nil
}

// stored puts what was stored into effect before the person who asked for it
// is answered.
func (k *Keeper) stored(ctx context.Context) error {
	if err := k.merge(ctx); err != nil {
		return err
	}
	work.Wake(k.set.news)
	return nil
}

func elsewhere(d Domain) error {
	advice := "edit it there, then: liqo-agent config reload"
	if d.object != "" {
		advice = "kubectl edit searchdomain " + d.object + ", or kubectl delete searchdomain " + d.object
	}
	return &control.Error{Kind: control.ErrRefused, Message: fmt.Sprintf("%s is set by %s, which takes precedence", d.Domain, d.source), Advice: advice}
}

func noDomain(name string) error {
	return &control.Error{Kind: control.ErrNotFound, Message: fmt.Sprintf("%s is not a search domain", name), Advice: "liqo-agent domains list"}
}

// by names who did something, for the history.
func by(who string) string {
	if who == "" {
		return ""
	}
	return ", by " + who
}

// Summary sums up the search domains, for status.
func (k *Keeper) Summary() []control.DomainSummary {
	out := make([]control.DomainSummary, 0)
	for _, one := range k.set.all() {
		status := control.DomainSummary{Domain: one.Domain, Source: one.source}
		if r, found := k.cfg.Poller.Last(one.Domain); found {
			status.Outcome = string(r.Outcome)
			if r.Outcome != resolver.Found || !r.Complete {
				status.Message = r.Message
			}
			status.Clusters = k.clusters(r)
		}
		out = append(out, status)
	}
	return out
}

// clusters counts the clusters that a domain lists and that answer.
func (k *Keeper) clusters(r dnssd.Report) int {
	n := 0
	for _, i := range r.Instances {
		if state, found := k.cfg.Registry.Candidate(keyOf(r.Domain, i.Name)); found && state.Reason == "" {
			n++
		}
	}
	return n
}
