package domains

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/dnssd"
	"liqo.io/agent/dnssd/resolver"
)

// conditions are those of a status, each as "Type=Status/Reason".
func conditions(s api.SearchDomainStatus) []string {
	var out []string
	for _, c := range s.Conditions {
		out = append(out, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	return out
}

func TestStatusOf(t *testing.T) {
	const all, some = "Complete=True/AllAnswer", "Complete=False/SomeLeftOut"
	self := string(registry.ThisCluster)
	for _, tc := range []struct {
		name     string
		outcome  resolver.Outcome
		entries  []entry
		clusters int64
		want     []string
	}{
		{"nothing is listed", resolver.NoData, nil, 0, []string{all, "Resolved=True/NoData"}},
		{"the domain does not exist", resolver.NoName, nil, 0, []string{all, "Resolved=True/NoName"}},
		{"no answer", resolver.Timeout, nil, 0, []string{all, "Resolved=False/Timeout"}},
		{"no answer, and what was known before", resolver.Unreachable, []entry{{name: "a", id: "a"}}, 1, []string{all, "Resolved=False/Unreachable"}},
		{"all answer", resolver.Found, []entry{{name: "a", id: "a"}, {name: "b", id: "b"}}, 2, []string{all, "Resolved=True/Found"}},
		{"and this cluster", resolver.Found, []entry{{name: "a", id: "a"}, {name: "b", id: "b", reason: self}}, 1, []string{all, "Resolved=True/Found"}},
		{"one is left out", resolver.Found, []entry{{name: "a", id: "a"}, {name: "b", reason: "NoSRV"}}, 1, []string{some, "Resolved=True/Found"}},
		{
			"one is not joined", resolver.Found, []entry{{name: "a", id: "a", message: "its key is not trusted"}, {name: "b", id: "b"}}, 2,
			[]string{all, "Resolved=True/Found", "Autojoined=False/SomeNotJoined"},
		},
		{"what is left out needs not be joined", resolver.Found, []entry{{name: "a", reason: "Unreachable", message: "x"}}, 0, []string{some, "Resolved=True/Found"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := dnssd.Report{Domain: "a.example", At: epoch.Add(1500 * time.Millisecond), Outcome: tc.outcome, Message: "m"}
			got := statusOf(r, tc.entries, api.SearchDomainStatus{}, metav1.NewTime(epoch))
			if diff := cmp.Diff(tc.want, conditions(got)); diff != "" {
				t.Error(diff)
			}
			if got.Clusters != tc.clusters || len(got.Found) != len(tc.entries) || got.LastQuery.Outcome != string(tc.outcome) || !got.LastQuery.Time.Equal(&metav1.Time{Time: epoch.Add(time.Second)}) {
				t.Errorf("%+v, %+v", got, got.LastQuery)
			}
		})
	}
}

// The status of a domain that lists thousands fits into an object, and counts all.
func TestStatusIsBounded(t *testing.T) {
	var entries []entry
	for i := range 1000 {
		entries = append(entries, entry{name: fmt.Sprintf("box-%04d", i), id: "x"})
	}
	got := statusOf(dnssd.Report{Outcome: resolver.Found}, entries, api.SearchDomainStatus{}, metav1.NewTime(epoch))
	if len(got.Found) != maxShownEntries || got.Clusters != 1000 {
		t.Errorf("shows %d of %d", len(got.Found), got.Clusters)
	}
}

// What is said in other words, or by another server, changes no status; what is the
// case does.
func TestStatusKeepsItsWords(t *testing.T) {
	look := func(outcome resolver.Outcome, server, message string, authenticated bool) dnssd.Report {
		return dnssd.Report{At: epoch, Outcome: outcome, Server: server, Message: message, Authenticated: authenticated}
	}
	first := look(resolver.Timeout, "192.0.2.1", "one", false)
	shown := statusOf(first, []entry{{name: "a", reason: "Unreachable", message: "one"}, {name: "b", id: "b", message: "one"}}, api.SearchDomainStatus{}, metav1.NewTime(epoch))
	for _, tc := range []struct {
		name                     string
		report                   dnssd.Report
		left                     entry
		server, message, leftOut string
	}{
		{"nothing new", first, entry{name: "a", reason: "Unreachable", message: "one"}, "192.0.2.1", "one", "one"},
		{"other words", look(resolver.Timeout, "192.0.2.2", "two", false), entry{name: "a", reason: "Unreachable", message: "two"}, "192.0.2.1", "one", "one"},
		{"another outcome", look(resolver.Refused, "192.0.2.2", "two", false), entry{name: "a", reason: "Unreachable", message: "two"}, "192.0.2.2", "two", "one"},
		{"authenticated", look(resolver.Timeout, "192.0.2.2", "two", true), entry{name: "a", reason: "Unreachable", message: "two"}, "192.0.2.2", "two", "one"},
		{"left out for another reason", first, entry{name: "a", reason: "NoSRV", message: "two"}, "192.0.2.1", "one", "two"},
		{"somebody else is there", first, entry{name: "a", id: "x", reason: "Unreachable", message: "two"}, "192.0.2.1", "one", "two"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := statusOf(tc.report, []entry{tc.left, {name: "b", id: "b", message: "two"}}, shown, metav1.NewTime(epoch.Add(time.Hour)))
			if got.LastQuery.Server != tc.server || got.Conditions[1].Type != api.ConditionResolved || got.Conditions[1].Message != tc.message || got.Found[0].Message != tc.leftOut {
				t.Errorf("%+v, %+v", got, got.LastQuery)
			}
			if got.Found[1].Message != "two" {
				t.Error("why a cluster is not joined is not told anew")
			}
		})
	}
}
