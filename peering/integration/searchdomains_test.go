package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/config"
)

// exampleDomain is what users are told to type, but for the dash without which no
// kubectl reads its standard input.
const exampleDomain = `cat << "EOF" | kubectl apply -f -
apiVersion: discovery.liqo.io/v1alpha1
kind: SearchDomain
metadata:
  name: example.com
spec:
  domain: example.com
  autojoin: true
EOF`

// lookout is somebody who looks at search domains: it knows those it was told of,
// and what it found there. What it knows it keeps by UID.
type lookout struct {
	mu      sync.Mutex
	known   bool
	domains map[string]api.SearchDomain // by name
	found   map[string]string           // outcome by UID
	asked   map[string]int              // by name
}

func newLookout() *lookout {
	return &lookout{domains: map[string]api.SearchDomain{}, found: map[string]string{}, asked: map[string]int{}}
}

func (l *lookout) tell(all []api.SearchDomain) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = true
	clear(l.domains)
	for _, d := range all {
		l.domains[d.Name] = d
	}
}

// status says what was found: the server that answered is the UID of the object,
// so that mixing two up shows.
func (l *lookout) status(name string) (api.SearchDomainStatus, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[name]++
	d, there := l.domains[name]
	outcome, known := l.found[string(d.UID)]
	if !there || !known {
		return api.SearchDomainStatus{}, false
	}
	now := metav1.Now()
	resolved := api.ConditionFalse
	if outcome == "Found" {
		resolved = api.ConditionTrue
	}
	return api.SearchDomainStatus{
		LastQuery: &api.SearchDomainQuery{Time: now, Outcome: outcome, Server: string(d.UID), Authenticated: true}, Clusters: 1,
		Found: []api.SearchDomainEntry{
			{Name: "liqo-cluster." + d.Spec.Domain + ".", ClusterID: string(barnID)},
			{Name: "broken." + d.Spec.Domain + ".", Reason: "NoAddress", Message: "It has no address."},
		},
		Conditions: []api.Condition{{Type: api.ConditionResolved, Status: resolved, Reason: outcome, Message: "Asked.", LastTransitionTime: now}},
	}, true
}

// names returns the names and domains that were told.
func (l *lookout) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for name, d := range l.domains {
		out = append(out, fmt.Sprint(name, "=", d.Spec.Domain))
	}
	slices.Sort(out)
	return out
}

// uid returns the UID that was told for a name, "" for none.
func (l *lookout) uid(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.domains[name].UID)
}

// finds notes what a look at a domain gave.
func (l *lookout) finds(uid, outcome string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.found[uid] = outcome
}

// look has a Controller look at the status of a domain again, and waits until it asked what it is to say.
func (l *lookout) look(t *testing.T, r *running, name string) {
	t.Helper()
	asked := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.asked[name]
	}
	before := asked()
	r.SearchDomainChanged(name)
	within(t, name+" is asked about", func() error {
		if asked() == before {
			return errors.New("not yet")
		}
		return nil
	})
}

// into makes a Controller ask and tell l.
func (l *lookout) into(c *peering.Config) {
	c.People.SearchDomains, c.People.SearchDomainStatus = l.tell, l.status
}

func getDomain(t *testing.T, k *bed.Kube, name string) (*api.SearchDomain, error) {
	t.Helper()
	text, err := k.Request(t.Context(), "GET", sdPath+"/"+name, "", nil)
	if err != nil {
		return nil, err
	}
	d := &api.SearchDomain{}
	return d, json.Unmarshal(text, d)
}

// awaitDomain waits until the status of a SearchDomain shows that outcome, and
// that it is of that object.
func awaitDomain(t *testing.T, k *bed.Kube, name, outcome string) *api.SearchDomain {
	t.Helper()
	var d *api.SearchDomain
	within(t, "SearchDomain "+name, func() (err error) {
		if d, err = getDomain(t, k, name); err != nil {
			return err
		}
		q := d.Status.LastQuery
		if q == nil || q.Outcome != outcome || q.Server != string(d.UID) {
			return fmt.Errorf("status %+v of %s, want %s", q, d.UID, outcome)
		}
		return nil
	})
	return d
}

func awaitNames(t *testing.T, l *lookout, want ...string) {
	t.Helper()
	within(t, "the SearchDomains are told", func() error {
		if got := l.names(); !slices.Equal(got, want) {
			return fmt.Errorf("told %q, want %q", got, want)
		}
		return nil
	})
}

