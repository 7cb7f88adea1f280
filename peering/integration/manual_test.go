package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/fields"
)

// places is a peering.URLProber whose answers tests say.
type places struct {
	mu      sync.Mutex
	asked   map[string]string // "URL ID" by object
	answers map[string]discovered.Result
	story   []string // every call that changed something
	changed func(object string)
}

func newPlaces() *places {
	return &places{asked: make(map[string]string), answers: make(map[string]discovered.Result), changed: func(string) {}}
}

func (p *places) Probe(object, url string, id peer.ClusterID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if said := strings.TrimSpace(url + " " + string(id)); p.asked[object] != said {
		p.asked[object] = said
		p.story = append(p.story, "look "+object+" "+said)
	}
}

func (p *places) Stop(object string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.asked, object)
	p.story = append(p.story, "leave "+object)
}

func (p *places) Result(object string) (discovered.Result, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	url, _, _ := strings.Cut(p.asked[object], " ")
	found, known := p.answers[url]
	found.URL = url
	return found, known
}

// answer says who is at a URL.
func (p *places) answer(url string, found discovered.Result) {
	p.mu.Lock()
	p.answers[url] = found
	var objects []string
	for object, said := range p.asked {
		if strings.HasPrefix(said+" ", url+" ") {
			objects = append(objects, object)
		}
	}
	changed := p.changed
	p.mu.Unlock()
	for _, object := range objects {
		changed(object)
	}
}

func (p *places) heard(call string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.story, call) {
		return nil
	}
	return fmt.Errorf("it was told %q, and not %q", p.story, call)
}

// asking starts a Controller that asks places.
func asking(t *testing.T, path string, reg *registry, decisions *decisions, p *places) *running {
	t.Helper()
	r := startWith(t, path, reg, decisions, func(c *peering.Config) { c.URLs = p })
	p.mu.Lock()
	p.changed = r.URLProbed
	p.mu.Unlock()
	return r
}

// shows returns a check of the reason of a condition.
func shows(conditionType string, status api.ConditionStatus, reason, text string) func(*api.ForeignCluster) error {
	return func(fc *api.ForeignCluster) error {
		if c := fc.Condition(conditionType); c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, text) {
			return fmt.Errorf("condition %s is %+v, want %s/%s with %q", conditionType, c, status, reason, text)
		}
		return nil
	}
}

func all(checks ...func(*api.ForeignCluster) error) func(*api.ForeignCluster) error {
	return func(fc *api.ForeignCluster) error {
		for _, check := range checks {
			if err := check(fc); err != nil {
				return err
			}
		}
		return nil
	}
}

// myCluster is the ForeignCluster of Liqo's documentation.
const myCluster = `apiVersion: discovery.liqo.io/v1alpha1
kind: ForeignCluster
metadata:
  name: my-cluster
spec:
  join: true # optional (defaults to false)
  authUrl: "https://%s"
`

// installed waits until kubectl knows ForeignClusters.
func installed(t *testing.T, k *bed.Kube, r *running) {
	t.Helper()
	within(t, "the connection", func() error {
		if s := r.Status(); !s.Connected {
			return errors.New(s.LastError)
		}
		return nil
	})
	known(t, k, "fc")
}

// known waits until kubectl knows a kind: that lags behind the API server's serving it.
func known(t *testing.T, k *bed.Kube, kind string) {
	t.Helper()
	within(t, "kubectl with "+kind, func() error {
		_, err := k.Kubectl(t.Context(), "get", kind)
		return err
	})
}

// identityOf returns a check of what an object says about its cluster.
func says(id peer.ClusterID, name, namespace string) func(*api.ForeignCluster) error {
	return func(fc *api.ForeignCluster) error {
		if fc.ClusterID() != string(id) || fc.Spec.ClusterIdentity.ClusterName != name || fc.Spec.Namespace != namespace {
			return fmt.Errorf("spec = %+v, %+v", fc.Spec, fc.Spec.ClusterIdentity)
		}
		return nil
	}
}

