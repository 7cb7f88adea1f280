package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/admission"
)

func TestMain(m *testing.M) { bed.Main(m) }

const (
	barn = peer.ClusterID("0558de48-097b-4b7d-ba04-6bd2a0f9d24f")
	shed = peer.ClusterID("1558de48-097b-4b7d-ba04-6bd2a0f9d24f")

	prPath = "/apis/discovery.liqo.io/v1alpha1/peeringrequests"
	merge  = "application/merge-patch+json"
	apply  = "application/apply-patch+yaml"
)

// world is a control plane with the custom resources, and what the webhook is to
// find decided.
type world struct {
	t   *testing.T
	k   *bed.Kube
	dir string // state directory

	mu       sync.Mutex
	policies map[peer.ClusterID]admission.Policy
}

func (w *world) Policy(id peer.ClusterID) admission.Policy {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.policies[id]
}

func (w *world) decide(id peer.ClusterID, s admission.Policy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.policies[id] = s
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, k: bed.New(t).AddCluster(t.Context(), "box", "10.77.0.1/24"), dir: t.TempDir(),
		policies: make(map[peer.ClusterID]admission.Policy),
	}
	for _, manifest := range api.CRDs() {
		if err := w.k.Apply(t.Context(), string(manifest.YAML)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []peer.ClusterID{barn, shed} {
		// More than the agent grants, so that refusals are the webhook's.
		if err := w.k.Apply(t.Context(), fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "liqo:peer:%[1]s"}
rules: [{apiGroups: [discovery.liqo.io], resources: [peeringrequests], verbs: [get, create, patch, update, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "liqo:peer:%[1]s"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "liqo:peer:%[1]s"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:serviceaccount:liqo:liqo-peer-%[1]s"}]
`, id)); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"pr", "fc", "adv"} { // kubectl knows them a moment after they are served
		bedtest.Within(t, "kubectl with "+kind, func() error {
			out, err := w.kubectl("", "get", kind)
			if err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			return nil
		})
	}
	return w
}

// serve runs the webhook on the box until stop is called or the test ends.
func (w *world) serve() (s *admission.Server, stop func()) {
	w.t.Helper()
	s, err := admission.NewServer(admission.Config{Dir: w.dir, Policy: w.Policy, Logger: slog.New(slog.NewTextHandler(w.t.Output(), nil))})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.k.Host.Do(func() error { return s.Listen(w.t.Context()) }); err != nil {
		w.t.Fatal(err)
	}
	return s, bedtest.Run(w.t, nil, nil, s.Run)
}

// install applies the configuration as the agent does.
func (w *world) install(s *admission.Server) {
	w.t.Helper()
	text, err := json.Marshal(s.Webhook())
	if err != nil {
		w.t.Fatal(err)
	}
	w.must("PATCH", admission.WebhookPath+"?fieldManager=liqo-agent&force=true", apply, string(text))
}

func (w *world) must(method, path, contentType, body string) {
	w.t.Helper()
	if _, err := w.k.Request(w.t.Context(), method, path, contentType, []byte(body)); err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
}

// request is the manifest of a PeeringRequest.
func request(name, id peer.ClusterID, url string) string {
	return fmt.Sprintf(`{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"PeeringRequest","metadata":{"name":%q},"spec":{"clusterIdentity":{"clusterID":%q},"authUrl":%q}}`, name, id, url)
}

// kubectl runs kubectl as administrator and returns all that it says.
func (w *world) kubectl(input string, args ...string) (string, error) {
	command := append([]string{"sh", "-c", `exec kubectl --kubeconfig "$0" "$@" 2>&1`, bed.Kubeconfig}, args...)
	return w.k.Host.RunInput(w.t.Context(), input, command...)
}

// as returns the flags with which kubectl does it as the peer's gateway would.
func as(id peer.ClusterID, args ...string) []string {
	return append(args, "--as=system:serviceaccount:liqo:liqo-peer-"+string(id), "--as-group=liqo:peers")
}

func serverSide(args ...string) []string {
	return append([]string{"apply", "--server-side", "--force-conflicts", "--field-manager=liqo-peer", "--validate=false", "-f", "-"}, args...)
}

func TestWebhook(t *testing.T) {
	w := newWorld(t)
	s, stop := w.serve()
	w.install(s)
	// Until the API server has read the configuration, it stores anything.
	bedtest.Within(w.t, "the webhook in use", func() error {
		text, err := w.k.Request(t.Context(), "POST", prPath+"?dryRun=All", "application/json", []byte(request(shed, shed, "")))
		if err == nil {
			return errors.New("it was not asked")
		}
		if !strings.Contains(string(text), "NotTrusted") {
			return err
		}
		return nil
	})

	t.Run("configuration", func(t *testing.T) {
		text, err := w.k.Request(t.Context(), "GET", admission.WebhookPath, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		var found map[string]any
		if err := json.Unmarshal(text, &found); err != nil {
			t.Fatal(err)
		}
		// The API server fills in nothing, so what is there can be compared.
		if !reflect.DeepEqual(found["webhooks"], s.Webhook()["webhooks"]) {
			t.Errorf("wanted %v\nfound  %v", s.Webhook()["webhooks"], found["webhooks"])
		}
		if labels := found["metadata"].(map[string]any)["labels"].(map[string]any); labels[api.LabelManagedBy] != api.ManagedByAgent {
			t.Errorf("labels %v", labels)
		}
		if s.Port() != 6446 {
			t.Errorf("port %d", s.Port())
		}
	})

	in := admission.Policy{Pinned: true, Accept: api.RequestAccepted}
	held := admission.Policy{Pinned: true, Accept: api.RequestPending}
	never := admission.Policy{Pinned: true, Never: true, Accept: api.RequestRefused, Message: "trust.accept is \"none\"."}
	blocked := admission.Policy{Pinned: true, Blocked: true}
	url := func(n int) string { return fmt.Sprintf("https://10.77.0.%d:6447", n) }
	step := 0
	moved := func() string { step++; return request(barn, barn, url(step)) }
	kind := func(text, old, new string) string { return strings.Replace(text, old, new, 1) }
	for _, tc := range []struct {
		name     string
		standing admission.Policy // of barn
		args     []string
		input    string
		refused  bool
		want     []string // in what kubectl says
	}{
		{"peer without a trusted key", admission.Policy{}, as(barn, serverSide()...), moved(), true,
			[]string{"Error from server (Forbidden)", `admission webhook "peeringrequests.discovery.liqo.io" denied the request: the provider trusts no key`, "liqo-agent peers accept " + string(barn)}},
		{"blocked peer", blocked, as(barn, serverSide()...), moved(), true, []string{"(Forbidden)", "has blocked cluster", "liqo-agent peers unblock " + string(barn)}},
		{"policy none", never, as(barn, serverSide()...), moved(), true, []string{"(Forbidden)", `in: trust.accept is "none"`}},
		{"administrator, unknown key", admission.Policy{}, []string{"create", "-f", "-"}, moved(), true, []string{"(Forbidden)", "the provider trusts no key"}},
		{"administrator, other's ID", in, []string{"create", "-f", "-"}, request(barn, shed, ""), true, []string{"named after the cluster ID"}},
		{"peer under another's name", in, as(shed, serverSide()...), moved(), true, []string{"(Forbidden)", "cluster " + string(shed) + " may write the PeeringRequest that has its ID as name"}},
		{"peer with a finalizer", in, as(barn, serverSide()...), kind(moved(), `"metadata":{`, `"metadata":{"finalizers":["example.com/x"],`), true, []string{"(Forbidden)", "finalizers"}},
		{"peer with an owner", in, as(barn, serverSide()...), kind(moved(), `"metadata":{`, `"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"box","uid":"u"}],`), true, []string{"(Forbidden)", "owner references"}},
		{"peer with the agent's label", in, as(barn, serverSide()...), kind(moved(), `"metadata":{`, `"metadata":{"labels":{"app.kubernetes.io/managed-by":"liqo-agent"},`), true, []string{"(Forbidden)", "app.kubernetes.io/managed-by"}},
		{"nothing of that was stored", in, []string{"get", "pr"}, "", false, []string{"No resources found"}},

		{"dry run", in, as(barn, serverSide("--dry-run=server")...), moved(), false, []string{"serverside-applied (server dry run)"}},
		{"held peer", held, as(barn, serverSide()...), moved(), false, []string{"Warning: the request waits for a person", "serverside-applied"}},
		{"held peer again", held, as(barn, serverSide()...), request(barn, barn, url(step)), false, []string{"Warning:", "serverside-applied"}},
		{"peer that is let in", in, as(barn, serverSide()...), moved(), false, []string{"serverside-applied"}},
		{"it moves while blocked", blocked, as(barn, serverSide()...), moved(), true, []string{"has blocked cluster"}},
		{"administrator changes it while blocked", blocked, []string{"patch", "pr", string(barn), "--type=merge", "-p", `{"spec":{"namespace":"x"}}`}, "", true, []string{"(Forbidden)", "has blocked cluster"}},
		{"administrator labels it while blocked", blocked, []string{"label", "pr", string(barn), "mine=x"}, "", false, []string{"labeled"}},
		{"administrator finalizes it while blocked", blocked, []string{"patch", "pr", string(barn), "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/x"]}}`}, "", false, []string{"patched"}},
		{"the status is not asked about", blocked, []string{"patch", "pr", string(barn), "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Refused","reason":"Blocked","message":"It is."}}`}, "", false, []string{"patched"}},
		{"peer keeps the administrator's label", in, as(barn, serverSide()...), moved(), false, []string{"serverside-applied"}},
		{"deleted while blocked", blocked, []string{"delete", "pr", string(barn), "--wait=false"}, "", false, []string{"deleted"}},
		{"finalizer comes off while blocked", blocked, []string{"patch", "pr", string(barn), "--type=merge", "-p", `{"metadata":{"finalizers":null}}`}, "", false, []string{"patched"}},
		{"it is gone", in, []string{"get", "pr"}, "", false, []string{"No resources found"}},
		{"administrator, trusted cluster", in, []string{"create", "-f", "-"}, moved(), false, []string{"created"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w.decide(barn, tc.standing)
			w.decide(shed, in)
			defer w.decide(shed, admission.Policy{})
			out, err := w.kubectl(tc.input, tc.args...)
			if (err != nil) != tc.refused {
				t.Errorf("kubectl %v: %v\n%s", tc.args, err, out)
			}
			for _, want := range tc.want {
				if !strings.Contains(out, want) {
					t.Errorf("kubectl says\n%s\nwant %q", out, want)
				}
			}
		})
	}

	before := s.Webhook()
	t.Run("down", func(t *testing.T) {
		w.decide(barn, in)
		stop()
		for _, args := range [][]string{as(barn, serverSide()...), {"patch", "pr", string(barn), "--type=merge", "-p", `{"spec":{"namespace":"y"}}`}} {
			if out, err := w.kubectl(moved(), args...); err == nil || !strings.Contains(out, `failed calling webhook "peeringrequests.discovery.liqo.io"`) {
				t.Errorf("kubectl %v: %v\n%s", args, err, out)
			}
		}
		// Nothing else waits for the agent.
		for _, args := range [][]string{
			{"patch", "pr", string(barn), "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Accepted"}}`},
			{"get", "pr", string(barn)},
			{"delete", "pr", string(barn)},
			{"create", "configmap", "x"},
			{"label", "node", "box", "x=y"},
		} {
			if out, err := w.kubectl("", args...); err != nil {
				t.Errorf("kubectl %v: %v\n%s", args, err, out)
			}
		}
		for _, manifest := range []string{
			`{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"ForeignCluster","metadata":{"name":"x"},"spec":{"authUrl":"https://10.0.0.1:6447"}}`,
			fmt.Sprintf(`{"apiVersion":"sharing.liqo.io/v1alpha1","kind":"Advertisement","metadata":{"name":%[1]q},"spec":{"clusterId":%[1]q,"timestamp":"2026-11-01T00:00:00Z","timeToLive":"2026-11-01T06:00:00Z"}}`, shed),
		} {
			if out, err := w.kubectl(manifest, "create", "-f", "-"); err != nil {
				t.Errorf("%s: %v\n%s", manifest, err, out)
			}
		}
	})

	t.Run("restart", func(t *testing.T) {
		again, stop := w.serve()
		defer stop()
		if !reflect.DeepEqual(before, again.Webhook()) {
			t.Errorf("the configuration changed:\n%v\n%v", before, again.Webhook())
		}
		// Nothing was written, and it is asked again at once.
		if out, err := w.kubectl(moved(), as(barn, serverSide()...)...); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		w.decide(barn, blocked)
		if out, err := w.kubectl(moved(), as(barn, serverSide()...)...); err == nil || !strings.Contains(out, "has blocked cluster") {
			t.Errorf("%v\n%s", err, out)
		}
	})

	t.Run("port taken, and the key lost", func(t *testing.T) {
		var taken net.Listener
		if err := w.k.Host.Do(func() (err error) {
			taken, err = net.Listen("tcp", admission.DefaultListen)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		if err := os.Remove(filepath.Join(w.dir, admission.KeyFile)); err != nil {
			t.Fatal(err)
		}
		again, stop := w.serve()
		defer stop()
		if again.Port() == 6446 || again.Port() == 0 {
			t.Fatalf("port %d", again.Port())
		}
		w.install(again)
		w.decide(barn, in)
		bedtest.Within(w.t, "the new configuration", func() error {
			out, err := w.kubectl(moved(), as(barn, serverSide()...)...)
			if err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			return nil
		})
	})
}

// TestAnotherProgramOnThePort: whoever answers at the port without the key is not
// believed.
func TestAnotherProgramOnThePort(t *testing.T) {
	w := newWorld(t)
	w.decide(barn, admission.Policy{Pinned: true, Accept: api.RequestAccepted})
	s, stop := w.serve()
	w.install(s)
	bedtest.Within(w.t, "the webhook in use", func() error {
		_, err := w.k.Request(t.Context(), "POST", prPath+"?dryRun=All", "application/json", []byte(request(shed, shed, "")))
		if err == nil {
			return errors.New("it was not asked")
		}
		return nil
	})
	stop()
	w.dir = t.TempDir() // another key
	_, stop = w.serve()
	defer stop()
	out, err := w.kubectl(request(barn, barn, ""), as(barn, serverSide()...)...)
	if err == nil || !strings.Contains(out, "failed calling webhook") || !strings.Contains(out, "x509") {
		t.Errorf("%v\n%s", err, out)
	}
}