func createDomain(t *testing.T, k *bed.Kube, name, domain string) {
	t.Helper()
	request(t, k, "POST", sdPath, jsonMIME, fmt.Sprintf(
		`{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"SearchDomain","metadata":{"name":%q},"spec":{"domain":%q}}`, name, domain))
}

// TestSearchDomains follows SearchDomains through everything that a person may do
// with them.
func TestSearchDomains(t *testing.T) {
	k := startKube(t)
	l := newLookout()
	path, cable := wired(t, k)
	r := startWith(t, path, newRegistry(), newDecisions(), l.into)
	within(t, "that there are none", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.known || len(l.domains) > 0 {
			return fmt.Errorf("told %v", l.known)
		}
		return nil
	})

	t.Run("as users type it", func(t *testing.T) {
		known(t, k, "searchdomains")
		if out, err := shell(t, k, exampleDomain); err != nil || out != "searchdomain.discovery.liqo.io/example.com created\n" {
			t.Fatalf("%v\n%s", err, out)
		}
		awaitNames(t, l, "example.com=example.com")
		l.mu.Lock()
		if d := l.domains["example.com"]; d.Spec.Autojoin == nil || !*d.Spec.Autojoin || d.Spec.Server != "" {
			t.Errorf("told %+v", d.Spec)
		}
		l.mu.Unlock()
		l.finds(l.uid("example.com"), "Found")
		r.SearchDomainChanged("example.com")
		d := awaitDomain(t, k, "example.com", "Found")
		if len(d.Status.Found) != 2 || d.Status.Found[0].Reason != "NoAddress" || d.Status.Clusters != 1 {
			t.Errorf("status %+v", d.Status)
		}
		var managers []string
		for _, m := range d.ManagedFields {
			managers = append(managers, fmt.Sprintf("%s %s %q", m.Manager, m.Operation, m.Subresource))
		}
		slices.Sort(managers)
		if want := []string{`kubectl-client-side-apply Update ""`, config.ManagerSearchDomain + ` Apply "status"`}; !slices.Equal(managers, want) {
			t.Errorf("fields are owned by %q", managers)
		}
		out, err := k.Kubectl(t.Context(), "get", "searchdomains")
		if got := strings.Join(strings.Fields(out), " "); err != nil || !strings.HasPrefix(got, "NAME DOMAIN AUTOJOIN CLUSTERS LAST QUERY AGE example.com example.com true 1 Found ") {
			t.Errorf("kubectl get: %v\n%s", err, out)
		}
	})

	t.Run("what is refused is not told", func(t *testing.T) {
		out, err := shell(t, k, strings.NewReplacer("domain: example.com", "domain: https://example.com", "-f -", "-f - 2>&1").Replace(exampleDomain))
		if err == nil || !strings.Contains(err.Error()+out, "domain must be the name of a DNS domain, such as example.com") {
			t.Errorf("%v\n%s", err, out)
		}
		awaitNames(t, l, "example.com=example.com")
	})

	t.Run("nothing is written without a change", func(t *testing.T) {
		before, err := getDomain(t, k, "example.com")
		if err != nil {
			t.Fatal(err)
		}
		awaitInstalled(t, k)
		writes := r.Status().Writes
		for range 100 {
			l.look(t, r, "example.com")
		}
		// Times are to the second, so that now is another one.
		within(t, "another second", func() error {
			if !time.Now().After(before.Status.LastQuery.Time.Add(2 * time.Second)) {
				return errors.New("not yet")
			}
			return nil
		})
		r.SearchDomainChanged("example.com")
		r.SearchDomainChanged("unknown")
		createDomain(t, k, "other", "other.example")
		awaitNames(t, l, "example.com=example.com", "other=other.example")
		l.finds(l.uid("other"), "NoName")
		r.SearchDomainChanged("other")
		awaitDomain(t, k, "other", "NoName") // which comes after the others
		after, err := getDomain(t, k, "example.com")
		if n := r.Status().Writes - writes; err != nil || n != 1 || after.ResourceVersion != before.ResourceVersion {
			t.Errorf("%d writes, want one for the other domain (%v)", n, err)
		}
		// What changes keeps the times of what does not.
		l.finds(l.uid("example.com"), "NoData")
		r.SearchDomainChanged("example.com")
		no := awaitDomain(t, k, "example.com", "NoData")
		l.finds(l.uid("example.com"), "Timeout")
		r.SearchDomainChanged("example.com")
		timeout := awaitDomain(t, k, "example.com", "Timeout")
		if since := no.Status.Conditions[0].LastTransitionTime; !since.After(before.Status.Conditions[0].LastTransitionTime.Time) ||
			!timeout.Status.Conditions[0].LastTransitionTime.Time.Equal(since.Time) || timeout.Status.Conditions[0].Reason != "Timeout" {
			t.Errorf("%+v, %+v, %+v", before.Status.Conditions, no.Status.Conditions, timeout.Status.Conditions)
		}
	})

	t.Run("the status is put right", func(t *testing.T) {
		if out, err := k.Kubectl(t.Context(), "patch", "sd", "example.com", "--subresource", "status", "--type", "merge", "-p",
			`{"status":{"clusters":77,"lastQuery":{"outcome":"Nonsense"}}}`); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if d := awaitDomain(t, k, "example.com", "Timeout"); d.Status.Clusters != 1 {
			t.Errorf("status %+v", d.Status)
		}
	})

	t.Run("edited", func(t *testing.T) {
		request(t, k, "PATCH", sdPath+"/example.com", merge, `{"spec":{"domain":"example.org","autojoin":null,"server":"tls://192.0.2.53"}}`)
		awaitNames(t, l, "example.com=example.org", "other=other.example")
	})

	t.Run("deleted and made anew", func(t *testing.T) {
		old := l.uid("other")
		if out, err := k.Kubectl(t.Context(), "delete", "sd", "other"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		awaitNames(t, l, "example.com=example.org")
		createDomain(t, k, "other", "other.example")
		awaitNames(t, l, "example.com=example.org", "other=other.example")
		if d, err := getDomain(t, k, "other"); err != nil || d.Status.LastQuery != nil || string(d.UID) == old {
			t.Errorf("%v: %+v", err, d)
		}
		l.finds(l.uid("other"), "Found")
		r.SearchDomainChanged("other")
		awaitDomain(t, k, "other", "Found")
	})

	t.Run("a new connection looks at all of them", func(t *testing.T) {
		r.lose(t, cable)
		l.finds(l.uid("other"), "Refused")
		r.SearchDomainChanged("other") // which nobody remembers
		l.mu.Lock()
		clear(l.domains)
		l.mu.Unlock()
		cable.mend()
		awaitNames(t, l, "example.com=example.org", "other=other.example")
		awaitDomain(t, k, "other", "Refused")
	})

	t.Run("the kind is deleted", func(t *testing.T) {
		request(t, k, "DELETE", crdsPath+"searchdomains.discovery.liqo.io", "", "")
		awaitNames(t, l)
		within(t, "it is served again", func() error {
			_, err := k.Request(t.Context(), "POST", sdPath, jsonMIME, []byte(
				`{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"SearchDomain","metadata":{"name":"again"},"spec":{"domain":"again.example"}}`))
			return err
		})
		awaitNames(t, l, "again=again.example")
		l.finds(l.uid("again"), "Found")
		r.SearchDomainChanged("again")
		awaitDomain(t, k, "again", "Found")
	})
}