// TestManual follows the ForeignCluster of Liqo's documentation from kubectl apply
// to its deletion.
func TestManual(t *testing.T) {
	const first, second = "https://192.0.2.1:6447", "https://192.0.2.2:6447"
	k := startKube(t)
	p, reg, decisions := newPlaces(), newRegistry(), newDecisions()
	path := direct(t, k)
	r := asking(t, path, reg, decisions, p)
	installed(t, k, r)
	whole := t
	stays := func(t *testing.T, name string, do func()) {
		t.Helper()
		before, err := get(t, k, name)
		if err != nil {
			t.Fatal(err)
		}
		do()
		// The queue works in order of arrival.
		other := neighbour(90)
		r.put(other)
		awaitFC(t, k, string(other.ID), condition(api.ConditionReachable, api.ConditionTrue))
		r.change(other.ID, func(p *peer.Peer) { p.Phase = peer.PhaseLost })
		awaitGone(t, k, fcPath+"/"+string(other.ID))
		if after, err := get(t, k, name); err != nil || after.ResourceVersion != before.ResourceVersion {
			t.Errorf("it was written: %v\nbefore %+v\nafter  %+v", err, before, after)
		}
	}

	t.Run("nothing is known", func(t *testing.T) {
		if err := k.Apply(t.Context(), fmt.Sprintf(myCluster, "192.0.2.1:6447")); err != nil {
			t.Fatal(err)
		}
		within(t, "the question", func() error { return p.heard("look my-cluster " + first) })
		awaitFC(t, k, "my-cluster", all(shows(api.ConditionAuthURL, api.ConditionUnknown, "NotAskedYet", first),
			shows(api.ConditionOutgoingPeering, api.ConditionFalse, "AwaitingContact", "")))
	})
	t.Run("nobody answers", func(t *testing.T) {
		p.answer(first, discovered.Result{Reason: "Unreachable", Message: "connection refused"})
		awaitFC(t, k, "my-cluster", all(
			shows(api.ConditionAuthURL, api.ConditionFalse, "Unreachable", first+" does not answer: connection refused."),
			shows(api.ConditionReachable, api.ConditionFalse, "Unreachable", "AuthURL"),
			shows(api.ConditionOutgoingPeering, api.ConditionFalse, "AwaitingContact", "AuthURL")))
		stays(t, "my-cluster", func() { p.answer(first, discovered.Result{Reason: "Unreachable", Message: "no route to host"}) })
		out, err := k.Kubectl(t.Context(), "get", "fc", "my-cluster", "-o", "wide")
		if err != nil || !strings.Contains(out, first) || !strings.Contains(out, "False") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("another URL", func(t *testing.T) {
		if _, err := k.Kubectl(t.Context(), "patch", "fc", "my-cluster", "--type=merge", "-p", `{"spec":{"authUrl":"`+second+`"}}`); err != nil {
			t.Fatal(err)
		}
		within(t, "the question", func() error { return p.heard("look my-cluster " + second) })
		awaitFC(t, k, "my-cluster", shows(api.ConditionAuthURL, api.ConditionUnknown, "NotAskedYet", second))
		p.answer(second, discovered.Result{Reason: "Unreachable", Message: "no such host"})
		awaitFC(t, k, "my-cluster", shows(api.ConditionAuthURL, api.ConditionFalse, "Unreachable", second+" does not answer: no such host."))
		p.answer(second, discovered.Result{Reason: "NotACluster", Message: "it speaks FTP"})
		awaitFC(t, k, "my-cluster", all(shows(api.ConditionAuthURL, api.ConditionFalse, "NotACluster", "FTP"), shows(api.ConditionReachable, api.ConditionFalse, "NotACluster", "")))
		p.answer(second, discovered.Result{ID: selfID, ClusterName: "self"})
		awaitFC(t, k, "my-cluster", shows(api.ConditionAuthURL, api.ConditionFalse, "ThisCluster", "this very cluster"))
	})
	t.Run("the cluster answers", func(t *testing.T) {
		reg.put(barn())
		p.answer(second, discovered.Result{ID: barnID, ClusterName: "barn", Namespace: "liqo", Fingerprint: barn().Fingerprint})
		within(t, "kubectl wait", func() error {
			_, err := k.Kubectl(t.Context(), "wait", "--for=condition=AuthURL", "fc/my-cluster", "--timeout=20s")
			return err
		})
		if _, err := k.Kubectl(t.Context(), "wait", "--for=condition=Reachable", "fc/my-cluster", "--timeout=20s"); err != nil {
			t.Error(err)
		}
		fc := awaitFC(t, k, "my-cluster", all(says(barnID, "barn", "liqo"), shows(api.ConditionAuthURL, api.ConditionTrue, "Answers", second),
			shows(api.ConditionOutgoingPeering, api.ConditionFalse, "AwaitingTrust", "")))
		if fc.Spec.AuthURL != second || !fc.Spec.Join || fc.Spec.DiscoveryType != api.DiscoveryManual || len(fc.Labels) != 0 || len(fc.Finalizers) != 0 {
			t.Errorf("%+v\n%+v", fc.ObjectMeta, fc.Spec)
		}
		for _, m := range fc.ManagedFields {
			if m.Manager == fields.ManagerDiscovery && m.Subresource == "" &&
				m.FieldsV1.String() != `{"f:spec":{"f:clusterIdentity":{"f:clusterID":{},"f:clusterName":{}},"f:namespace":{}}}` {
				t.Errorf("discovery owns %s", m.FieldsV1)
			}
		}
		within(t, "the question", func() error { return p.heard("look my-cluster " + second + " " + string(barnID)) })
		if decisions.heard(barnID, "join true by kubectl") != 1 || decisions.heard(barnID, "trust") > 0 {
			t.Errorf("the decision store was told %q", decisions.story())
		}
		awaitGone(t, k, fcPath+"/"+string(barnID)) // none of the agent's own
	})
	t.Run("applied again", func(t *testing.T) {
		stays(t, "my-cluster", func() {})
		if err := k.Apply(t.Context(), fmt.Sprintf(myCluster, "192.0.2.2:6447")); err != nil {
			t.Fatal(err)
		}
		awaitFC(t, k, "my-cluster", all(says(barnID, "barn", "liqo"), hasURL(second)))
		// GitOps applies only what it says, and takes nothing of the agent's away.
		if _, err := k.Host.RunInput(t.Context(), fmt.Sprintf(myCluster, "192.0.2.2:6447"), "kubectl", "--kubeconfig", bed.Kubeconfig,
			"apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		awaitFC(t, k, "my-cluster", says(barnID, "barn", "liqo"))
		if decisions.heard(barnID, "join false")+decisions.heard(barnID, "trust") > 0 {
			t.Errorf("the decision store was told %q", decisions.story())
		}
	})
	t.Run("another name", func(t *testing.T) {
		r.change(barnID, func(p *peer.Peer) { p.Name, p.Namespace = "stable", "liqo-2" })
		awaitFC(t, k, "my-cluster", says(barnID, "stable", "liqo-2"))
		request(t, k, "PATCH", fcPath+"/my-cluster", merge, `{"spec":{"clusterIdentity":{"clusterName":"mine"}}}`)
		r.change(barnID, func(p *peer.Peer) { p.Name, p.Namespace = "farm", "liqo-3" })
		awaitFC(t, k, "my-cluster", says(barnID, "mine", "liqo-3"))
	})
	t.Run("another cluster moves in", func(t *testing.T) {
		p.answer(second, discovered.Result{ID: neighbour(1).ID, Reason: "OtherCluster", Message: "another one"})
		fc := awaitFC(t, k, "my-cluster", shows(api.ConditionAuthURL, api.ConditionFalse, "OtherCluster", "create another one"))
		if !strings.Contains(fc.Condition(api.ConditionAuthURL).Message, string(neighbour(1).ID)) || condition(api.ConditionReachable, api.ConditionTrue)(fc) != nil {
			t.Errorf("%+v", fc.Status.Conditions)
		}
		p.answer(second, discovered.Result{ID: barnID, ClusterName: "farm", Namespace: "liqo-3"})
		awaitFC(t, k, "my-cluster", condition(api.ConditionAuthURL, api.ConditionTrue))
	})
	t.Run("a new controller writes nothing", func(t *testing.T) {
		r.stop()
		before, err := get(t, k, "my-cluster")
		if err != nil {
			t.Fatal(err)
		}
		writes := newPlaces()
		r = asking(whole, path, reg, decisions, writes)
		within(t, "the question", func() error { return writes.heard("look my-cluster " + second + " " + string(barnID)) })
		stays(t, "my-cluster", func() {})
		if fc, err := get(t, k, "my-cluster"); err != nil || fc.ResourceVersion != before.ResourceVersion {
			t.Errorf("%v: %+v", err, fc)
		}
		p = writes
		p.answer(second, discovered.Result{ID: barnID, ClusterName: "farm", Namespace: "liqo-3"})
	})
	t.Run("the URL is removed", func(t *testing.T) {
		request(t, k, "PATCH", fcPath+"/my-cluster", merge, `{"spec":{"authUrl":null}}`)
		within(t, "the end of the question", func() error { return p.heard("leave my-cluster") })
		awaitFC(t, k, "my-cluster", func(fc *api.ForeignCluster) error {
			if c := fc.Condition(api.ConditionAuthURL); c != nil {
				return fmt.Errorf("%+v", c)
			}
			return condition(api.ConditionReachable, api.ConditionTrue)(fc)
		})
		request(t, k, "PATCH", fcPath+"/my-cluster", merge, `{"spec":{"authUrl":"`+second+`"}}`)
		awaitFC(t, k, "my-cluster", condition(api.ConditionAuthURL, api.ConditionTrue))
	})
	t.Run("deleted while the API server is away", func(t *testing.T) {
		r.stop()
		gate := newGate(t, k)
		p = newPlaces()
		r = asking(t, gate.path, reg, decisions, p)
		within(t, "the question", func() error { return p.heard("look my-cluster " + second + " " + string(barnID)) })
		gate.shut()
		within(t, "the loss", func() error {
			if r.Status().Connected {
				return errors.New("connected")
			}
			return nil
		})
		if p.heard("leave my-cluster") == nil {
			t.Error("a lost connection is taken for a deletion")
		}
		request(t, k, "DELETE", fcPath+"/my-cluster", "", "")
		gate.open()
		within(t, "the end of the question", func() error { return p.heard("leave my-cluster") })
		// The cluster is there, so that the agent has an object of its own for it.
		awaitFC(t, k, string(barnID), condition(api.ConditionReachable, api.ConditionTrue))
	})
}

// TestDefaultIsNoDecision creates objects in every way that kubectl has, and sees
// who is taken for the author of spec.join.
func TestDefaultIsNoDecision(t *testing.T) {
	k := startKube(t)
	reg, decisions := newRegistry(), newDecisions()
	r := asking(t, direct(t, k), reg, decisions, newPlaces())
	installed(t, k, r)
	for i, tc := range []struct {
		name string
		args []string
		join string
		want string // what the decision store is told
	}{
		{"create", []string{"create"}, "", ""},
		{"create joined", []string{"create"}, "join: true", "join true by kubectl-create"},
		{"create with the annotation", []string{"create", "--save-config"}, "", ""},
		{"create unjoined with the annotation", []string{"create", "--save-config"}, "join: false", "join false by kubectl-create"},
		{"apply", []string{"apply"}, "", ""},
		{"apply joined", []string{"apply"}, "join: true", "join true by kubectl-client-side-apply"},
		{"apply unjoined", []string{"apply"}, "join: false", "join false by kubectl-client-side-apply"},
		{"apply on the server", []string{"apply", "--server-side"}, "", ""},
		{"apply on the server, unjoined", []string{"apply", "--server-side"}, "join: false", "join false by kubectl"},
		{"apply on the server, joined", []string{"apply", "--server-side"}, "join: true", "join true by kubectl"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := neighbour(10 + i)
			r.put(p)
			name := strings.ReplaceAll(strings.ReplaceAll(tc.name, " ", "-"), ",", "")
			text := fmt.Sprintf("apiVersion: discovery.liqo.io/v1alpha1\nkind: ForeignCluster\nmetadata: {name: %s}\nspec:\n  authUrl: https://192.0.2.1:6447\n  clusterIdentity: {clusterID: %s}\n  %s\n",
				name, p.ID, tc.join)
			if out, err := k.Host.RunInput(t.Context(), text, append(append([]string{"kubectl", "--kubeconfig", bed.Kubeconfig}, tc.args...), "-f", "-")...); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			fc := awaitFC(t, k, name, condition(api.ConditionReachable, api.ConditionTrue))
			heard := 0
			for _, told := range decisions.story() {
				if !strings.HasPrefix(told, p.ID.Short()+" join ") {
					continue
				}
				if heard++; tc.want == "" || told != p.ID.Short()+" "+tc.want {
					t.Errorf("the decision store is told %q", told)
				}
			}
			if tc.want != "" && heard != 1 {
				t.Errorf("the decision store is told %d times of %+v", heard, fc.ManagedFields)
			}
		})
	}
}
