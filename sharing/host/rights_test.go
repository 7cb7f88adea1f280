package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/cache"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/sharing/spec"
)

// TestRightsCount: a namespace is given out when the API server goes by all rights that the consumer has there, not when it
// has stored them. That is asked again when they are others, and not waited for when somebody has to repair them first.
func TestRightsCount(t *testing.T) {
	settings := Settings{PodSecurity: "baseline", MaxNamespaces: 1}
	offer := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")}
	for _, test := range []struct {
		name      string
		refused   map[string]int        // how often it says that the consumer may not do something yet
		answer    int                   // of the API server, to any question
		then      func(*session, *Host) // at the first question
		want      []string              // what is asked
		within    time.Duration         // the deadline of whoever waits
		uncounted bool                  // the quota
		ready     bool
		reason    string // else
	}{
		{name: "at once", want: []string{"pods", "services"}, ready: true},
		{name: "soon", refused: map[string]int{"pods": 2, "services": 1}, want: []string{"pods", "pods", "pods", "services", "pods", "services"}, ready: true},
		{name: "never", refused: map[string]int{"services": 1000}, reason: ReasonNotReady},
		{name: "not within the deadline", refused: map[string]int{"services": 1000}, within: showTimeout / 2, reason: ReasonNotReady},
		{name: "the quota is not counted within it", uncounted: true, within: showTimeout / 2, reason: ReasonNotReady},
		{name: "the agent's own rights are too old to ask", answer: http.StatusForbidden, want: []string{"pods"}, ready: true},
		{name: "the API server fails", answer: http.StatusInternalServerError, want: []string{"pods"}},
		{name: "somebody takes the Role away", refused: map[string]int{"pods": 1}, then: func(s *session, _ *Host) { s.roles.Deleted("ns", RoleName, "r") },
			want: []string{"pods"}, reason: ReasonNotReady},
		{name: "the consumer is admitted no more", refused: map[string]int{"pods": 1}, then: func(_ *session, h *Host) { h.Set(spec.Tenant{ID: barn}) },
			want: []string{"pods"}, reason: ReasonNotAdmitted},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var s *session
				var h *Host
				var asked []string
				server := kubetest.New(func(r *http.Request, body string) (int, string) {
					if r.URL.Path == namespacesPath+"ns/serviceaccounts/default" {
						return http.StatusOK, `{}`
					}
					var review authorizationv1.SubjectAccessReview
					if err := json.Unmarshal([]byte(body), &review); err != nil || !strings.HasSuffix(r.URL.Path, "/subjectaccessreviews") {
						t.Errorf("sent is %s %s %q", r.Method, r.URL.Path, body)
						return http.StatusOK, `{}`
					}
					what := review.Spec.ResourceAttributes
					if who := review.Spec; who.User != users().Name(string(barn)) || !slices.Contains(who.Groups, api.PeerGroup) || what.Namespace != "ns" || what.Verb != "create" {
						t.Errorf("asked is %+v", who)
					}
					asked = append(asked, what.Resource)
					if test.then != nil && len(asked) == 1 {
						test.then(s, h)
					}
					if test.answer != 0 {
						return kubetest.Failure(test.answer, "")
					}
					review.Status.Allowed = test.refused[what.Resource] == 0
					if !review.Status.Allowed {
						test.refused[what.Resource]--
					}
					text, _ := json.Marshal(review)
					return http.StatusOK, string(text)
				})
				h = New(configOf(func() Settings { return settings }))
				h.Set(spec.Tenant{ID: barn, Admitted: true})
				s = newSession(h, server.Client(t))
				h.adopt(s)
				for _, empty := range []cache.ReflectorStore{s.policies.Told(), s.services.Told(), s.slices.Told()} {
					if err := empty.Replace(nil, "1"); err != nil {
						t.Fatal(err)
					}
				}
				guest := namespaceFor("ns", barn, "shop", settings)
				guest.UID, guest.ResourceVersion = "n", "2"
				s.namespaces.Wrote(guest)
				quota := quotaFor(guest, barn, "shop", offer, settings, true, false)
				if quota.ResourceVersion = "2"; !test.uncounted {
					quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, quota.Spec.Hard
				}
				s.quotas.Wrote(quota)
				policy := policyFor("ns", barn, nil, true, settings)
				policy.ResourceVersion = "2"
				s.policies.Wrote(policy)
				write := func(version string) {
					role := roleFor("ns", barn, grants{services: true})
					role.UID, role.ResourceVersion = "r", version
					s.roles.Wrote(role)
				}
				write("2")
				binding := bindingFor("ns", barn, users().Names(string(barn)))
				binding.ResourceVersion = "2"
				s.bindings.Wrote(binding)
				h.mu.Lock()
				st := h.tenants[barn].standing(s, settings)
				h.mu.Unlock()
				st.offer = offer

				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(test.within, time.Hour))
				defer cancel()
				err := s.complete(ctx, st, guest)
				var no *Refused
				switch is := errors.As(err, &no); {
				case test.ready && err != nil, !test.ready && err == nil, is != (test.reason != ""), is && no.Reason != test.reason:
					t.Errorf("it ended with %v", err)
				}
				if test.want != nil && !slices.Equal(asked, test.want) {
					t.Errorf("asked is %q, want %q", asked, test.want)
				}
				if !test.ready {
					return
				}
				for _, version := range []string{"2", "3", "3"} {
					before := s.rights("ns")
					write(version)
					asked = nil
					if err := s.complete(t.Context(), st, guest); err != nil || (asked == nil) != (s.rights("ns") == before) {
						t.Errorf("with Role %s it asks %q (%v)", version, asked, err)
					}
				}
			})
		})
	}
}
