package integration

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peer"
)

func TestMain(m *testing.M) {
	conn.BridgeKlog(slog.New(slog.DiscardHandler))
	bed.Main(m)
}

const (
	providerID = peer.ClusterID("0558de48-097b-4b7d-ba04-6bd2a0f9d24f")
	consumerID = peer.ClusterID("11111111-1111-4111-8111-111111111111")

	jsonMIME  = "application/json"
	merge     = "application/merge-patch+json"
	strategic = "application/strategic-merge-patch+json"
)

type object = map[string]any

// pick returns the field of an object at a path of names.
func pick(o any, names ...string) any {
	for _, name := range names {
		m, _ := o.(object)
		o = m[name]
	}
	return o
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// admin returns a client of the API server that may do everything.
func admin(t *testing.T, k *bed.Kube) *kube.Client {
	t.Helper()
	return newClient(t, k.RESTConfig())
}

func newClient(t *testing.T, config *rest.Config) *kube.Client {
	t.Helper()
	config.Timeout = bedtest.RequestTimeout
	c, err := kube.New(config)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

// request sends a request as administrator, which must succeed, and returns the answer.
func request(t *testing.T, k *bed.Kube, method, path, contentType, body string) string {
	t.Helper()
	out, err := k.Request(t.Context(), method, path, contentType, []byte(body))
	must(t, err)
	return string(out)
}

// get reads what is at a path.
func get[T any](t *testing.T, k *bed.Kube, path string) (T, error) {
	t.Helper()
	var into T
	text, err := k.Request(t.Context(), http.MethodGet, path, "", nil)
	if err == nil {
		err = json.Unmarshal(text, &into)
	}
	return into, err
}

// gone returns nil when there is nothing at a path.
func gone(t *testing.T, k *bed.Kube, path string) error {
	t.Helper()
	text, err := k.Request(t.Context(), http.MethodGet, path, "", nil)
	switch {
	case err == nil:
		return fmt.Errorf("%s is still there: %.2000s", path, text)
	case !strings.Contains(err.Error(), ": 404 "):
		return err
	}
	return nil
}

// awaitGone waits until there is nothing at a path.
func awaitGone(t *testing.T, k *bed.Kube, path string) {
	t.Helper()
	bedtest.Within(t, path+" to be gone", func() error { return gone(t, k, path) })
}
