package install

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/kubetest"
)

func TestCovers(t *testing.T) {
	parse := func(text string) (v map[string]any) {
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	const wanted = `{spec: {scope: Cluster, versions: [{name: v1, schema: {properties: {a: {type: string}}}}]}}`
	for _, tc := range []struct {
		found string
		want  bool
	}{
		{wanted, true},
		{`{metadata: {uid: x}, status: {}, spec: {scope: Cluster, conversion: {}, versions: [{name: v1, schema: {properties: {a: {type: string}}}}]}}`, true},
		{`{spec: {scope: Namespaced, versions: [{name: v1, schema: {properties: {a: {type: string}}}}]}}`, false},
		{`{spec: {scope: Cluster, versions: [{name: v1, schema: {properties: {a: {type: string}, b: {type: string}}}}]}}`, false},
		{`{spec: {scope: Cluster, versions: []}}`, false},
		{`{}`, false},
	} {
		if got := Covers(parse(tc.found), parse(wanted)); got != tc.want {
			t.Errorf("Covers(%s) = %v", tc.found, got)
		}
	}
}

func TestEstablished(t *testing.T) {
	for _, tc := range []struct {
		status string
		want   bool
		err    string
	}{
		{`{}`, false, ""},
		{`{"conditions":[{"type":"Established","status":"False"}]}`, false, ""},
		{`{"conditions":[{"type":"NamesAccepted","status":"True"},{"type":"Established","status":"True"}]}`, true, ""},
		{`{"conditions":[{"type":"NamesAccepted","status":"False","message":"adv is taken"}]}`, false, "does not serve Advertisement of group sharing.liqo.io because another custom resource uses its names: adv is taken"},
	} {
		var status map[string]any
		if err := json.Unmarshal([]byte(tc.status), &status); err != nil {
			t.Fatal(err)
		}
		got, err := Established(map[string]any{
			"spec": map[string]any{"group": "sharing.liqo.io", "names": map[string]any{"kind": "Advertisement"}}, "status": status,
		})
		if got != tc.want || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("Established(%s) = %v, %v", tc.status, got, err)
		}
	}
}

func TestShows(t *testing.T) {
	const wanted = `{webhooks: [{name: a, clientConfig: {url: x}, rules: [{operations: [CREATE, UPDATE]}]}]}`
	for _, tc := range []struct {
		found string
		want  bool
	}{
		{wanted, true},
		{`{metadata: {uid: x}, webhooks: [{name: a, clientConfig: {url: x}, timeoutSeconds: 10, rules: [{operations: [CREATE, UPDATE], scope: "*"}]}]}`, true},
		{`{webhooks: [{name: b}, {name: a, clientConfig: {url: x}, rules: [{operations: [CREATE, UPDATE]}]}]}`, true},
		{`{webhooks: [{name: a, clientConfig: {url: y}, rules: [{operations: [CREATE, UPDATE]}]}]}`, false},
		{`{webhooks: [{name: a, clientConfig: {url: x}, rules: [{operations: [CREATE]}]}]}`, false},
		{`{webhooks: [{name: a, clientConfig: {url: x}, rules: [{operations: [CREATE, UPDATE]}, {operations: [DELETE]}]}]}`, false},
		{`{webhooks: [{name: b, clientConfig: {url: x}, rules: [{operations: [CREATE, UPDATE]}]}]}`, false},
		{`{webhooks: []}`, false},
		{`{webhooks: 7}`, false},
		{`{}`, false},
	} {
		var f, w map[string]any
		if err := errors.Join(yaml.Unmarshal([]byte(tc.found), &f), yaml.Unmarshal([]byte(wanted), &w)); err != nil {
			t.Fatal(err)
		}
		if got := shows(f, w); got != tc.want {
			t.Errorf("shows(%s) = %v", tc.found, got)
		}
	}
}

