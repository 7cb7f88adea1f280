package domains

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/dnssd"
	"liqo.io/agent/peer"
)

// Reports are the last looks at the search domains, by name.
func (k *Keeper) Reports() []dnssd.Report {
	var out []dnssd.Report
	for _, one := range k.set.all() {
		if r, found := k.cfg.Poller.Last(one.Domain); found {
			out = append(out, r)
		}
	}
	return out
}

// Outcomes counts the search domains by the outcome of the last look, "" for those that
// were not looked in yet.
func (k *Keeper) Outcomes() map[string]int {
	out := make(map[string]int)
	for _, one := range k.set.all() {
		outcome := ""
		if r, found := k.cfg.Poller.Last(one.Domain); found {
			outcome = string(r.Outcome)
		}
		out[outcome]++
	}
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
func (k *Keeper) entries(r dnssd.Report) []entry {
	out := make([]entry, 0, len(r.Instances)+len(r.Skipped))
	for _, i := range r.Instances {
		e := entry{name: i.Name, url: i.URL, reason: string(registry.NotProbed), message: "not checked yet"}
		if state, found := k.cfg.Registry.Candidate(keyOf(r.Domain, i.Name)); found {
			e.id, e.cluster, e.reason, e.message = state.ID, state.ClusterName, string(state.Reason), state.Message
			if state.Reason == registry.ThisCluster {
				self := k.cfg.Self()
				e.id, e.cluster, e.message = self.ClusterID, self.ClusterName, "this cluster itself"
			} else if state.Reason == "" {
				e.message = k.whyNotJoined(state.ID)
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
func (k *Keeper) whyNotJoined(id peer.ClusterID) string {
	if why := k.cfg.Decisions.Policy(id).NotAutojoined.Message; why != "" {
		return why
	}
	if view := k.cfg.Peering.View(id).Outgoing; view.Wanted && !view.Joined {
		return view.Message
	}
	return ""
}

// maxShownEntries is how many entries the status of a SearchDomain lists.
const maxShownEntries = 100

// Status is what the status of a SearchDomain is to say; false while
// nothing is known.
func (k *Keeper) Status(object string) (api.SearchDomainStatus, bool) {
	uid, domain, why := k.set.behind(object)
	now := metav1.NewTime(k.cfg.Now().Truncate(time.Second))
	switch {
	case why != "":
		return api.SearchDomainStatus{Conditions: []api.Condition{
			{Type: api.ConditionIgnored, Status: api.ConditionTrue, Reason: "NoEffect", Message: "It has no effect: " + why + ".", LastTransitionTime: now},
		}}, true
	case domain == "":
		return api.SearchDomainStatus{}, false
	}
	r, found := k.cfg.Poller.Last(domain)
	if !found {
		return api.SearchDomainStatus{}, false
	}
	entries := k.entries(r)
	return k.set.show(uid, func(shown api.SearchDomainStatus) api.SearchDomainStatus {
		return statusOf(r, entries, shown, now)
	}), true
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
		case e.reason == string(registry.ThisCluster):
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
		Message: "Every listed cluster answers.", LastTransitionTime: now}
	if len(out) > 0 {
		const named = 3
		complete.Status, complete.Reason = api.ConditionFalse, "SomeLeftOut"
		complete.Message = fmt.Sprintf("%d of %d entries are left out, such as %s.", len(out), len(entries), strings.Join(out[:min(len(out), named)], ", "))
	}
	status.Conditions = []api.Condition{complete, resolved}
	if n := len(unjoined); n > 0 {
		status.Conditions = append(status.Conditions, api.Condition{Type: api.ConditionAutojoined, Status: api.ConditionFalse, Reason: "SomeNotJoined",
			Message: fmt.Sprintf("%d of %d clusters are not joined, such as %s", n, status.Clusters, unjoined[0]), LastTransitionTime: now})
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
