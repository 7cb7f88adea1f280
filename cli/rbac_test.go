package cli_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
	"liqo.io/agent/rbac"
)

// fakeAPI is an API server that keeps what is applied, allows everything, and fills in
// the token of a Secret.
type fakeAPI struct {
	mu      sync.Mutex
	objects map[string]map[string]any
	texts   map[string]string
	version int
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(v); err != nil {
			panic(err)
		}
	}
	path := r.URL.Path
	if r.Method == http.MethodPost {
		answer(http.StatusCreated, map[string]any{"status": map[string]any{"allowed": true}})
		return
	}
	if r.Method == http.MethodPatch {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		if f.texts[path] != string(text) {
			var object map[string]any
			if err := json.Unmarshal(text, &object); err != nil {
				panic(err)
			}
			f.version++
			object["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(f.version)
			if object["kind"] == "Secret" {
				b64 := base64.RawURLEncoding.EncodeToString
				token := b64([]byte("{}")) + "." + b64([]byte(`{"sub":"`+rbac.ServiceAccount("liqo")+`"}`)) + ".c2ln"
				object["data"] = map[string]any{"token": []byte(token)}
			}
			f.objects[path], f.texts[path] = object, string(text)
		}
	}
	if r.Method == http.MethodGet && strings.HasSuffix(path, "/serviceaccounts") {
		answer(http.StatusOK, map[string]any{"items": []any{}})
		return
	}
	object, found := f.objects[path]
	if !found {
		answer(http.StatusNotFound, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})
		return
	}
	if r.Method == http.MethodDelete {
		delete(f.objects, path)
		delete(f.texts, path)
	}
	answer(http.StatusOK, object)
}

func TestRBAC(t *testing.T) {
	w := clitest.NoAgent(t, cli.New)
	api := httptest.NewServer(&fakeAPI{objects: make(map[string]map[string]any), texts: make(map[string]string)})
	t.Cleanup(api.Close)
	at := func(name string) string { return filepath.Join(w.Dir, name) }
	for name, text := range map[string]string{
		"admin.yaml": `{apiVersion: v1, kind: Config, current-context: d, clusters: [{name: d, cluster: {server: "` + api.URL +
			`"}}], users: [{name: d, user: {token: t}}], contexts: [{name: d, context: {cluster: d, user: d}}]}`,
		"mine":       "mine",
		"agent.toml": "[cluster]\nnamespace = \"edge\"\n",
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := []string{"--kubeconfig", at("admin.yaml"), "--out", at("kubeconfig")}
	for _, tc := range []struct {
		name string
		args []string
		code int
	}{
		{"rbac-both", []string{"--apply", "--delete"}, command.ExitUsage},
		{"rbac-out-alone", []string{"--out", at("kubeconfig")}, command.ExitUsage},
		{"rbac-no-terminal", []string{"--delete"}, command.ExitUsage},
		{"rbac-bad-namespace", []string{"--namespace", "Liqo"}, command.ExitError},
		{"rbac-no-admin", []string{"--apply", "--kubeconfig", at("absent")}, command.ExitError},
		{"rbac-foreign", append([]string{"--apply"}, "--kubeconfig", at("admin.yaml"), "--out", at("mine")), command.ExitError},
		{"rbac-apply", append([]string{"--apply"}, out...), command.ExitOK},
		{"rbac-apply-again", append([]string{"--apply", "-o", "json"}, out...), command.ExitOK},
		{"rbac-delete", append([]string{"--delete", "--yes"}, out...), command.ExitOK},
		{"rbac-delete-again", append([]string{"--delete", "--yes", "-o", "yaml"}, out...), command.ExitOK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := w.Run(t.Context(), append([]string{"rbac"}, tc.args...)...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			clitest.Golden(t, tc.name, "$ liqo-agent rbac "+w.Place(strings.Join(tc.args, " "))+"\n"+stdout+"--- stderr\n"+stderr)
		})
	}

	// Printed is what package rbac makes, in the namespace of the agent.
	for _, tc := range []struct {
		args []string
		make func(string, bool) ([]byte, error)
		in   string
		liqo bool
	}{
		{nil, rbac.Manifest, "liqo", false},
		{[]string{"-o", "yaml"}, rbac.Manifest, "liqo", false},
		{[]string{"-o", "json", "--namespace", "farm"}, rbac.ManifestJSON, "farm", false},
		{[]string{"--config", at("agent.toml")}, rbac.Manifest, "edge", false},
		{[]string{"--engine", "liqo"}, rbac.Manifest, "liqo", true},
	} {
		want, err := tc.make(tc.in, tc.liqo)
		if err != nil {
			t.Fatal(err)
		}
		if stdout, stderr, code := w.Run(t.Context(), append([]string{"rbac"}, tc.args...)...); stdout != string(want) || code != command.ExitOK {
			t.Errorf("%q: exit code %d, %s%s", tc.args, code, stderr, stdout)
		}
	}
}
