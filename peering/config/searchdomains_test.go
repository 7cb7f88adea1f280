package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peering/objects"
)

// server is an API server that says what a test wants.
type server struct {
	*kubetest.Server
	missing atomic.Int32 // how often it did not serve what was asked for
}

// parts returns both parts, of which nothing runs, for an API server that answers as said.
func parts(t *testing.T, cfg Config, answer kubetest.Answer) (*Domains, *Settings, *server) {
	t.Helper()
	fake := &server{Server: kubetest.New(answer)}
	logger := slog.New(slog.DiscardHandler)
	session, err := conn.New(conn.Config{Logger: logger, Now: time.Now}).Open(fake.Config())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kube.New(session.Observed())
	if err != nil {
		t.Fatal(err)
	}
	c := Connection{Session: session, Client: client, Logger: logger, Now: time.Now, CheckIfMissing: func(err error) {
		if apierrors.IsNotFound(err) {
			fake.missing.Add(1)
		}
	}}
	return NewDomains(cfg, c), NewSettings(cfg, c), fake
}

var t0 = time.Unix(1_800_000_000, 0)

// searchDomain returns a SearchDomain as the API server delivers it.
func searchDomain(name string, uid types.UID, version int, age time.Duration) *api.SearchDomain {
	d := &api.SearchDomain{Spec: api.SearchDomainSpec{Domain: name + ".example"}}
	d.Name, d.UID, d.Generation, d.ResourceVersion = name, uid, 1, strconv.Itoa(version)
	d.CreationTimestamp = metav1.NewTime(t0.Add(-age))
	return d
}

// applying answers a server-side apply of a status: the object as it was with the
// status that was sent, in a new version.
func applying(t *testing.T, st func() *objects.Store[*api.SearchDomain]) func(r *http.Request, body string) (int, string) {
	return func(r *http.Request, body string) (int, string) {
		name, ok := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, searchDomainKind().Path+"/"), "/status")
		found := st().Get(name)
		var sent struct {
			Metadata objects.Meta           `json:"metadata"`
			Status   api.SearchDomainStatus `json:"status"`
		}
		if err := json.Unmarshal([]byte(body), &sent); err != nil || !ok || r.Method != http.MethodPatch {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		// A real one does not look at the UID here.
		if found == nil || sent.Metadata.ResourceVersion != found.ResourceVersion {
			return kubetest.Failure(http.StatusConflict, metav1.StatusReasonConflict)
		}
		version, err := strconv.Atoi(found.ResourceVersion)
		if err != nil {
			t.Error(err)
		}
		out := found.DeepCopy()
		out.Status, out.ResourceVersion = sent.Status, strconv.Itoa(version+1)
		text, err := json.Marshal(out)
		if err != nil {
			t.Error(err)
		}
		return http.StatusOK, string(text)
	}
}

// looked is what a look at a domain may give, at a time.
func looked(outcome string, at time.Time) api.SearchDomainStatus {
	status := api.ConditionTrue
	if outcome != "Found" {
		status = api.ConditionFalse
	}
	return api.SearchDomainStatus{
		LastQuery: &api.SearchDomainQuery{Time: metav1.NewTime(at), Outcome: outcome, Server: "192.0.2.53:53"}, Clusters: 2,
		Found: []api.SearchDomainEntry{{Name: "b.example.com.", ClusterID: "b"}, {Name: "a.example.com.", Reason: "NoAddress", Message: "It has no address."}},
		Conditions: []api.Condition{
			{Type: api.ConditionResolved, Status: status, Reason: outcome, Message: "asked", LastTransitionTime: metav1.NewTime(at)},
			{Type: api.ConditionComplete, Status: api.ConditionFalse, Reason: "LeftOut", Message: "1 of 2", LastTransitionTime: metav1.NewTime(at)},
		},
	}
}

