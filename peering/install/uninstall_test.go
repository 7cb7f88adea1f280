package install

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/attack"
)

// TestResetKeepsData: a guest namespace with claims stays, without pods.
func TestResetKeepsData(t *testing.T) {
	const guest = "/api/v1/namespaces/liqo-barn-shop"
	var deleted []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		item := func(name string) {
			fmt.Fprintf(w, `{"items":[{"metadata":{"name":%q,"namespace":"liqo-barn-shop","uid":"u"}}]}`, name)
		}
		switch {
		case r.Method == http.MethodDelete:
			deleted = append(deleted, r.URL.Path)
			fmt.Fprint(w, `{}`)
		case r.URL.Path == "/api/v1/namespaces":
			item("liqo-barn-shop")
		case r.URL.Path == "/api/v1/resourcequotas":
			fmt.Fprint(w, `{"items":[]}`)
		case r.URL.Path == "/api/v1/persistentvolumeclaims":
			item("data")
		case r.URL.Path == guest+"/pods":
			item("db")
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		}
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "config")
	write(t, path, kubeconfigText(server.URL))
	cfg := UninstallConfig{Kubeconfig: path, Namespace: "liqo", Webhook: "liqo-agent", Offloading: "liqo-agent-offloading"}
	if plan, err := Inventory(t.Context(), cfg); err != nil || len(deleted) > 0 || len(plan.Kept) != 1 {
		t.Errorf("the plan is %+v, deleted is %q, %v", plan, deleted, err)
	}
	if done, err := Uninstall(t.Context(), cfg); err != nil || len(done.Failed) > 0 || !slices.Equal(deleted, []string{guest + "/pods/db"}) {
		t.Errorf("%+v, deleted is %q, %v", done, deleted, err)
	}
}

// A guest namespace that has lost its labels is the agent's all the same: the quota in
// it says so.
func TestAttackResetWithoutLabels(t *testing.T) {
	const guest = "/api/v1/namespaces/liqo-barn-shop"
	var deleted []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		ours := strings.HasPrefix(r.URL.Query().Get("labelSelector"), api.OwnObjects)
		switch {
		case r.Method == http.MethodDelete:
			deleted = append(deleted, r.URL.Path)
			fmt.Fprint(w, `{}`)
		case r.URL.Path == guest:
			fmt.Fprint(w, `{"metadata":{"name":"liqo-barn-shop","uid":"u"}}`)
		case r.URL.Path == "/api/v1/resourcequotas" && ours:
			fmt.Fprint(w, `{"items":[{"metadata":{"name":"liqo-offer","namespace":"liqo-barn-shop"}},{"metadata":{"name":"liqo-offer","namespace":"gone"}}]}`)
		case r.URL.Path == "/api/v1/namespaces":
			fmt.Fprint(w, `{"items":[]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		}
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "config")
	write(t, path, kubeconfigText(server.URL))
	cfg := UninstallConfig{Kubeconfig: path, Namespace: "liqo", Webhook: "liqo-agent", Offloading: "liqo-agent-offloading"}
	plan, err := Inventory(t.Context(), cfg)
	if err != nil || len(deleted) > 0 || !slices.Equal(plan.Deleted, []string{"Namespace liqo-barn-shop"}) {
		t.Errorf("the plan is %+v, deleted is %q, %v", plan, deleted, err)
	}
	done, err := Uninstall(t.Context(), cfg)
	if err != nil || len(done.Failed) > 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	got := "it is deleted"
	if !slices.Equal(deleted, []string{guest}) {
		got = fmt.Sprintf("deleted is %q", deleted)
	}
	attack.Attempt{What: "take the labels from a guest namespace, and reset", As: "careless operator", Want: "it is deleted"}.Saw(t, got)
}
