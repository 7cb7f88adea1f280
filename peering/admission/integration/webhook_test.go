package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

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

	fcPath   = "/apis/discovery.liqo.io/v1alpha1/foreignclusters"
	prPath   = "/apis/discovery.liqo.io/v1alpha1/peeringrequests"
	advPath  = "/apis/sharing.liqo.io/v1alpha1/advertisements"
	jsonMIME = "application/json"
	merge    = "application/merge-patch+json"
	apply    = "application/apply-patch+yaml"
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
	bedtest.Within(t, "kubectl with them", func() error { // it knows them a moment after they are served
		out, err := w.kubectl("", "get", "pr,fc,adv")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
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

// clients returns those who send requests: the administrator, whose ID is "", and the gateway for each peer.
func (w *world) clients() map[peer.ClusterID]*http.Client {
	w.t.Helper()
	out := make(map[peer.ClusterID]*http.Client)
	for _, id := range []peer.ClusterID{"", barn, shed} {
		config := w.k.RESTConfig()
		if id != "" {
			config.Impersonate = rest.ImpersonationConfig{UserName: api.PeerUsers{Namespace: "liqo"}.Name(string(id)), Groups: []string{api.PeerGroup}}
		}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			w.t.Fatal(err)
		}
		out[id] = client
	}
	return out
}

// send sends a request, and returns the status of the answer, and what it says with its warnings.
func (w *world) send(client *http.Client, method, path, contentType, body string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.k.RESTConfig().Host+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.StatusCode, strings.Join(answer.Header["Warning"], "\n") + string(text)
}

// sendJudged is send for what the webhook judges. The API server waits only seconds for it, and then refuses: on a busy
// machine that is no answer, and it is asked again. A webhook that does not listen is one.
func (w *world) sendJudged(client *http.Client, method, path, contentType, body string) (status int, text string) {
	w.t.Helper()
	bedtest.Within(w.t, "an answer of the webhook", func() error {
		status, text = w.send(client, method, path, contentType, body)
		return unjudged(text)
	})
	return status, text
}

// unjudged returns an error if the API server says that it got no answer of a webhook that listens.
func unjudged(said string) error {
	if strings.Contains(said, "failed calling webhook") && !strings.Contains(said, "connection refused") {
		return errors.New(said)
	}
	return nil
}

func TestWebhook(t *testing.T) {
	w := newWorld(t)
	s, stop := w.serve()
	w.install(s)
	// Until the API server has read the configuration, it stores anything.
	bedtest.Within(w.t, "the webhook in use", func() error {
		text, err := w.k.Request(t.Context(), "POST", prPath+"?dryRun=All", jsonMIME, []byte(request(shed, shed, "")))
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
	never := admission.Policy{Pinned: true, Never: true, Accept: api.RequestRefused, Message: "trust.accept is none."}
	blocked := admission.Policy{Pinned: true, Blocked: true}
	step := 0
	moved := func() string {
		step++
		return request(barn, barn, fmt.Sprintf("https://10.77.0.%d:6447", step))
	}
	with := func(metadata string) string {
		return strings.Replace(moved(), `"metadata":{`, `"metadata":{`+metadata+`,`, 1)
	}
	const admin, applied = "", "?fieldManager=liqo-peer&force=true"
	own := prPath + "/" + string(barn)
	clients := w.clients()
	for _, tc := range []struct {
		name                            string
		standing                        admission.Policy // of barn
		by                              peer.ClusterID
		method, path, contentType, body string
		status                          int
		want                            []string // in the answer and its warnings
	}{
		{"peer without a trusted key", admission.Policy{}, barn, "PATCH", own + applied, apply, moved(), 403,
			[]string{`admission webhook \"peeringrequests.discovery.liqo.io\" denied the request: the provider trusts no key`, "liqo-agent peers accept " + string(barn)}},
		{"blocked peer", blocked, barn, "PATCH", own + applied, apply, moved(), 403, []string{"has blocked cluster", "liqo-agent peers unblock " + string(barn)}},
		{"policy none", never, barn, "PATCH", own + applied, apply, moved(), 403, []string{"in: trust.accept is none"}},
		{"administrator, unknown key", admission.Policy{}, admin, "POST", prPath, jsonMIME, moved(), 403, []string{"the provider trusts no key"}},
		{"administrator, other's ID", in, admin, "POST", prPath, jsonMIME, request(barn, shed, ""), 422, []string{"named after the cluster ID"}},
		{"peer under another's name", in, shed, "PATCH", own + applied, apply, moved(), 403, []string{"cluster " + string(shed) + " may write the PeeringRequest that has its ID as name"}},
		{"peer with a finalizer", in, barn, "PATCH", own + applied, apply, with(`"finalizers":["example.com/x"]`), 403, []string{"finalizers"}},
		{"peer with an owner", in, barn, "PATCH", own + applied, apply, with(`"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"box","uid":"u"}]`), 403, []string{"owner references"}},
		{"peer with the agent's label", in, barn, "PATCH", own + applied, apply, with(`"labels":{"app.kubernetes.io/managed-by":"liqo-agent"}`), 403, []string{"app.kubernetes.io/managed-by"}},
		{"nothing of that was stored", in, admin, "GET", own, "", "", 404, nil},

		{"dry run", in, barn, "PATCH", own + applied + "&dryRun=All", apply, moved(), 201, nil},
		{"held peer", held, barn, "PATCH", own + applied, apply, moved(), 201, []string{"the request waits for a person"}},
		{"held peer again", held, barn, "PATCH", own + applied, apply, request(barn, barn, fmt.Sprintf("https://10.77.0.%d:6447", step)), 200, []string{"the request waits for a person"}},
		{"peer that is let in", in, barn, "PATCH", own + applied, apply, moved(), 200, nil},
		{"it moves while blocked", blocked, barn, "PATCH", own + applied, apply, moved(), 403, []string{"has blocked cluster"}},
		{"administrator changes it while blocked", blocked, admin, "PATCH", own, merge, `{"spec":{"namespace":"x"}}`, 403, []string{"has blocked cluster"}},
		{"administrator labels it while blocked", blocked, admin, "PATCH", own, merge, `{"metadata":{"labels":{"mine":"x"}}}`, 200, nil},
		{"administrator finalizes it while blocked", blocked, admin, "PATCH", own, merge, `{"metadata":{"finalizers":["example.com/x"]}}`, 200, nil},
		{"the status is not asked about", blocked, admin, "PATCH", own + "/status", merge, `{"status":{"phase":"Refused","reason":"Blocked","message":"It is."}}`, 200, nil},
		{"peer keeps the administrator's label", in, barn, "PATCH", own + applied, apply, moved(), 200, []string{`"mine":"x"`}},
		{"deleted while blocked", blocked, admin, "DELETE", own, "", "", 200, nil},
		{"finalizer comes off while blocked", blocked, admin, "PATCH", own, merge, `{"metadata":{"finalizers":null}}`, 200, nil},
		{"it is gone", in, admin, "GET", own, "", "", 404, nil},
		{"administrator, trusted cluster", in, admin, "POST", prPath, jsonMIME, moved(), 201, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w.decide(barn, tc.standing)
			w.decide(shed, in)
			defer w.decide(shed, admission.Policy{})
			status, text := w.sendJudged(clients[tc.by], tc.method, tc.path, tc.contentType, tc.body)
			if status != tc.status {
				t.Errorf("status %d, want %d: %s", status, tc.status, text)
			}
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("it says\n%s\nwant %q", text, want)
				}
			}
		})
	}
	t.Run("kubectl", func(t *testing.T) {
		args := []string{"apply", "--server-side", "--force-conflicts", "--field-manager=liqo-peer", "--validate=false", "-f", "-",
			"--as=system:serviceaccount:liqo:liqo-peer-" + string(barn), "--as-group=liqo:peers"}
		serverSide := func() (out string, err error) {
			bedtest.Within(t, "an answer of the webhook", func() error {
				out, err = w.kubectl(moved(), args...)
				return unjudged(out)
			})
			return out, err
		}
		w.decide(barn, blocked)
		if out, err := serverSide(); err == nil || !strings.Contains(out, "Error from server (Forbidden)") || !strings.Contains(out, "has blocked cluster") {
			t.Errorf("a refusal: %v\n%s", err, out)
		}
		w.decide(barn, held)
		if out, err := serverSide(); err != nil || !strings.Contains(out, "Warning: the request waits for a person") || !strings.Contains(out, "serverside-applied") {
			t.Errorf("a warning: %v\n%s", err, out)
		}
	})

	before := s.Webhook()
	t.Run("down", func(t *testing.T) {
		w.decide(barn, in)
		stop()
		for _, asked := range []func() (int, string){
			func() (int, string) { return w.send(clients[barn], "PATCH", own+applied, apply, moved()) },
			func() (int, string) { return w.send(clients[admin], "PATCH", own, merge, `{"spec":{"namespace":"y"}}`) },
		} {
			if status, text := asked(); status != http.StatusInternalServerError || !strings.Contains(text, `failed calling webhook \"peeringrequests.discovery.liqo.io\"`) {
				t.Errorf("%d %s", status, text)
			}
		}
		// Nothing else waits for the agent.
		w.must("PATCH", own+"/status", merge, `{"status":{"phase":"Accepted"}}`)
		w.must("GET", own, "", "")
		w.must("DELETE", own, "", "")
		w.must("POST", "/api/v1/namespaces/default/configmaps", jsonMIME, `{"metadata":{"name":"x"}}`)
		w.must("PATCH", "/api/v1/nodes/box", merge, `{"metadata":{"labels":{"x":"y"}}}`)
		w.must("POST", fcPath, jsonMIME, `{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"ForeignCluster","metadata":{"name":"x"},"spec":{"authUrl":"https://10.0.0.1:6447"}}`)
		w.must("POST", advPath, jsonMIME, fmt.Sprintf(
			`{"apiVersion":"sharing.liqo.io/v1alpha1","kind":"Advertisement","metadata":{"name":%[1]q},"spec":{"clusterId":%[1]q,"timestamp":"2026-11-01T00:00:00Z","timeToLive":"2026-11-01T06:00:00Z"}}`, shed))
	})

	t.Run("restart", func(t *testing.T) {
		again, stop := w.serve()
		defer stop()
		if !reflect.DeepEqual(before, again.Webhook()) {
			t.Errorf("the configuration changed:\n%v\n%v", before, again.Webhook())
		}
		// Nothing was written, and it is asked again at once.
		if status, text := w.sendJudged(clients[barn], "PATCH", own+applied, apply, moved()); status/100 != 2 {
			t.Errorf("%d %s", status, text)
		}
		w.decide(barn, blocked)
		if status, text := w.sendJudged(clients[barn], "PATCH", own+applied, apply, moved()); status != http.StatusForbidden || !strings.Contains(text, "has blocked cluster") {
			t.Errorf("%d %s", status, text)
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
			if status, text := w.send(clients[barn], "PATCH", own+applied, apply, moved()); status/100 != 2 {
				return errors.New(text)
			}
			return nil
		})
	})

	// Whoever answers at the port without the key is not believed.
	t.Run("another program on the port", func(t *testing.T) {
		again, stop := w.serve()
		w.install(again)
		stop()
		w.dir = t.TempDir() // another key
		_, stop = w.serve()
		defer stop()
		bedtest.Within(w.t, "a refusal of its certificate", func() error {
			status, text := w.send(clients[barn], "PATCH", own+applied, apply, moved())
			if status != http.StatusInternalServerError || !strings.Contains(text, "failed calling webhook") || !strings.Contains(text, "x509") {
				return fmt.Errorf("%d %s", status, text)
			}
			return nil
		})
	})
}
