package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/plan"
)

// ask has a site start anew, with places to ask and another way to its API server.
func (s *site) ask(path string, p *places) {
	s.t.Helper()
	s.stop()
	s.running = startWith(s.t, path, s.reg, s.decisions, func(c *peering.Config) {
		c.Peers, c.Identity, c.Webhook, c.URLs = s.client, s.identity, webhook, p
		c.LostAfter = func() time.Duration { return s.lostAfter }
		c.Greeting = func() wire.Greeting { return wire.Greeting{Identity: s.identity(), Port: s.server.Port()} }
	})
	p.mu.Lock()
	p.changed = s.running.URLProbed
	p.mu.Unlock()
	s.live.Store(s.running)
}

// url is where the other site is.
func (s *site) url(other *site) string {
	p, _ := s.reg.Peer(other.id)
	return p.URL
}

// shared are the objects that a peering is made of besides ForeignClusters.
func shared(t *testing.T, a, b *site) string {
	t.Helper()
	req, err := b.request(a)
	if err != nil {
		t.Fatal(err)
	}
	adv, err := a.offer(b)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("PeeringRequest %s generation %d, Advertisement %s generation %d", req.UID, req.Generation, adv.UID, adv.Generation)
}

// folded reports what is missing until the object with that name has taken the
// place of the agent's own, and is joined.
func folded(a, b *site, name string) error {
	if err := a.missing(fcPath + "/" + string(b.id)); err != nil {
		return err
	}
	fc, err := object[api.ForeignCluster](a, fcPath+"/"+name)
	if err != nil {
		return err
	}
	out, c := fc.Status.Outgoing, fc.Condition(api.ConditionOutgoingPeering)
	switch {
	case !fc.Spec.Join || !out.Joined || c == nil || c.Status != api.ConditionTrue || fc.Status.Role != api.RoleProvider:
		return fmt.Errorf("%s shows join %v, %+v, %+v", name, fc.Spec.Join, out, c)
	case out.CADataRef == nil || out.Advertisement == nil || out.RemotePeeringRequestName != string(a.id) || len(fc.Finalizers) != 1:
		return fmt.Errorf("%s shows %+v and has %v", name, out, fc.Finalizers)
	}
	return nil
}

// create writes an object with only a URL, as kubectl does.
func (s *site) create(how, name, url, more string) {
	s.t.Helper()
	text := fmt.Sprintf("apiVersion: discovery.liqo.io/v1alpha1\nkind: ForeignCluster\nmetadata: {name: %s}\nspec:\n  authUrl: %q\n  %s\n", name, url, more)
	if out, err := s.kube.Host.RunInput(s.t.Context(), text, "kubectl", "--kubeconfig", bed.Kubeconfig, how, "-f", "-"); err != nil {
		s.t.Fatalf("kubectl %s: %v: %s", how, err, out)
	}
}

// rejoin has a site join the other one by an object of the agent's own.
func (s *site) rejoin(other *site) {
	s.t.Helper()
	s.decisions.change(other.id, func(st *plan.Policy) { st.Connect, st.Generation = plan.Yes, st.Generation+1 })
	within(s.t, "joined", func() error { return joined(s, other) })
}