// TestSearchDomainsAreTold: which there are is told when it is known and when it
// changes, and not when only a status does.
func TestSearchDomainsAreTold(t *testing.T) {
	var told []string
	d, _, _ := parts(t, Config{SearchDomains: func(all []api.SearchDomain) {
		text := fmt.Sprint(all == nil)
		for i := range all {
			text += " " + all[i].Name + "/" + string(all[i].UID) + "=" + all[i].Spec.Domain
			all[i].Spec.Domain = "scribbled"
			*all[i].Spec.Autojoin = false
		}
		told = append(told, text)
	}}, nil)
	put := func(name string, uid types.UID, version int, age time.Duration, change func(*api.SearchDomain)) {
		o := searchDomain(name, uid, version, age)
		yes := true
		o.Spec.Autojoin = &yes
		if change != nil {
			change(o)
		}
		if err := kubetest.Tell(d.store).Update(o); err != nil {
			t.Fatal(err)
		}
	}
	heard := func(want ...string) {
		t.Helper()
		d.tell(false)
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		told = nil
	}
	d.tell(true)
	heard("true")
	put("young", "1", 1, time.Hour, nil)
	put("old", "2", 2, 2*time.Hour, nil)
	heard("false old/2=old.example young/1=young.example")
	heard()
	put("young", "1", 3, time.Hour, func(o *api.SearchDomain) { o.Status.Clusters = 7 })
	put("young", "1", 4, time.Hour, func(o *api.SearchDomain) { o.Labels = map[string]string{"a": "b"} })
	heard()
	put("young", "1", 5, time.Hour, func(o *api.SearchDomain) { o.Spec.Domain, o.Generation = "elsewhere", 2 })
	heard("false old/2=old.example young/1=elsewhere")
	put("old", "3", 6, time.Minute, nil) // another one
	heard("false young/1=elsewhere old/3=old.example")
	// As after a restored backup.
	put("old", "3", 7, time.Minute, func(o *api.SearchDomain) { o.Spec.Domain = "other" })
	heard("false young/1=elsewhere old/3=other")
	put("young", "1", 8, time.Hour, func(o *api.SearchDomain) { o.DeletionTimestamp = &metav1.Time{Time: t0} })
	heard("false old/3=other")
	if err := kubetest.Tell(d.store).Delete(searchDomain("young", "1", 9, time.Hour)); err != nil {
		t.Fatal(err)
	}
	heard()
	if err := kubetest.Tell(d.store).Delete(searchDomain("old", "3", 10, time.Hour)); err != nil {
		t.Fatal(err)
	}
	heard("true")
	d.tell(true)
	heard("true")
}