func TestEnsureWebhook(t *testing.T) {
	manifest := map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
		"metadata": map[string]any{"name": "liqo-agent", "labels": map[string]string{api.LabelManagedBy: api.ManagedByAgent}},
		"webhooks": []map[string]any{{"name": "a", "timeoutSeconds": 5}}, // not as JSON decodes it
	}
	const path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/liqo-agent"
	for _, tc := range []struct {
		name, found string
		sent        string // the second request, or its beginning; "" for none
	}{
		{"missing", "", "PATCH " + path + "?fieldManager=liqo-agent-webhook&force=true {"},
		{"there", `{"metadata":{"name":"liqo-agent","uid":"u","labels":{"app.kubernetes.io/managed-by":"liqo-agent"}},"apiVersion":"admissionregistration.k8s.io/v1",
			"kind":"ValidatingWebhookConfiguration","webhooks":[{"name":"a","timeoutSeconds":5,"matchPolicy":"Equivalent"}]}`, ""},
		{"edited", `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"liqo-agent"}},"webhooks":[{"name":"a","timeoutSeconds":9}]}`,
			"PATCH " + path + "?fieldManager=liqo-agent-webhook&force=true {"},
		{"somebody else's", `{"webhooks":[]}`, "PATCH " + path + "?fieldManager=liqo-agent-webhook {"},
	} {
		fake := kubetest.New(func(r *http.Request, _ string) (int, string) {
			if r.Method == http.MethodGet && tc.found == "" {
				return kubetest.Failure(http.StatusNotFound, metav1.StatusReasonNotFound)
			}
			return http.StatusOK, tc.found
		})
		if err := ensureWebhook(t.Context(), fake.Client(t), manifest); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		sent := fake.Take()
		if sent[0] != "GET "+path+" " || tc.sent == "" && len(sent) > 1 || tc.sent != "" && (len(sent) != 2 || !strings.HasPrefix(sent[1], tc.sent)) {
			t.Errorf("%s: sent %q", tc.name, sent)
		}
	}
}

// TestCRDs: what is as it is to be is not compared again before it changes.
func TestCRDs(t *testing.T) {
	stored := make(map[string]map[string]any) // by path
	version := 0
	store := func(path string, object map[string]any) {
		version++
		object["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(version)
		object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
		stored[path] = object
	}
	fake := kubetest.New(func(r *http.Request, body string) (int, string) {
		if r.Method == http.MethodPatch {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(body), &object); err != nil {
				t.Error(err)
			}
			store(r.URL.Path, object)
		}
		object, ok := stored[r.URL.Path]
		if !ok {
			return kubetest.Failure(http.StatusNotFound, metav1.StatusReasonNotFound)
		}
		text, err := json.Marshal(object)
		if err != nil {
			t.Error(err)
		}
		return http.StatusOK, string(text)
	})
	k := NewKeeper(Config{}, nil, fake.Client(t))
	look := func(gets, patches int) {
		t.Helper()
		if err := k.CRDs(t.Context()); err != nil {
			t.Fatal(err)
		}
		sent := strings.Join(fake.Take(), "\n")
		if g, p := strings.Count(sent, "GET "), strings.Count(sent, "PATCH "); g != gets || p != patches {
			t.Errorf("%d GET, %d PATCH; want %d, %d", g, p, gets, patches)
		}
	}
	all := len(api.CRDs())
	look(2*all, all)
	look(all, 0) // compared once more: somebody may have changed it since
	look(all, 0)
	path := CRDPath + "/" + api.CRDs()[0].Name
	if k.settled[0] != resourceVersionOf(stored[path]) {
		t.Errorf("settled at %q", k.settled[0])
	}
	edited := stored[path]
	edited["spec"].(map[string]any)["scope"] = "Elsewhere"
	store(path, edited)
	look(all+1, 1)
	look(all, 0)
	delete(stored, path)
	look(all+1, 1)
}

func resourceVersionOf(object map[string]any) string {
	return object["metadata"].(map[string]any)["resourceVersion"].(string)
}

// TestManifestsParse makes sure that no manifest is left out for being broken.
func TestManifestsParse(t *testing.T) {
	for _, m := range api.CRDs() {
		var v map[string]any
		if err := yaml.Unmarshal(m.YAML, &v); err != nil || !managedByAgent(v) {
			t.Errorf("%s: %v, managed by agent %v", m.Name, err, managedByAgent(v))
		}
	}
}
