package integration

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
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
	t.Parallel()
	k := bed.New(t).AddCluster(t.Context(), "box", "10.77.0.1/24")
	server, err := admission.NewServer(admission.Config{
		Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		OwnClaims: func(_ context.Context, namespace string, names []string) bool {
			return namespace == "shop" && slices.Equal(names, []string{"ours"})
		},
		Policy: func(peer.ClusterID) admission.Policy { return admission.Policy{} },
	})
	must(t, err)
	// Its socket is the host's, where the API server is.
	must(t, k.Host.Do(func() error { return server.Listen(t.Context()) }))
	bedtest.Run(t, nil, nil, server.Run)

	log := &bedtest.Log{}
	var claims atomic.Bool
	n := vnode.New(vnode.Config{
		Settings: func() vnode.Settings { return vnode.Settings{Heartbeat: 5 * time.Second} },
		Kubelet:  func() vnode.Kubelet { return vnode.Kubelet{} },
		Changed:  func(peer.ClusterID) {},
		Names:    newNames(),
		Webhook:  server.MutatingWebhook,
		Claims:   func() (bool, bool) { return claims.Load(), true },
		Logger:   log.Logger(),
	})
	config := k.RESTConfig()
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return older{rt} })
	start := func(config *rest.Config) (stop func()) {
		return bedtest.Run(t, log, nil, func(ctx context.Context) error { return n.Run(ctx, config) })
	}
	stop := start(config)
	n.Settled()
	p := wantedProvider(providerID)
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
	bedtest.Within(t, "toleration", func() error {
		out, err := create("shop")
		if err == nil && !strings.Contains(out, "virtual-node.liqo.io/not-allowed") {
			err = errors.New(out)
		}
		return err
	})
	bedtest.Within(t, "no toleration", func() error {
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
	bedtest.Within(t, "repair", func() error {
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
	awaitGone(t, k, webhooks)
	bedtest.Within(t, "policy", func() error {
		_, err := k.Request(t.Context(), "GET", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/"+vnode.OffloadingName, "", nil)
		return err
	})
	// Of pods with claims, the agent is asked.
	claims.Store(true)
	n.Touch()
	mounts := func(claim string) (string, error) {
		text := strings.Replace(podText("shop", "db"), `"spec":{`, `"spec":{"automountServiceAccountToken":false,"volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"`+claim+`"}}],`, 1)
		out, err := k.Request(t.Context(), "POST", "/api/v1/namespaces/shop/pods?dryRun=All", jsonMIME, []byte(text))
		return string(out), err
	}
	bedtest.Within(t, "toleration of a pod with a claim", func() error {
		out, err := mounts("ours")
		if err == nil && !strings.Contains(out, "virtual-node.liqo.io/not-allowed") {
			err = errors.New(out)
		}
		return err
	})
	if out, err := mounts("theirs"); err != nil || strings.Contains(out, "virtual-node.liqo.io/not-allowed") {
		t.Errorf("a pod with another claim: %s %v", out, err)
	}
	claims.Store(false)
	n.Touch()
	awaitGone(t, k, webhooks)
}