// TestSearchDomainStatus follows the status of one object: what is sent, and that
// nothing is sent when nothing changed.
func TestSearchDomainStatus(t *testing.T) {
	var d *Domains
	wanted, known := api.SearchDomainStatus{}, false
	d, _, fake := parts(t, Config{
		SearchDomains:      func([]api.SearchDomain) {},
		SearchDomainStatus: func(string) (api.SearchDomainStatus, bool) { return wanted, known },
	}, applying(t, func() *objects.Store[*api.SearchDomain] { return d.store }))
	d.on.Now = func() time.Time { return t0.Add(24 * time.Hour) }
	version := 1
	deliver := func(change func(*api.SearchDomain)) {
		t.Helper()
		version++
		o := searchDomain("d", "u1", version, time.Hour)
		if found := d.store.Get("d"); found != nil {
			o = found.DeepCopy()
			number, err := strconv.Atoi(found.ResourceVersion)
			if err != nil {
				t.Fatal(err)
			}
			o.ResourceVersion = strconv.Itoa(number + version)
		}
		if change != nil {
			change(o)
		}
		if err := kubetest.Tell(d.store).Update(o); err != nil {
			t.Fatal(err)
		}
	}
	sent := func(want int) string {
		t.Helper()
		d.tell(false)
		if err := d.show(t.Context(), "d"); err != nil {
			t.Fatal(err)
		}
		out := fake.Take()
		if len(out) != want {
			t.Fatalf("sent %q, want %d", out, want)
		}
		return strings.Join(out, "\n")
	}
	at := func(hours int) time.Time { return t0.Add(time.Duration(hours) * time.Hour) }
	stamp := func(hours int) string {
		text, err := json.Marshal(metav1.NewTime(at(hours)))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	deliver(nil)
	sent(0) // nothing is known
	wanted, known = looked("Found", at(1)), true
	first := sent(1)
	for _, want := range []string{
		"PATCH /apis/discovery.liqo.io/v1alpha1/searchdomains/d/status?fieldManager=liqo-agent-searchdomain&force=true ",
		`"metadata":{"name":"d","uid":"u1","resourceVersion":"2"},"status":{"lastQuery":{"time":` + stamp(1) + `,"outcome":"Found"`,
		`"found":[{"name":"a.example.com.","reason":"NoAddress","message":"It has no address."},{"name":"b.example.com.","clusterID":"b"}]`,
		`"conditions":[{"type":"Complete"`,
	} {
		if !strings.Contains(first, want) {
			t.Errorf("sent %s\nwant %s", first, want)
		}
	}
	for i := range 100 {
		wanted = looked("Found", at(2+i))
		if i%2 == 0 {
			slices.Reverse(wanted.Found)
			slices.Reverse(wanted.Conditions)
		}
		sent(0)
	}
	wanted = looked("Timeout", at(3))
	if got := sent(1); strings.Count(got, stamp(3)) != 2 || strings.Count(got, stamp(1)) != 1 {
		t.Errorf("sent %s", got)
	}
	// Another failure is another outcome and the same status of the condition.
	wanted = looked("ServerFailure", at(4))
	if got := sent(1); strings.Count(got, stamp(4)) != 1 || strings.Count(got, stamp(3)) != 1 || strings.Count(got, stamp(1)) != 1 {
		t.Errorf("sent %s", got)
	}
	wanted.Conditions[1].Message = "2 of 3"
	if got := sent(1); strings.Count(got, stamp(4)) != 1 || !strings.Contains(got, "2 of 3") {
		t.Errorf("sent %s", got)
	}
	for name, change := range map[string]func(*api.SearchDomainQuery){
		"server":        func(q *api.SearchDomainQuery) { q.Server = "192.0.2.54:53" },
		"authenticated": func(q *api.SearchDomainQuery) { q.Authenticated = true },
	} {
		wanted.LastQuery.Time = metav1.NewTime(at(5))
		change(wanted.LastQuery)
		if got := sent(1); strings.Count(got, stamp(5)) != 1 {
			t.Errorf("another %s: sent %s", name, got)
		}
		wanted.LastQuery.Time = metav1.NewTime(at(6))
		sent(0)
		deliver(func(o *api.SearchDomain) { o.Status.LastQuery.Time = metav1.NewTime(at(7)) }) // so that the next one begins anew
		sent(0)
	}
	wanted.Found = nil
	sent(1)
	wanted.Found = []api.SearchDomainEntry{}
	sent(0)

	// Times that the caller left out.
	wanted = looked("Found", at(8))
	wanted.LastQuery.Time, wanted.Conditions[0].LastTransitionTime = metav1.Time{}, metav1.Time{}
	if got := sent(1); strings.Count(got, stamp(24)) != 2 || strings.Contains(got, "null") {
		t.Errorf("sent %s", got)
	}
	sent(0)

	// What others do to the status is put right once, and not again and again if it
	// stays.
	deliver(func(o *api.SearchDomain) { o.Status.Clusters = 99 })
	sent(1)
	deliver(func(o *api.SearchDomain) {
		o.Status.Conditions = append(o.Status.Conditions, api.Condition{Type: "Theirs", Status: api.ConditionTrue, Reason: "x"})
	})
	kept := d.store.Get("d").Status.Conditions
	fake.Say(func(r *http.Request, body string) (int, string) {
		status, text := applying(t, func() *objects.Store[*api.SearchDomain] { return d.store })(r, body)
		var o api.SearchDomain
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Error(err)
		}
		o.Status.Conditions = kept
		out, err := json.Marshal(o)
		if err != nil {
			t.Error(err)
		}
		return status, string(out)
	})
	sent(1)
	sent(0)

	known = false
	deliver(func(o *api.SearchDomain) { o.Status = api.SearchDomainStatus{} })
	sent(0)
	known = true
	deliver(func(o *api.SearchDomain) { o.DeletionTimestamp = &metav1.Time{Time: t0} })
	sent(0)
	if err := kubetest.Tell(d.store).Delete(searchDomain("d", "u1", 99999, 0)); err != nil {
		t.Fatal(err)
	}
	sent(0)
	if len(d.wrote) != 0 {
		t.Errorf("%v is kept", d.wrote)
	}
}

