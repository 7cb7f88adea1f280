package install

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"liqo.io/agent/kube/conn"
)

// TestClusterIDFromAPI asks servers that say all kinds of things.
func TestClusterIDFromAPI(t *testing.T) {
	nodes := func(items ...string) string { return `{"items":[` + strings.Join(items, ",") + `]}` }
	for _, tc := range []struct {
		name            string
		configMap       string // "" = 404
		controlPlane    string
		master          string
		id, origin, err string
		is              error
	}{
		{name: "ConfigMap", configMap: `{"data":{"CLUSTER_ID":"abc"}}`, id: "abc", origin: "ConfigMap liqo/cluster-id"},
		{name: "bad ConfigMap", configMap: `{"data":{"CLUSTER_ID":"A B"}}`, err: "correct it or delete the ConfigMap"},
		{name: "oldest node", controlPlane: nodes(
			`{"metadata":{"name":"b","uid":"uid-b","creationTimestamp":"2026-01-02T00:00:00Z"}}`,
			`{"metadata":{"name":"a","uid":"uid-a","creationTimestamp":"2026-01-01T00:00:00Z"}}`,
			`{"metadata":{"name":"c","uid":"uid-c","creationTimestamp":"2026-01-03T00:00:00Z"}}`),
			id: "uid-a", origin: "UID of node a"},
		{name: "older label", master: nodes(`{"metadata":{"name":"m","uid":"uid-m"}}`), id: "uid-m", origin: "UID of node m"},
		{name: "ConfigMap without the key", configMap: `{"data":{}}`, master: nodes(`{"metadata":{"name":"m","uid":"uid-m"}}`), id: "uid-m", origin: "UID of node m"},
		{name: "nothing", err: "knows no ID", is: ErrNoClusterID},
		{name: "no JSON", configMap: `<html>`, err: "GET /api/v1/namespaces/liqo/configmaps/cluster-id"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				var text string
				switch {
				case strings.HasSuffix(r.URL.Path, "/configmaps/cluster-id"):
					text = tc.configMap
				case strings.Contains(r.URL.Query().Get("labelSelector"), "control-plane"):
					text = tc.controlPlane + strings.Repeat(`{"items":[]}`, 1-min(1, len(tc.controlPlane)))
				default:
					text = tc.master + strings.Repeat(`{"items":[]}`, 1-min(1, len(tc.master)))
				}
				if text == "" {
					w.WriteHeader(http.StatusNotFound)
					text = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
				}
				_, _ = w.Write([]byte(text))
			}))
			defer server.Close()
			path := filepath.Join(t.TempDir(), "config")
			write(t, path, kubeconfigText(server.URL))
			id, origin, err := ClusterIDFromAPI(t.Context(), path, "liqo")
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || tc.is != nil && !errors.Is(err, tc.is) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil || string(id) != tc.id || origin != tc.origin {
				t.Errorf("got %s, %s, %v", id, origin, err)
			}
		})
	}
	if _, _, err := ClusterIDFromAPI(t.Context(), conn.KubeconfigNone, "liqo"); !errors.Is(err, conn.ErrSwitchedOff) {
		t.Errorf("switched off: %v", err)
	}
}

func kubeconfigText(server string) string {
	return `apiVersion: v1
kind: Config
clusters: [{name: d, cluster: {server: "` + server + `"}}]
users: [{name: d, user: {token: t}}]
contexts: [{name: d, context: {cluster: d, user: d}}]
current-context: d
`
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
