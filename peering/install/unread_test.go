package install

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
)

// An agent that may not read claims, any more, keeps the guest namespaces that may have some: a reset is
// no reason to delete the data of others.
func TestResetKeepsUnreadData(t *testing.T) {
	var deleted []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodDelete:
			deleted = append(deleted, r.URL.Path)
			fmt.Fprint(w, `{}`)
		case r.URL.Path == "/api/v1/namespaces":
			fmt.Fprint(w, `{"items":[{"metadata":{"name":"data","uid":"1"}},{"metadata":{"name":"none","uid":"2"}},{"metadata":{"name":"untold","uid":"3"}}]}`)
		case r.URL.Path == "/api/v1/resourcequotas":
			fmt.Fprint(w, `{"items":[{"metadata":{"name":"liqo-offer","namespace":"data"},"status":{"used":{"persistentvolumeclaims":"2"}}},
				{"metadata":{"name":"liqo-offer","namespace":"none"},"status":{"used":{"persistentvolumeclaims":"0"}}}]}`)
		case r.URL.Path == "/api/v1/persistentvolumeclaims":
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
		case slices.Contains([]string{"/api/v1/namespaces/data/pods", "/api/v1/namespaces/untold/pods"}, r.URL.Path):
			fmt.Fprint(w, `{"items":[]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		}
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "config")
	write(t, path, kubeconfigText(server.URL))
	done, err := Uninstall(t.Context(), UninstallConfig{Kubeconfig: path, Namespace: "liqo", Webhook: "liqo-agent", Offloading: "liqo-agent-offloading"})
	if err != nil || len(done.Failed) > 0 || len(done.Kept) != 2 || !slices.Equal(deleted, []string{"/api/v1/namespaces/none"}) {
		t.Errorf("%+v, deleted is %q, %v", done, deleted, err)
	}
}