// TestReplacedSearchDomain: nothing that is about one object gets into another
// one that has the same name.
func TestReplacedSearchDomain(t *testing.T) {
	var d *Domains
	told := ""
	asked := 0
	d, _, fake := parts(t, Config{
		SearchDomains: func(all []api.SearchDomain) {
			if told = ""; len(all) > 0 {
				told = string(all[0].UID)
			}
		},
		SearchDomainStatus: func(string) (api.SearchDomainStatus, bool) {
			asked++
			return looked("Found", t0), true
		},
	}, nil)
	fake.Say(applying(t, func() *objects.Store[*api.SearchDomain] { return d.store }))
	if err := kubetest.Tell(d.store).Update(searchDomain("d", "u1", 1, 0)); err != nil {
		t.Fatal(err)
	}
	d.tell(false)
	// It is replaced after the others were told.
	if err := kubetest.Tell(d.store).Update(searchDomain("d", "u2", 5, 0)); err != nil {
		t.Fatal(err)
	}
	if err := d.show(t.Context(), "d"); err != nil || asked != 0 || len(fake.Take()) != 0 {
		t.Errorf("asked %d times about an object that nobody was told of (%v)", asked, err)
	}
	d.tell(false)
	if err := d.show(t.Context(), "d"); err != nil || asked != 1 || told != "u2" || d.store.Get("d").Status.LastQuery == nil {
		t.Errorf("asked %d times, told %s, %v: %+v", asked, told, err, d.store.Get("d"))
	}
	fake.Take()
	// It is replaced at the API server before the watch told.
	fake.Say(func(*http.Request, string) (int, string) {
		return kubetest.Failure(http.StatusConflict, metav1.StatusReasonConflict)
	})
	if err := kubetest.Tell(d.store).Update(searchDomain("d", "u3", 2000, 0)); err != nil {
		t.Fatal(err)
	}
	d.tell(false)
	if err := d.show(t.Context(), "d"); err == nil || d.store.Get("d").Status.LastQuery != nil {
		t.Errorf("error %v: %+v", err, d.store.Get("d"))
	}
	// The next try is about the new one, with times of its own.
	fake.Say(applying(t, func() *objects.Store[*api.SearchDomain] { return d.store }))
	if err := d.show(t.Context(), "d"); err != nil || !d.store.Get("d").Status.LastQuery.Time.Time.Equal(t0) {
		t.Errorf("error %v: %+v", err, d.store.Get("d"))
	}
}

// TestSearchDomainRetries maps each failure to when the object is looked at again.
func TestSearchDomainRetries(t *testing.T) {
	for _, tc := range []struct {
		name        string
		status      int
		reason      metav1.StatusReason
		soon, later time.Duration // it comes back after soon at the latest, and not before later
		check       bool          // the custom resources are looked at
	}{
		{"conflict", http.StatusConflict, metav1.StatusReasonConflict, objects.RetryFirst, objects.RetryFirst / 2, false},
		{"failure", http.StatusInternalServerError, metav1.StatusReasonInternalError, objects.RetryFirst, objects.RetryFirst / 2, false},
		{"missing", http.StatusNotFound, metav1.StatusReasonNotFound, objects.RetryFirst, objects.RetryFirst / 2, true},
		{"invalid", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, objects.RefusedRetry, objects.RefusedRetry / 2, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				d, _, fake := parts(t, Config{SearchDomainStatus: func(string) (api.SearchDomainStatus, bool) { return looked("Found", t0), true }},
					func(*http.Request, string) (int, string) { return kubetest.Failure(tc.status, tc.reason) })
				if err := kubetest.Tell(d.store).Update(searchDomain("d", "u1", 1, 0)); err != nil {
					t.Fatal(err)
				}
				if waited := kubetest.Again(t, d.names, "d", d.process); waited < tc.later || waited > tc.soon {
					t.Errorf("it is looked at after %v", waited)
				}
				if (fake.missing.Load() > 0) != tc.check {
					t.Errorf("the custom resources are looked at: %v", !tc.check)
				}
			})
		})
	}
}

