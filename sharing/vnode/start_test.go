package vnode

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
)

// TestStartKeepsTheWebhook: the webhook for pods with claims goes when it is known that there are none for virtual nodes, and
// not while that is not known yet.
func TestStartKeepsTheWebhook(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake()
		webhook := admissionPath + "v1/" + pluralWebhooks + "/" + OffloadingName
		labels := map[string]any{api.LabelManagedBy: api.ManagedByAgent}
		f.with(func() {
			f.create(webhook, map[string]any{"metadata": map[string]any{"name": OffloadingName, "labels": labels}, "webhooks": []any{map[string]any{"name": "pods"}}})
		})
		var mu sync.Mutex
		var may, known bool
		n := New(Config{
			Settings: func() Settings { return Settings{Heartbeat: heartbeat, DrainTimeout: drainTimeout} }, Kubelet: func() Kubelet { return Kubelet{} },
			Names: f, Changed: func(peer.ClusterID) {}, Logger: slog.New(slog.DiscardHandler), Now: f.now,
			Webhook: func(bool) map[string]any {
				return map[string]any{"kind": "MutatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1",
					"metadata": map[string]any{"name": OffloadingName, "labels": labels}, "webhooks": []any{map[string]any{"name": "pods"}}}
			},
			Claims: func() (bool, bool) {
				mu.Lock()
				defer mu.Unlock()
				return may, known
			},
		})
		n.Set(testProvider(barn))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx, f.config()) }()
		for _, step := range []struct {
			what              string
			may, known, there bool
		}{{"nothing is known", false, false, true}, {"there are no claims", false, true, false}, {"there are some", true, true, true}} {
			mu.Lock()
			may, known = step.may, step.known
			mu.Unlock()
			n.Touch()
			wait(time.Minute)
			f.with(func() {
				if there := f.objects[webhook] != nil; there != step.there {
					t.Errorf("%s: the webhook is there: %v", step.what, there)
				}
			})
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
