package host

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/sharing/spec"
)

// TestTerminatingNamespace: the quota of a namespace that somebody deletes may be seen to go before the namespace is. That it
// cannot be made again is no trouble, and the consumer is told that the namespace is being deleted.
func TestTerminatingNamespace(t *testing.T) {
	for _, test := range []struct {
		name, details string
		leaving       bool
	}{
		{"being deleted", `{"causes":[{"reason":"NamespaceTerminating","message":"namespace ns is being terminated","field":"metadata.namespace"}]}`, true},
		{"forbidden", `{}`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			settings := Settings{PodSecurity: "baseline"}
			api := kubetest.New(func(*http.Request, string) (int, string) {
				return http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"details":` + test.details + `}`
			})
			h := New(configOf(func() Settings { return settings }))
			h.Set(spec.Tenant{ID: barn, Admitted: true})
			s := newSession(h, api.Client(t))
			guest := namespaceFor("ns", barn, "shop", settings)
			guest.UID, guest.ResourceVersion = "n", "1"
			s.namespaces.Wrote(guest)
			st := standing{session: s, tenant: h.tenants[barn], settings: settings, offer: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")}}

			if _, err := s.reconcileTenant(t.Context(), st); (err == nil) != test.leaving {
				t.Errorf("the consumer cannot be reconciled: %v", err)
			}
			if sent := api.Take(); len(sent) != 1 || !strings.Contains(sent[0], "/resourcequotas/") {
				t.Errorf("sent was %q, want the quota", sent)
			}
			s.forgetRepair(quotaPath("ns"))
			err := s.complete(t.Context(), st, guest)
			var no *Refused
			if refused := errors.As(err, &no) && no.Reason == ReasonTerminating; refused != test.leaving || !refused && !apierrors.IsForbidden(err) {
				t.Errorf("the consumer is told %v", err)
			}
		})
	}
}