// TestSettingsInTrouble has the API server refuse SearchDomains and the ClusterConfig, replace an object while its status is on
// the way, and fail in every way there is.
func TestSettingsInTrouble(t *testing.T) {
	k := startKube(t)
	proxy := newFaultyProxy(t, k)
	var forbidden atomic.Bool
	forbidden.Store(true)
	var writes atomic.Int64 // of the status of d
	replace := func() error { return nil }
	proxy.before = func(w http.ResponseWriter, r *http.Request) bool {
		if forbidden.Load() && (strings.HasPrefix(r.URL.Path, sdPath) || strings.HasPrefix(r.URL.Path, ccPath)) {
			w.Header().Set("Content-Type", jsonMIME)
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not for you","reason":"Forbidden","code":403}`)
			return true
		}
		if r.Method == http.MethodPatch && r.URL.Path == sdPath+"/d/status" && writes.Add(1) == 1 {
			if err := replace(); err != nil {
				t.Error(err)
			}
		}
		return false
	}
	l := newLookout()
	var heard settings
	r := startWith(t, proxy.kubeconfig(t), newRegistry(), newDecisions(), func(c *peering.Config) {
		l.into(c)
		c.People.ClusterConfig = heard.tell
	})

	// That they cannot be read is no reason to do nothing else.
	t.Run("forbidden", func(t *testing.T) {
		r.put(barn())
		awaitFC(t, k, string(barnID), condition(api.ConditionReachable, api.ConditionTrue))
		if s := r.Status(); !s.Connected {
			t.Errorf("%+v", s)
		}
		l.mu.Lock()
		if _, _, n := heard.last(); n != 0 || l.known {
			t.Errorf("told what nobody could read: %d, %v", n, l.known)
		}
		l.mu.Unlock()
		forbidden.Store(false)
		heard.await(t, `{}`)
		createDomain(t, k, "d", "old.example")
		awaitNames(t, l, "d=old.example")
	})

	// The new object never shows anything that was found for the old one.
	t.Run("replaced meanwhile", func(t *testing.T) {
		old := l.uid("d")
		replace = func() error {
			if _, err := k.Request(t.Context(), "DELETE", sdPath+"/d", "", nil); err != nil {
				return err
			}
			_, err := k.Request(t.Context(), "POST", sdPath, jsonMIME, []byte(
				`{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"SearchDomain","metadata":{"name":"d"},"spec":{"domain":"new.example"}}`))
			return err
		}
		l.finds(old, "Found")
		r.SearchDomainChanged("d")
		awaitNames(t, l, "d=new.example")
		d, err := getDomain(t, k, "d")
		if err != nil || string(d.UID) == old || d.Status.LastQuery != nil {
			t.Errorf("%v: the new one shows %+v", err, d.Status.LastQuery)
		}
		l.finds(l.uid("d"), "NoData")
		r.SearchDomainChanged("d")
		d = awaitDomain(t, k, "d", "NoData")
		if !strings.HasPrefix(d.Status.Found[0].Name, "broken.new.example") || writes.Load() < 2 {
			t.Errorf("status %+v after %d writes", d.Status, writes.Load())
		}
		request(t, k, "DELETE", sdPath+"/d", "", "")
		awaitNames(t, l)
	})

	t.Run("faults", func(t *testing.T) { settingsWithFaults(t, k, proxy, r, l, &heard) })
}

