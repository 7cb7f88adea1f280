package integration

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/admission"
	"liqo.io/agent/sharing/vnode"
)

// older is an API server that has no MutatingAdmissionPolicies.
type older struct{ http.RoundTripper }

func (o older) RoundTrip(r *http.Request) (*http.Response, error) {
	path, group := strings.CutPrefix(r.URL.Path, "/apis/admissionregistration.k8s.io/")
	answer := ""
	switch {
	case group && path == "v1":
		answer = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"admissionregistration.k8s.io/v1","resources":[{"name":"mutatingwebhookconfigurations"}]}`
	case group && strings.Contains(path, "mutatingadmissionpolic"):
		return nil, errors.New("an older API server is asked for policies")
	}
	if answer == "" {
		return o.RoundTripper.RoundTrip(r)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
}

// TestWebhook: without policies, the webhook does the same, and its configuration
// goes when the API server has them.
func TestWebhook(t *testing.T) {
	k := bed.New(t).AddCluster(t.Context(), "box", "10.77.0.1/24")
	h := k.Host
	server, err := admission.NewServer(admission.Config{
		Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		Standing: func(peer.ClusterID) admission.Standing { return admission.Standing{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	// Its socket is the host's, where the API server is.
	if err := h.Do(func() error { return server.Listen(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	n := vnode.New(vnode.Config{
		Settings: func() vnode.Settings { return vnode.Settings{Heartbeat: 5 * time.Second} },
		Kubelet:  func() vnode.Kubelet { return vnode.Kubelet{} },
		Changed:  func(peer.ClusterID) {},
		Webhook:  server.MutatingWebhook,
		Logger:   slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	config := k.RESTConfig()
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return older{rt} })
	start := func(config *rest.Config) (stop func()) {
		running, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(running, config) }()
		stop = sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(stop)
		return stop
	}
	stop := start(config)
	n.Settled()
	p := provider(barnID)
	n.Set(p)

	for _, namespace := range []string{`{"name":"shop","labels":{"liqo.io/enabled":"true"}}`, `{"name":"plain"}`} {
		request(t, k, "POST", "/api/v1/namespaces", jsonMIME, `{"apiVersion":"v1","kind":"Namespace","metadata":`+namespace+`}`)
	}
	create := func(namespace string) (string, error) {
		// Without a controller manager there is no service account to name.
		text := strings.Replace(podText(namespace, "web"), `"spec":{`, `"spec":{"automountServiceAccountToken":false,"serviceAccountName":"default",`, 1)
		out, err := k.Request(t.Context(), "POST", "/api/v1/namespaces/"+namespace+"/pods?dryRun=All", jsonMIME, []byte(text))
		return string(out), err
	}
	for _, namespace := range []string{"shop", "plain"} {
		request(t, k, "POST", "/api/v1/namespaces/"+namespace+"/serviceaccounts", jsonMIME, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`)
	}
	within(t, 15*time.Second, "toleration", func() error {
		out, err := create("shop")
		if err == nil && !strings.Contains(out, "virtual-node.liqo.io/not-allowed") {
			err = errors.New(out)
		}
		return err
	})
	within(t, 15*time.Second, "no toleration", func() error {
		out, err := create("plain")
		if err == nil && strings.Contains(out, "virtual-node.liqo.io/not-allowed") {
			t.Error(out)
		}
		return err
	})
	const webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/" + vnode.OffloadingName
	version := func() string { return request(t, k, "GET", webhooks, "", "") }
	before := version()
	n.Touch()
	request(t, k, "PATCH", webhooks, merge, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}},"webhooks":[]}`)
	within(t, 10*time.Second, "repair", func() error {
		if text := version(); !strings.Contains(text, "pods.sharing.liqo.io") || !strings.Contains(text, `"app.kubernetes.io/managed-by":"liqo-agent"`) {
			return errors.New(text)
		}
		return nil
	})
	if before == version() {
		t.Error("it was not changed at all")
	}
	// The API server is upgraded.
	stop()
	start(k.RESTConfig())
	within(t, 10*time.Second, "no webhook", func() error { return gone(t, k, webhooks) })
	within(t, 10*time.Second, "policy", func() error {
		_, err := k.Request(t.Context(), "GET", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/"+vnode.OffloadingName, "", nil)
		return err
	})
}