// TestFold has a person write a ForeignCluster for a cluster that is joined.
func TestFold(t *testing.T) {
	a, b := pair(t)
	p := newPlaces()
	a.ask(a.path, p)
	a.trusts(b, nil)
	b.trusts(a, func(s *plan.Policy) { s.Accept = accepted })
	p.answer(a.url(b), discovered.Result{ID: b.id, ClusterName: b.name, Namespace: "liqo", Fingerprint: b.key.Fingerprint()})
	a.rejoin(b)

	t.Run("nothing is said about join", func(t *testing.T) {
		before, story := shared(t, a, b), len(a.decisions.story())+len(b.decisions.story())
		theirs, err := b.foreign(a)
		if err != nil {
			t.Fatal(err)
		}
		a.create("create", "my-cluster", a.url(b), "")
		within(t, "folded", func() error { return folded(a, b, "my-cluster") })
		looked(t, a, b)
		if after := shared(t, a, b); after != before || a.decisions.heard(b.id, "")+b.decisions.heard(a.id, "") != story {
			t.Errorf("the peering was touched: %s, then %s\n%q\n%q", before, after, a.decisions.story(), b.decisions.story())
		}
		if now, err := b.foreign(a); err != nil || now.ResourceVersion != theirs.ResourceVersion {
			t.Errorf("the other side noticed: %v %+v", err, now)
		}
		var replaced []string
		within(t, "the history", func() error { // which is told last
			replaced = append(replaced, a.decisions.history()...)
			if !slices.Equal(replaced, []string{"my-cluster"}) {
				return fmt.Errorf("told of %v", replaced)
			}
			return nil
		})
		if !strings.Contains(a.log.String(), "theirs counts, and the agent's is deleted") {
			t.Error("nothing was logged about the object that went")
		}
		fc, err := object[api.ForeignCluster](a, fcPath+"/my-cluster")
		if err != nil || fc.Spec.AuthURL != a.url(b) || fc.Spec.DiscoveryType != api.DiscoveryManual || fc.CreatedByAgent() || fc.Spec.TrustMode != api.TrustTrusted {
			t.Errorf("%v %+v", err, fc)
		}
		steady(t, func() {
			for range 20 {
				a.Enqueue(b.id)
				a.URLProbed("my-cluster")
			}
			looked(t, a, b)
		}, a.running)
	})
	t.Run("a second one", func(t *testing.T) {
		before := shared(t, a, b)
		time.Sleep(1100 * time.Millisecond) // objects are as old as their second says
		a.create("create", "another", a.url(b), "join: true")
		awaitFC(t, a.kube, "another", shows(api.ConditionOutgoingPeering, api.ConditionFalse, "AnotherObject", "my-cluster"))
		looked(t, a, b)
		if err := folded(a, b, "my-cluster"); err != nil || shared(t, a, b) != before {
			t.Errorf("%v, %s", err, shared(t, a, b))
		}
		a.do("DELETE", fcPath+"/another", "", "")
		within(t, "my-cluster only", func() error { return errors.Join(a.missing(fcPath+"/another"), folded(a, b, "my-cluster")) })
	})
	t.Run("deleted", func(t *testing.T) {
		if out, err := a.kube.Kubectl(t.Context(), "delete", "fc", "my-cluster", "--timeout=5m"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		within(t, "parted", func() error { return parted(a, b) })
		if a.decisions.heard(b.id, "hung up") != 1 {
			t.Errorf("%q", a.decisions.story())
		}
		within(t, "the end of the question", func() error { return p.heard("leave my-cluster") })
	})
	t.Run("it is said to be joined", func(t *testing.T) {
		a.rejoin(b)
		before := shared(t, a, b)
		a.create("apply", "my-cluster", a.url(b), "join: true")
		within(t, "folded", func() error { return folded(a, b, "my-cluster") })
		looked(t, a, b)
		if after := shared(t, a, b); after != before || a.decisions.heard(b.id, "join true by kubectl-client-side-apply") != 1 {
			t.Errorf("the peering was touched: %s, then %s", before, after)
		}
	})
	t.Run("the line is removed from the file", func(t *testing.T) {
		a.create("apply", "my-cluster", a.url(b), "")
		within(t, "the end", func() error { return ended(a, b) })
		if a.decisions.heard(b.id, "join false by kubectl-client-side-apply") != 1 {
			t.Errorf("%q", a.decisions.story())
		}
		a.do("DELETE", fcPath+"/my-cluster", "", "")
		within(t, "the agent's own", func() error { return parted(a, b) })
	})
	t.Run("it is said not to be joined", func(t *testing.T) {
		a.rejoin(b)
		a.create("apply", "my-cluster", a.url(b), "join: false")
		within(t, "the end", func() error { return ended(a, b) })
		if a.decisions.heard(b.id, "trust") > 0 {
			t.Errorf("%q", a.decisions.story())
		}
	})
}

// ended reports what is left of a peering whose object is my-cluster.
func ended(a, b *site) error {
	fc, err := object[api.ForeignCluster](a, fcPath+"/my-cluster")
	if err != nil {
		return err
	}
	if out := fc.Status.Outgoing; fc.Spec.Join || out.Joined || out.Advertisement != nil || len(fc.Finalizers) > 0 {
		return fmt.Errorf("my-cluster shows %v, %+v, %v", fc.Spec.Join, out, fc.Finalizers)
	}
	return errors.Join(a.missing(advPath+"/"+string(b.id), a.secretPath(b), fcPath+"/"+string(b.id)), b.missing(prPath+"/"+string(a.id)))
}

// TestFoldRestarts ends the agent after every single write of a folding, and has
// another one go on.
func TestFoldRestarts(t *testing.T) {
	a, b := pair(t)
	p := newPlaces()
	a.trusts(b, nil)
	b.trusts(a, func(s *plan.Policy) { s.Accept = accepted })
	g := newGate(t, a.kube)
	p.answer(a.url(b), discovered.Result{ID: b.id, ClusterName: b.name, Namespace: "liqo", Fingerprint: b.key.Fingerprint()})
	for n, done := 0, false; !done && n < 30; n++ {
		a.ask(g.path, p)
		a.rejoin(b)
		looked(t, a, b)
		before, story := shared(t, a, b), a.decisions.heard(b.id, "")+b.decisions.heard(a.id, "")
		full := g.shutAfter(n)
		a.create("create", "my-cluster", a.url(b), "")
		within(t, "folded, or stopped on the way", func() error {
			select {
			case <-full:
				return nil
			default:
			}
			if err := folded(a, b, "my-cluster"); err != nil {
				return err
			}
			done = true
			return nil
		})
		if done {
			select {
			case <-full: // there was one left to write
				done = false
			case <-time.After(time.Second): // it needs no more writes than that
			}
		}
		g.shut()
		a.stop()
		writes := g.passed()
		g.open()
		a.ask(a.path, p)
		within(t, fmt.Sprintf("folded, after %q", writes), func() error { return folded(a, b, "my-cluster") })
		looked(t, a, b)
		if after := shared(t, a, b); after != before || a.decisions.heard(b.id, "")+b.decisions.heard(a.id, "") != story {
			t.Errorf("after %q the peering was touched: %s, then %s\n%q\n%q", writes, before, after, a.decisions.story(), b.decisions.story())
		}
		if done {
			t.Logf("%d writes: %q", len(writes), writes)
		}
		a.do("DELETE", fcPath+"/my-cluster", "", "")
		within(t, "parted", func() error { return parted(a, b) })
	}
}
