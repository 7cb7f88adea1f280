//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/api"
)

// A joined pair stays joined through everything that happens to boxes, and no
// object is made anew.
func TestPeeringSurvives(t *testing.T) {
	t.Parallel()
	p := newPair(t, "")
	// Each box is consumer and provider at once.
	t.Run("both join at the same moment", func(t *testing.T) {
		p.trust()
		results := make(chan error, 2)
		for _, x := range []struct {
			box *box
			id  string
		}{{p.a, p.bID}, {p.b, p.aID}} {
			go func() {
				_, err := x.box.cli("peers", "accept", x.id)
				if err == nil {
					_, err = x.box.cli("peers", "connect", x.id, "--timeout", soon.String())
				}
				results <- err
			}()
		}
		for range 2 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		for _, x := range []struct {
			box *box
			id  string
		}{{p.a, p.bID}, {p.b, p.aID}} {
			x.box.awaitStatus("is joined both ways", x.id, func(fc *api.ForeignCluster) error {
				if fc.Status.Role != api.RoleConsumerAndProvider {
					return fmt.Errorf("role %s", fc.Status.Role)
				}
				return errors.Join(outgoing(true)(fc), incoming(true)(fc))
			})
		}
	})
	if t.Failed() {
		return
	}
	p.works()
	before := p.objects()

	for _, x := range []*box{p.a, p.b} {
		t.Run("the address of "+x.host.Name+" changes", func(t *testing.T) {
			x.move(t)
			p.works()
			p.same(before)
		})
	}
	t.Run("both addresses change at once", func(t *testing.T) {
		p.a.move(t)
		p.b.move(t)
		p.works()
		p.same(before)
	})
	t.Run("the port changes", func(t *testing.T) {
		p.b.stop()
		p.b.configure("[endpoint]\nlisten = \":7447\"\n")
		p.b.start()
		p.works()
		p.same(before)
		p.a.eventually("the consumer calls the new port", func() error {
			q, err := p.a.peer(p.bID)
			if err == nil && !strings.HasSuffix(q.URL, ":7447") {
				err = fmt.Errorf("it calls %s", q.URL)
			}
			return err
		})
	})
	t.Run("a key rotates", func(t *testing.T) {
		logged := map[*box]int{p.a: len(p.a.agent.Log()), p.b: len(p.b.agent.Log())}
		for _, x := range []*box{p.a, p.b} {
			other := p.a
			if x == p.a {
				other = p.b
			}
			old := x.mustStatus().Identity.Fingerprint
			x.mustCLI("key", "rotate", "--yes")
			x.eventually("the new key is in use", func() error {
				st, err := x.status()
				if err == nil && st.Identity.Fingerprint == old {
					err = errors.New("the old key is")
				}
				return err
			})
			now := x.mustStatus().Identity.Fingerprint
			other.eventually("the peer follows", func() error {
				got, err := other.peer(x.id())
				if err == nil && (got.Trust.Fingerprint != now || got.Fingerprint != now) {
					err = fmt.Errorf("trusts %s, sees %s, the new key is %s", got.Trust.Fingerprint, got.Fingerprint, now)
				}
				return err
			})
			p.works()
			p.same(before)
		}
		// It is nothing that anybody has to look into.
		for x, other := range map[*box]string{p.a: p.bID, p.b: p.aID} {
			events, err := x.eventsAbout(other)
			if err != nil || slices.Contains(events, "KeyNotTrusted") || slices.Contains(events, "KeyConflict") {
				t.Errorf("%s: Events %v %v", x.host.Name, events, err)
			}
			for line := range strings.Lines(x.agent.Log()[logged[x]:]) {
				if strings.Contains(line, "lost the connection to the API server") && !strings.Contains(line, "deadline exceeded") && !strings.Contains(line, "imeout") {
					t.Errorf("%s says that it lost its API server, which does answer: %s", x.host.Name, line)
				}
			}
		}
	})
	t.Run("a key rotates while the peer is away", func(t *testing.T) {
		p.a.stop()
		for range 2 {
			old := p.b.mustStatus().Identity.Fingerprint
			p.b.mustCLI("key", "rotate", "--yes")
			p.b.eventually("the new key is in use", func() error {
				st, err := p.b.status()
				if err == nil && st.Identity.Fingerprint == old {
					err = errors.New("the old key is")
				}
				return err
			})
		}
		p.a.start()
		p.works()
		p.same(before)
	})
	t.Run("agents restart", func(t *testing.T) {
		for _, x := range []*box{p.a, p.b} {
			x.stop()
			x.start()
			p.works()
		}
		p.a.stop()
		p.b.stop()
		p.a.start()
		p.b.start()
		p.works()
		p.same(before)
	})
	t.Run("API servers restart", func(t *testing.T) {
		for _, x := range []*box{p.a, p.b} {
			if err := x.kube.Kill(); err != nil {
				t.Fatal(err)
			}
			x.eventually("the agent notices", func() error {
				if x.mustStatus().Kubernetes.Connected {
					return errors.New("it says connected")
				}
				return nil
			})
			if err := x.kube.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.works()
			p.same(before)
		}
	})
	t.Run("the link is cut for a while", func(t *testing.T) {
		p.b.host.Link("eth0").Unplug()
		p.a.awaitStatus("notices that the peer is away, and stays joined", p.bID, func(fc *api.ForeignCluster) error {
			return errors.Join(outgoing(true)(fc), condition(fc, api.ConditionReachable, api.ConditionFalse, ""))
		})
		p.b.host.Link("eth0").Plug()
		p.works()
		p.same(before)
	})
	t.Run("another version", func(t *testing.T) { p.versionsMeet(t, before) })
	t.Run("killed at any moment", func(t *testing.T) {
		for i := range 12 {
			x := []*box{p.a, p.b}[i%2]
			// What is under way when the kill comes: everything is looked after again.
			if i%3 == 0 {
				p.a.kubectl("delete", "adv", p.bID, "--wait=false", "--ignore-not-found")
				delete(before, "the Advertisement")
			}
			timer := time.NewTimer(rand.N(300 * time.Millisecond))
			<-timer.C
			if err := x.agent.Kill(); err != nil {
				t.Fatal(err)
			}
			x.start()
		}
		p.works()
		now := p.objects()
		for name, uid := range before {
			if now[name] != uid {
				t.Errorf("%s is not the one that it was", name)
			}
		}
	})
	t.Run("a remembered peer comes back by itself", func(t *testing.T) {
		// Its ForeignCluster was deleted while nobody was looking.
		p.a.stop()
		p.b.stop()
		p.a.kubectl("patch", "fc", p.bID, "--type", "json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)
		p.a.kubectl("delete", "fc", p.bID)
		p.a.start()
		p.b.start()
		p.works()
	})
}

// move gives the box another address on its link, and waits for nothing.
func (x *box) move(t *testing.T) {
	t.Helper()
	next := x.addr.As4()
	next[3] += 50
	x.addr = netip.AddrFrom4(next)
	x.host.Link("eth0").SetAddress(x.addr.String() + "/24")
}

// A peer that is away for longer than lost_after is parted from, on both sides, and reconnected when it comes back. So is one that
// is set up from scratch, once people trust its new key. The other one ends up clean.
func TestLostAfter(t *testing.T) {
	t.Parallel()
	p := newPair(t, "[discovery]\ncheck_interval = \"1s\"\nlost_after = \"5s\"\n")
	p.join()
	t.Run("a cut link", func(t *testing.T) {
		link := p.b.host.Link("eth0")
		link.Unplug()
		p.a.gone(advPath + "/" + p.bID)
		p.a.awaitNoFC(p.bID)
		p.b.gone(prPath + "/" + p.aID)
		link.Plug()
		p.works()
	})
	for _, who := range []string{"consumer", "provider"} {
		if t.Failed() {
			return
		}
		t.Run("a new "+who, func(t *testing.T) {
			reset, other, id := p.a, p.b, p.aID
			if who == "provider" {
				reset, other, id = p.b, p.a, p.bID
			}
			// Its key and everything that it remembers are gone. Its ID, which its API
			// server has, is the same.
			if err := reset.agent.Kill(); err != nil {
				t.Fatal(err)
			}
			if _, err := reset.host.Run(t.Context(), "rm", "-rf", "/var/lib/liqo-agent"); err != nil {
				t.Fatal(err)
			}
			reset.start()
			other.eventually("the other key is refused and shown", func() error {
				if q, err := other.peer(id); err != nil || q.Conflict == nil {
					return fmt.Errorf("no conflict: %+v %v", q, err)
				}
				return nil
			})
			if who == "consumer" {
				other.gone(prPath + "/" + id)
			} else {
				other.gone(advPath + "/" + id)
			}
			reset.eventually("the reset box neither consumes nor serves", func() error {
				otherID := other.id()
				if _, found, err := get[map[string]any](reset, advPath+"/"+otherID); found || err != nil {
					return fmt.Errorf("the offer is there: %v", err)
				}
				if pr, found, err := get[api.PeeringRequest](reset, prPath+"/"+otherID); err != nil || found && pr.Status.Phase == api.RequestAccepted {
					return fmt.Errorf("the request is accepted: %v", err)
				}
				if fc, err := reset.full(otherID); err != nil || fc.Status.Outgoing.Joined || fc.Status.Incoming.Joined {
					return fmt.Errorf("it is joined: %+v %v", fc.Status, err)
				}
				return nil
			})
			// A person at the other box says that the new key is right, and both start
			// over.
			other.mustCLI("peers", "trust", id, "--yes")
			reset.mustCLI("peers", "trust", other.id(), "--yes")
			p.a.mustCLI("peers", "connect", p.bID, "--no-wait")
			p.b.mustCLI("peers", "accept", p.aID)
			p.works()
		})
	}
}

// With the same addresses on cni0 and the same pod network, as every two K3s
// boxes have, boxes peer all the same. And when nothing changes nothing is
// written.
func TestJoinedPairIsQuiet(t *testing.T) {
	t.Parallel()
	// Without the node of the provider, whose lease is written all the time.
	p := newPair(t, "[sharing]\nuse = false\n")
	for _, x := range []*box{p.a, p.b} {
		addresses, err := x.host.Run(t.Context(), "ip", "-o", "-4", "addr", "show", "cni0")
		if err != nil || !strings.Contains(addresses, "10.42.0.1/24") {
			t.Fatalf("the bed's cni0: %s %v", addresses, err)
		}
	}
	p.join()
	p.works()
	for _, x := range []*box{p.a, p.b} {
		x.undisturbed(func() error {
			st := x.calm(x)
			writes, transactions := st.Kubernetes.Writes, st.State.Transactions
			from := x.mustStatus().Endpoint.Requests
			x.eventually("twenty calls of the peer", func() error {
				if n := x.mustStatus().Endpoint.Requests - from; n < 20 {
					return fmt.Errorf("%d calls", n)
				}
				return nil
			})
			if st := x.mustStatus(); st.Kubernetes.Writes != writes || st.State.Transactions != transactions {
				return fmt.Errorf("%d writes and %d transactions while nothing changed", st.Kubernetes.Writes-writes, st.State.Transactions-transactions)
			}
			return nil
		})
	}
}
