package volumes

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/internal/kubetest"
)

// A claim that was deleted while its provider was away ends once there is no such provider.
func TestForgottenProviderHoldsNoClaim(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		claim, _ := grown("2Gi")
		claim.Spec.VolumeName, claim.Status.Phase = "", corev1.ClaimPending
		claim.Annotations = map[string]string{annotationProvider: string(providerThere)}
		claim.Finalizers = []string{Finalizer}
		deleted := metav1.NewTime(time.Now())
		claim.DeletionTimestamp = &deleted
		c := &cluster{version: 10, claims: map[string]*corev1.PersistentVolumeClaim{"data": claim}, now: time.Now(), kill: -1}
		s := c.agent(t)
		s.v.attach(s)
		s.v.Settled()
		away := disk{kubetest.New(func(*http.Request, string) (int, string) { return http.StatusBadGateway, "" })}
		s.v.Set(Provider{ID: providerThere, Remote: away, Reachable: false})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.queue.Run(ctx, workers, s.process); close(done) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Contains(c.claims["data"].Finalizers, Finalizer) {
			t.Fatal("the claim ended while its provider was away")
		}
		// It is given up: first its node goes, then what is known of it (agent/sharing.Provide).
		n := s.nodes.Get("", "virtual").DeepCopyObject().(*node)
		n.ResourceVersion = "2"
		if err := s.nodes.Told().Delete(n); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		s.v.Remove(providerThere)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if slices.Contains(c.claims["data"].Finalizers, Finalizer) {
			t.Error("a day later the claim is still held for a provider that does not exist")
		}
		cancel()
		<-done
	})
}

// parting is a provider that answers everything about guest namespaces with 403, as one that does not admit this cluster (any
// more, or yet again), and keeps its data.
type parting struct {
	*kubetest.Server
	err error
}

func (p parting) Namespace(context.Context, string) (string, error) { return "liqo-shop", p.err }

// A provider that does not admit this cluster keeps its data for days, and it is not said that it is gone.
func TestKeptDataIsNotMissing(t *testing.T) {
	claim, volume := grown("2Gi")
	c := &cluster{version: 10, volumes: map[string]*corev1.PersistentVolume{volume.Name: volume}, claims: map[string]*corev1.PersistentVolumeClaim{"data": claim}, now: time.Now(), kill: -1}
	local := kubetest.New(c.answer)
	s := c.agent(t)
	s.client = local.Client(t)
	s.v.session = s
	refuses := kubetest.New(func(*http.Request, string) (int, string) {
		return kubetest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden)
	})
	s.v.Set(Provider{ID: providerThere, Remote: &parting{refuses, errors.New("this cluster does not let you run pods (any more)")}, Reachable: true})
	_, err := s.reconcileVolume(t.Context(), volume.Name)
	for _, sent := range local.Take() {
		if strings.Contains(sent, reasonDataMissing) {
			t.Errorf("told although the data is kept: %s", sent)
		}
	}
	if shown := s.v.List(); len(shown) != 1 || shown[0].State == StateMissing {
		t.Errorf("it shows %+v (%v)", shown, err)
	}
	// It admits this cluster again.
	there := disk{kubetest.New(func(*http.Request, string) (int, string) { return http.StatusOK, `{"status":{"phase":"Bound"}}` })}
	s.v.Set(Provider{ID: providerThere, Remote: there, Reachable: true})
	if _, err := s.reconcileVolume(t.Context(), volume.Name); err != nil {
		t.Fatal(err)
	}
	if shown := s.v.List(); len(shown) != 1 || shown[0].State != StateBound {
		t.Errorf("when the two are joined again, it shows %+v", shown)
	}
	// A namespace that was removed, and made anew, has no claim.
	gone := false
	none := disk{kubetest.New(func(*http.Request, string) (int, string) {
		if !gone {
			gone = true
			return kubetest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden)
		}
		return kubetest.Failure(http.StatusNotFound, metav1.StatusReasonNotFound)
	})}
	c.now = c.now.Add(checkEvery)
	s.v.Set(Provider{ID: providerThere, Remote: none, Reachable: true})
	if _, err := s.reconcileVolume(t.Context(), volume.Name); err != nil {
		t.Fatal(err)
	}
	if shown := s.v.List(); len(shown) != 1 || shown[0].State != StateMissing {
		t.Errorf("without the data, it shows %+v", shown)
	}
}
