package peering

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/objects"
	"liqo.io/agent/peering/reason"
)

// guide is a URLProber that notes what it is asked.
type guide struct {
	mu    sync.Mutex
	calls []string
	found map[string]discovered.Result
}

func (g *guide) Probe(object, url string, id peer.ClusterID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, strings.TrimSpace(fmt.Sprint("look ", object, " ", url, " ", id)))
}

func (g *guide) Stop(object string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, "leave "+object)
}

func (g *guide) Result(object string) (discovered.Result, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	found, known := g.found[object]
	return found, known
}

func (g *guide) take() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls := g.calls
	g.calls = nil
	return calls
}

// guided returns a session that asks a guide, and a clock to be moved.
func guided(t *testing.T, answer func(r *http.Request, body string) (int, string)) (*Controller, *session, *server, *guide, *time.Time) {
	t.Helper()
	c, s, fake := connected(t, &diary{}, answer)
	c.remote = &outbox{}
	g, now := &guide{found: map[string]discovered.Result{}}, t0
	c.cfg.Now = func() time.Time { return now }
	c.urls = newURLProbes(g, nil)
	return c, s, fake, g, &now
}

// A URL of an earlier run is no longer asked when its object went meanwhile.
func TestURLOfAnObjectThatWentMeanwhile(t *testing.T) {
	_, s, _, g, _ := guided(t, nil)
	s.urls = newURLProbes(g, []string{"gone"})
	names := s.urls.names()
	for range 2 {
		for _, name := range names {
			if err := s.lookAt(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if calls := g.take(); !slices.Equal(calls, []string{"leave gone"}) {
		t.Errorf("%v", calls)
	}
}

// queued returns what is in the two queues.
func queued(s *session) (names []string, ids []peer.ClusterID) {
	names, ids = s.named.Ready(), s.queue.Ready()
	for _, name := range names {
		s.named.Drop(name)
	}
	for _, id := range ids {
		s.queue.Drop(id)
	}
	slices.Sort(ids)
	return names, ids
}

// TestPlacesAreAsked follows what is asked for one object, as the watch tells of it.
func TestPlacesAreAsked(t *testing.T) {
	_, s, _, g, now := guided(t, nil)
	mine := manual("mine", "")
	version := 0
	update := func(change func(*api.ForeignCluster)) {
		t.Helper()
		version++
		mine = changed(mine, change)
		if err := kubetest.Tell(s.foreign).Update(versioned(mine, version)); err != nil {
			t.Fatal(err)
		}
		for names, _ := queued(s); len(names) > 0; names, _ = queued(s) {
			for _, name := range names {
				if err := s.lookAt(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	wants := func(want ...string) {
		t.Helper()
		if got := slices.Compact(g.take()); !slices.Equal(got, want) {
			t.Errorf("it is asked %q, want %q", got, want)
		}
	}
	update(func(*api.ForeignCluster) {})
	wants("look mine " + barnURL)
	update(func(fc *api.ForeignCluster) {
		fc.Spec.ClusterIdentity = &api.ClusterIdentity{ClusterID: string(testID)}
	})
	wants("look mine " + barnURL + " " + string(testID))
	update(func(fc *api.ForeignCluster) { fc.Spec.AuthURL = "" })
	wants("leave mine")
	update(func(fc *api.ForeignCluster) { fc.Spec.Join = true })
	wants()
	update(func(fc *api.ForeignCluster) { fc.Spec.AuthURL = barnURL })
	wants("look mine " + barnURL + " " + string(testID))

	// Another connection: the object is still asked about, and looked at again.
	if names := s.urls.names(); !slices.Equal(names, []string{"mine"}) {
		t.Errorf("asked about %q", names)
	}
	// While its peering is undone, it must be found.
	update(func(fc *api.ForeignCluster) {
		fc.Finalizers, fc.DeletionTimestamp = []string{api.FinalizerPeering}, &fc.CreationTimestamp
	})
	wants("look mine " + barnURL + " " + string(testID))
	if err := kubetest.Tell(s.foreign).Delete(versioned(mine, version+1)); err != nil {
		t.Fatal(err)
	}
	wants("leave mine") // before the cluster is looked at
	names, ids := queued(s)
	if !slices.Equal(names, []string{"mine"}) || !slices.Equal(ids, []peer.ClusterID{testID, "mine"}) {
		t.Errorf("queued are %q and %q", names, ids)
	}
	if err := s.lookAt(t.Context(), "mine"); err != nil || len(g.take()) != 0 {
		t.Error("it is left twice")
	}
	// An object of the agent's own is not made before the registry knows.
	if pause := s.removalPause(testID); pause != removalDelay {
		t.Errorf("nothing is decided for %v", pause)
	}
	if err := s.reconcile(t.Context(), testID); err != nil {
		t.Error(err) // the API server would have been asked
	}
	*now = now.Add(removalDelay)
	if pause := s.removalPause(testID); pause != 0 {
		t.Errorf("nothing is decided for %v", pause)
	}
	// The agent's own are nobody's business here.
	if err := kubetest.Tell(s.foreign).Update(versioned(made(barn()), version+2)); err != nil {
		t.Fatal(err)
	}
	if names, _ := queued(s); len(names) != 0 {
		t.Errorf("queued are %q", names)
	}
	if err := kubetest.Tell(s.foreign).Delete(versioned(made(barn()), version+3)); err != nil {
		t.Fatal(err)
	}
	if names, _ := queued(s); len(names) != 0 || s.removalPause(testID) != 0 {
		t.Errorf("queued are %q", names)
	}
}

// TestIdentified: what a place says is written into the object once, by who owns
// it, and only into the version that was looked at.
func TestIdentified(t *testing.T) {
	status := http.StatusOK
	c, s, fake, g, now := guided(t, func(_ *http.Request, _ string) (int, string) {
		if status != http.StatusOK {
			return status, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","message":"no","code":409}`
		}
		return status, `{"metadata":{"name":"mine","uid":"uid-mine","resourceVersion":"8"},"spec":{"authUrl":"` + barnURL +
			`","clusterIdentity":{"clusterID":"` + string(testID) + `","clusterName":"barn"},"namespace":"liqo"}}`
	})
	if err := kubetest.Tell(s.foreign).Update(versioned(manual("mine", ""), 7)); err != nil {
		t.Fatal(err)
	}
	queued(s)
	look := func() error { t.Helper(); return s.lookAt(t.Context(), "mine") }
	// Nothing is known; then something about a URL that it no longer has; then that
	// nobody was asked.
	for _, found := range []map[string]discovered.Result{{}, {"mine": {URL: "https://old:1", ID: testID}}, {"mine": {URL: barnURL, Reason: reason.NotAskedYet}}} {
		g.mu.Lock()
		g.found = found
		g.mu.Unlock()
		if err := look(); err != nil || len(fake.Take()) != 0 {
			t.Errorf("%v: it is written: %v", found, err)
		}
	}
	g.mu.Lock()
	g.found = map[string]discovered.Result{"mine": {URL: barnURL, ID: testID, ClusterName: "barn", Namespace: "liqo"}}
	g.mu.Unlock()
	c.URLProbed("mine")
	if names, ids := queued(s); !slices.Equal(names, []string{"mine"}) || len(ids) != 0 {
		t.Errorf("queued are %q and %q", names, ids)
	}
	status = http.StatusConflict
	if err := look(); err == nil {
		t.Error("no error")
	}
	fake.Take()
	g.take()
	status = http.StatusOK
	if err := look(); err != nil {
		t.Fatal(err)
	}
	sent := fake.Take()
	if len(sent) != 1 || !strings.HasPrefix(sent[0], "PATCH /apis/discovery.liqo.io/v1alpha1/foreignclusters/mine?fieldManager="+fields.ManagerDiscovery+" ") ||
		!strings.Contains(sent[0], `"metadata":{"name":"mine","uid":"uid-mine","resourceVersion":"7"},"spec":{"clusterIdentity":{"clusterID":"`+string(testID)+`","clusterName":"barn"},"namespace":"liqo"}}`) {
		t.Errorf("sent %q", sent)
	}
	if _, ids := queued(s); !slices.Equal(ids, []peer.ClusterID{testID, "mine"}) {
		t.Errorf("queued are %q", ids)
	}
	if calls := g.take(); !slices.Equal(calls, []string{"look mine " + barnURL, "look mine " + barnURL + " " + string(testID)}) {
		t.Errorf("it is asked %q", calls)
	}
	if err := look(); err != nil || len(fake.Take()) != 0 {
		t.Errorf("it is written again: %v", err)
	}
	// From now on it is about a cluster.
	c.URLProbed("mine")
	if names, ids := queued(s); len(names) != 0 || !slices.Equal(ids, []peer.ClusterID{testID}) {
		t.Errorf("queued are %q and %q", names, ids)
	}
	obs := c.observe(s, testID)
	if place := obs.URLs["mine"]; !place.Known || place.Result.ClusterName != "barn" {
		t.Errorf("%+v", obs.URLs)
	}
	g.mu.Lock()
	g.found = nil
	g.mu.Unlock()
	if place := c.observe(s, testID).URLs["mine"]; place.Known || place.Overdue {
		t.Errorf("%+v", place)
	}
	*now = now.Add(askedFor)
	if place := c.observe(s, testID).URLs["mine"]; place.Known || !place.Overdue {
		t.Errorf("%+v", place)
	}
}

// TestNobodyIsAsked: without a URLProber, objects of people are what they were.
func TestNobodyIsAsked(t *testing.T) {
	c, s, fake := connected(t, &diary{}, nil)
	for i, fc := range []*api.ForeignCluster{manual("mine", ""), manual("other", testID)} {
		if err := kubetest.Tell(s.foreign).Update(versioned(fc, i+1)); err != nil {
			t.Fatal(err)
		}
		if err := s.lookAt(t.Context(), fc.Name); err != nil {
			t.Fatal(err)
		}
	}
	if len(fake.Take()) != 0 || c.observe(s, testID).URLs != nil {
		t.Error("something is done")
	}
	c.URLProbed("nobody") // comes to nothing
	c.attach(nil, c.upstream)
	c.URLProbed("mine")
}

// TestProcessNamed maps each outcome to when the object is looked at again.
func TestProcessNamed(t *testing.T) {
	unreachable := map[string]discovered.Result{"mine": {URL: barnURL, Reason: reason.Unreachable}}
	for _, tc := range []struct {
		name        string
		found       map[string]discovered.Result
		status      int
		reason      metav1.StatusReason
		soon, later time.Duration // it comes back after soon, and not before
	}{
		{"nothing is known", nil, http.StatusOK, "", askedFor, askedFor},
		{"conflict", unreachable, http.StatusConflict, metav1.StatusReasonConflict, objects.RetryFirst, objects.RetryFirst / 2},
		{"failure", unreachable, http.StatusInternalServerError, metav1.StatusReasonInternalError, objects.RetryFirst, objects.RetryFirst / 2},
		{"invalid", unreachable, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, objects.RefusedRetry, objects.RefusedRetry / 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				c := New(Config{
					Registry: neighbours{barn()}, Decisions: &diary{}, Peers: silence{}, Namespace: "liqo", Logger: quietLogger(), URLs: &guide{found: tc.found},
					Identity: func() peer.Identity { return peer.Identity{} },
					Greeting: func() wire.Greeting { return wire.Greeting{} }, LostAfter: func() time.Duration { return 0 },
				})
				s := refused(t, c, tc.status, tc.reason)
				s.foreign.Wrote(versioned(manual("mine", ""), 1))
				if waited := kubetest.Again(t, s.named, "mine", s.processNamed); waited < tc.later || waited > tc.soon {
					t.Errorf("it is looked at after %v", waited)
				}
			})
		})
	}
}