// TestDomainsAtWork runs the goroutine: from the first list on, everything that
// happens ends in the status that is known last.
func TestDomainsAtWork(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var d *Domains
		told := 0
		outcome := "Found"
		d, _, fake := parts(t, Config{
			SearchDomains:      func([]api.SearchDomain) { told++ },
			SearchDomainStatus: func(string) (api.SearchDomainStatus, bool) { return looked(outcome, time.Now()), true },
		}, nil)
		answer := applying(t, func() *objects.Store[*api.SearchDomain] { return d.store })
		fails := 3
		fake.Say(func(r *http.Request, body string) (int, string) {
			if fails--; fails >= 0 {
				return kubetest.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
			}
			return answer(r, body)
		})
		done := make(chan struct{})
		go func() { defer close(done); d.work(t.Context()) }()
		synctest.Wait()
		if told != 0 {
			t.Error("told before the first list")
		}
		if err := kubetest.Tell(d.store).Replace("1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if told != 1 {
			t.Errorf("told %d times that there are none", told)
		}
		for i := range 20 {
			if err := kubetest.Tell(d.store).Update(searchDomain(fmt.Sprint("d", i), types.UID(fmt.Sprint(i)), i+2, 0)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if sent := fake.Take(); len(sent) != 23 || told < 2 {
			t.Errorf("%d writes, want 20 and three that failed; told %d times", len(sent), told)
		}
		for range 100 {
			for i := range 20 {
				d.names.Add(fmt.Sprint("d", i))
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if sent := fake.Take(); len(sent) != 0 {
			t.Errorf("%d writes although nothing changed", len(sent))
		}
		outcome = "Timeout"
		d.names.Add("d7")
		d.names.Add("gone")
		time.Sleep(time.Second)
		synctest.Wait()
		if sent := fake.Take(); len(sent) != 1 || d.store.Get("d7").Status.LastQuery.Outcome != "Timeout" {
			t.Errorf("sent %q", sent)
		}
	})
}

// TestPresentable: whatever is found in a domain, the API server takes the status,
// and what is written is shown.
func TestPresentable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Custom(func(t *rapid.T) string {
			if rapid.Bool().Draw(t, "text") {
				return rapid.StringN(-1, 3000, -1).Draw(t, "long")
			}
			return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		})
		var wanted api.SearchDomainStatus
		for range rapid.IntRange(0, 120).Draw(t, "entries") {
			wanted.Found = append(wanted.Found, api.SearchDomainEntry{Name: text.Draw(t, "name"), Message: text.Draw(t, "message")})
		}
		if rapid.Bool().Draw(t, "query") {
			wanted.LastQuery = &api.SearchDomainQuery{Outcome: "Found"}
		}
		for _, kind := range []string{api.ConditionResolved, api.ConditionComplete, api.ConditionIgnored} {
			if rapid.Bool().Draw(t, kind) {
				wanted.Conditions = append(wanted.Conditions, api.Condition{Type: kind, Status: api.ConditionTrue})
			}
		}
		before := wanted.DeepCopy()
		got := presentable(wanted, api.SearchDomainStatus{}, t0)
		if diff := cmp.Diff(before, wanted); diff != "" {
			t.Fatalf("what the caller keeps is changed:\n%s", diff)
		}
		if len(got.Found) != min(len(wanted.Found), 100) {
			t.Fatalf("%d of %d entries", len(got.Found), len(wanted.Found))
		}
		for _, e := range got.Found {
			for _, text := range []string{e.Name, e.Message} {
				if n := len([]rune(text)); n > 1024 {
					t.Fatalf("a text of %d characters", n)
				}
			}
		}
		var shown api.SearchDomainStatus
		if sent, err := json.Marshal(got); err != nil || json.Unmarshal(sent, &shown) != nil || !cmp.Equal(got.Found, shown.Found) {
			t.Fatalf("what is shown is not what was sent: %v\n%s", err, cmp.Diff(got.Found, shown.Found))
		}
		if diff := cmp.Diff(got, presentable(got, got, t0.Add(time.Hour))); diff != "" {
			t.Fatalf("it is not stable:\n%s", diff)
		}
		if diff := cmp.Diff(got, presentable(wanted, got, t0.Add(time.Hour))); diff != "" {
			t.Fatalf("what is shown already is changed:\n%s", diff)
		}
	})
}