// settingsWithFaults has SearchDomains come, change and go and settings change
// while a third of all requests fail in every way there is.
func settingsWithFaults(t *testing.T, k *bed.Kube, proxy *faultyProxy, r *running, l *lookout, heard *settings) {
	logged := len(r.log.Lines(slog.LevelInfo))
	proxy.percent.Store(33)
	const n = 20
	name := func(i int) string { return fmt.Sprintf("d%02d", i) }
	outcomes := []string{"Found", "NoData", "Timeout"}
	for i := range n {
		createDomain(t, k, name(i), fmt.Sprintf("d%d.example", i))
	}
	for round := range 100 {
		i := rand.IntN(n)
		switch rand.IntN(5) {
		case 0:
			request(t, k, "DELETE", sdPath+"/"+name(i), "", "")
			createDomain(t, k, name(i), fmt.Sprintf("again%d.example", round))
		case 1:
			request(t, k, "PATCH", sdPath+"/"+name(i), merge, fmt.Sprintf(`{"spec":{"domain":"moved%d.example"}}`, round))
		case 2:
			proxy.server.CloseClientConnections()
		case 3:
			request(t, k, "PATCH", configPath, merge, fmt.Sprintf(`{"spec":{"discoveryConfig":{"ttl":%d}}}`, 100+round))
		default:
			l.finds(l.uid(name(i)), outcomes[rand.IntN(len(outcomes))])
			r.SearchDomainChanged(name(i))
		}
	}
	request(t, k, "PATCH", configPath, merge, `{"spec":{"discoveryConfig":{"ttl":4711}}}`)
	heard.await(t, `{"discoveryConfig":{"ttl":4711}}`)
	var want []string
	for i := range n {
		d, err := getDomain(t, k, name(i))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, d.Name+"="+d.Spec.Domain)
		l.finds(string(d.UID), outcomes[i%3])
	}
	awaitNames(t, l, want...)
	for i := range n {
		r.SearchDomainChanged(name(i))
	}
	for i := range n {
		awaitDomain(t, k, name(i), outcomes[i%3])
	}
	proxy.percent.Store(0)
	awaitInstalled(t, k)
	// An agent that was told of this one knows what became of the others, also where it got no answer to a write.
	createDomain(t, k, "last", "last.example")
	awaitNames(t, l, append(want, "last=last.example")...)
	lookAtAll := func() {
		for i := range n {
			l.look(t, r, name(i))
		}
		l.look(t, r, "last") // One comes after the other, and nothing is written about this one.
	}
	lookAtAll() // what waits to be tried again is due with it
	writes := r.Status().Writes
	l.finds(l.uid(name(0)), "Refused")
	lookAtAll()
	if sent := r.Status().Writes - writes; sent != 1 {
		t.Errorf("%d writes, want one", sent)
	}
	awaitDomain(t, k, name(0), "Refused")
	if lines := r.log.Lines(slog.LevelInfo)[logged:]; len(lines) > 12 {
		t.Errorf("%d lines in the log:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}
