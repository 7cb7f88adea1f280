package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/volumes"
)

// liar is a provider that takes every claim and keeps none. What it answers when it is asked for one is up to the test.
type liar struct {
	mu     sync.Mutex
	status int
	body   string
	asked  int
}

func (l *liar) say(status int, body string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status, l.body, l.asked = status, body, 0
}

func (l *liar) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	status, body := http.StatusOK, boundLie
	if r.Method == http.MethodGet {
		status, body = l.status, l.body
		l.asked++
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {jsonMIME}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1, Request: r}, nil
}

func (*liar) Namespace(context.Context, string) (string, error) { return "liqo-lies", nil }

// boundLie is another claim than was asked for, with more than was asked for.
const boundLie = `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"other","namespace":"kube-system"},
	"spec":{"volumeName":"x","resources":{"requests":{"storage":"1Ei"}}},"status":{"phase":"Bound","capacity":{"storage":"1Ei"}}}`

// claimsOfALiar: a provider that says that it has the data and does not, or answers with something else, is believed
// no more than it has to be: what is here is as it was asked for, and what it denies is shown as missing.
func claimsOfALiar(s *storing) {
	t, ctx := s.t, s.t.Context()
	var mu sync.Mutex
	now := time.Now()
	log := &bedtest.Log{}
	v := volumes.New(volumes.Config{
		Self: func() peer.ClusterID { return consumerID }, Class: func() string { return "liqo" }, HomeClass: func() string { return "" },
		Changed: func(string) {}, Used: func() {}, Logger: log.Logger(),
		Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now },
	})
	l := &liar{status: http.StatusOK, body: boundLie}
	provider := s.volumes()
	provider.Remote = l
	v.Set(provider)
	bedtest.Run(t, log, nil, func(ctx context.Context) error { return v.Run(ctx, s.kubeA.RESTConfig()) })
	// later has the agent ask for its claims again, and waits until the state of the only one is as wanted.
	later := func(want volumes.State) {
		t.Helper()
		mu.Lock()
		now = now.Add(time.Hour)
		mu.Unlock()
		away := provider
		away.Reachable = false
		v.Set(away)
		v.Set(provider)
		bedtest.Within(t, "an answer of the liar", func() error {
			l.mu.Lock()
			asked := l.asked
			l.mu.Unlock()
			if list := v.List(); asked == 0 || len(list) != 1 || list[0].State != want {
				return fmt.Errorf("asked %d times, listed as %+v", asked, list)
			}
			return nil
		})
	}

	bedtest.Within(t, "the storage class", func() error { return s.a.Get(ctx, liqoClass, nil) })
	s.claim("shop", "data", "1Gi")
	s.mount("shop", "db", "data")
	claim := boundClaim(t, s.a, "shop", "data")
	var volume corev1.PersistentVolume
	s.must(s.a.Get(ctx, "/api/v1/persistentvolumes/"+claim.Spec.VolumeName, &volume))
	if got := volume.Spec.Capacity.Storage().Value(); got != gibi || volume.Spec.ClaimRef.Name != "data" || volume.Spec.ClaimRef.Namespace != "shop" {
		t.Errorf("the volume has %d bytes, for %+v", got, volume.Spec.ClaimRef)
	}
	bedtest.Within(t, "the list", func() error {
		if list := v.List(); len(list) != 1 || list[0].Storage != gibi {
			return fmt.Errorf("%+v", list)
		}
		return nil
	})

	for _, said := range []string{boundLie, strings.Replace(boundLie, `"phase":"Bound"`, `"phase":"\u001b[31mEaten"`, 1)} {
		l.say(http.StatusOK, said)
		later(volumes.StateBound)
	}
	for _, said := range []string{"[]", "{", `{"status": ` + strings.Repeat("[", 1<<20), boundLie + strings.Repeat(" ", 8<<20)} {
		l.say(http.StatusOK, said)
		later(volumes.StateBound) // nothing was learnt
	}
	l.say(http.StatusOK, strings.Replace(boundLie, `"phase":"Bound"`, `"phase":"Lost"`, 1))
	later(volumes.StateMissing)
	l.say(http.StatusOK, boundLie)
	later(volumes.StateBound)
	l.say(http.StatusNotFound, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`)
	later(volumes.StateMissing)
	bedtest.Within(t, "an event that says so", func() error {
		var events corev1.EventList
		if err := s.a.Get(ctx, namespaces+"shop/events", &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.UID == claim.UID && e.Reason == "DataMissing" {
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(events.Items))
	})

	// What it denies to have, it need not give back.
	s.end("db")
	s.must(s.a.Delete(ctx, claimsPath+"data", metav1.DeleteOptions{}))
	awaitGone(t, s.kubeA, claimsPath+"data")
	awaitGone(t, s.kubeA, volumesPath+claim.Spec.VolumeName)
}
