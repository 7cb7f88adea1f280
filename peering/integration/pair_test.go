package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/config"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/peering/remote"
	"liqo.io/agent/trust"
)

// site is one cluster: a real API server, a real endpoint, a real Controller, and
// a decision store in memory that stands for its people. Another site finds it by way of
// the registry, which tests write to.
type site struct {
	t         *testing.T
	name      string
	id        peer.ClusterID
	kube      *bed.Kube
	path      string // of the kubeconfig
	line      *line  // to the API server, nil if pair has not made it
	key       *trust.Key
	issuer    *trust.Issuer
	reg       *registry
	decisions *decisions
	server    *endpoint.Server
	client    *client.Client
	peers     remote.Caller // the client, unless a test puts something in between

	looking sync.Mutex // held while it says its state
	looks   int        // how often it did

	lostAfter time.Duration
	settings  func() plan.SharingSettings  // nil for the usual ones
	sharing   peering.Sharing              // may be nil
	health    func() (config.Health, bool) // may be nil

	*running                         // for the test
	live     atomic.Pointer[running] // the same, for the endpoint
}

// callers is the endpoint's side of a site.
type callers struct{ site *site }

func (c callers) Admit(id peer.ClusterID, shown trust.Shown) endpoint.AccessLevel {
	return c.site.decisions.admit(id, shown)
}

func (c callers) Ask(ctx context.Context, caller endpoint.Caller, a wire.Ask) wire.Answer {
	if caller.Access != endpoint.Known {
		return wire.Answer{Auth: api.AuthPending, Reason: wire.ReasonAsksPerson, Message: "A person has to accept this cluster."}
	}
	c.site.decisions.change(caller.ID, func(s *plan.Policy) {
		s.Asked = true
		if a.Fresh {
			s.Ended = ""
		}
	})
	if err := c.site.live.Load().EnsureAccess(ctx, caller.ID); err != nil {
		return wire.Answer{Auth: api.AuthPending, Reason: wire.ReasonNoAPIServer, Message: err.Error()}
	}
	return wire.Answer{Auth: api.AuthAccepted, Reason: wire.ReasonTrusted, Message: "The key is trusted."}
}

func (c callers) State(_ context.Context, caller endpoint.Caller, _ wire.Greeting) wire.State {
	c.site.looking.Lock()
	defer c.site.looking.Unlock()
	c.site.looks++
	return c.site.live.Load().State(caller.ID)
}

func (c callers) Withdraw(_ context.Context, caller endpoint.Caller, w wire.Withdrawal) error {
	c.site.live.Load().Withdrawn(caller.ID, w)
	return nil
}

func (c callers) Notice(caller endpoint.Caller) { c.site.live.Load().Noticed(caller.ID) }

// pair starts two sites that found each other.
func pair(t *testing.T) (a, b *site) {
	t.Helper()
	lines := make(map[*bed.Kube]*line)
	a, b = pairBy(t, func(k *bed.Kube) string {
		path, l := wired(t, k)
		lines[k] = l
		return path
	})
	a.line, b.line = lines[a.kube], lines[b.kube]
	return a, b
}

// pairBy is pair with kubeconfigs that lead to the API servers in another way.
func pairBy(t *testing.T, kubeconfig func(*bed.Kube) string) (a, b *site) {
	t.Helper()
	t.Parallel()
	kubes := bed.New(t).AddClusters(t.Context(), bed.HostSpec{Name: "consumer", Prefix: "10.77.0.1/24"}, bed.HostSpec{Name: "provider", Prefix: "10.77.0.2/24"})
	a = newSite(t, "consumer", "aaaaaaaa-097b-4b7d-ba04-6bd2a0f9d24f", kubes[0], kubeconfig(kubes[0]))
	b = newSite(t, "provider", "bbbbbbbb-097b-4b7d-ba04-6bd2a0f9d24f", kubes[1], kubeconfig(kubes[1]))
	a.find(b)
	b.find(a)
	a.begin()
	b.begin()
	return a, b
}

func newSite(t *testing.T, name string, id peer.ClusterID, k *bed.Kube, path string) *site {
	t.Helper()
	key, err := trust.LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, name: name, id: id, kube: k, path: path, key: key, reg: newRegistry(), decisions: newDecisions(), lostAfter: 15 * time.Minute}
	s.issuer = trust.NewIssuer(key, func() peer.ClusterID { return id })
	s.client = client.New(client.Config{Issuer: s.issuer, Keep: 8})
	t.Cleanup(s.client.Close)
	s.peers = s.client
	logger := slog.New(slog.DiscardHandler)
	s.server = endpoint.NewServer(endpoint.ServerConfig{
		Listen: "127.0.0.1:0", Issuer: s.issuer, Identity: s.identity, Peers: callers{s}, Logger: logger,
		Gateway: gateway.New(gateway.Config{
			Upstream:      func() (gateway.Upstream, bool) { return s.live.Load().Upstream() },
			DeletedByPeer: func(id peer.ClusterID, resource string) func(int) { return s.live.Load().DeletedByPeer(id, resource) },
			Logger:        logger,
		}),
	})
	if err := s.server.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *site) identity() peer.Identity {
	return peer.Identity{ClusterID: s.id, ClusterName: s.name, GuestNamespace: "liqo"}
}

// find has a site know another one as its neighbour.
func (s *site) find(other *site) {
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), other.server.Port())
	s.reg.put(peer.Peer{
		ID: other.id, Name: other.name, Namespace: "liqo", Source: peer.LAN, Phase: peer.PhasePresent, Fingerprint: other.key.Fingerprint(),
		Addrs: []netip.AddrPort{addr}, URL: "https://" + addr.String(), TTL: 2 * time.Minute,
	})
}

// begin starts the Controller, and the endpoint with the first one.
func (s *site) begin() {
	s.t.Helper()
	first := s.running == nil
	s.running = startWith(s.t, s.path, s.reg, s.decisions, func(c *peering.Config) {
		c.Peers, c.Identity, c.Webhook = s.peers, s.identity, webhook
		c.LostAfter = func() time.Duration { return s.lostAfter }
		c.SharingSettings, c.Sharing, c.People.Health = s.settings, s.sharing, s.health
		c.People.SearchDomains, c.People.ClusterConfig = func([]api.SearchDomain) {}, func(*api.ClusterConfigSpec) {}
		c.People.SearchDomainStatus = func(string) (api.SearchDomainStatus, bool) { return api.SearchDomainStatus{Clusters: 1}, true }
		c.Greeting = func() wire.Greeting { return wire.Greeting{Identity: s.identity(), Port: s.server.Port()} }
	})
	s.live.Store(s.running)
	if first {
		bedtest.Run(s.t, nil, nil, s.server.Run)
	}
}

// trusts is what a person says about the other side's key.
func (s *site) trusts(other *site, f func(*plan.Policy)) {
	s.decisions.change(other.id, func(st *plan.Policy) {
		st.Pin = pinOf(other.id, other.key.Fingerprint(), "test")
		if f != nil {
			f(st)
		}
	})
}

// object reads an object of the site's API server.
func object[T any](s *site, path string) (*T, error) {
	text, err := s.kube.Request(s.t.Context(), "GET", path, "", nil)
	if err != nil {
		return nil, err
	}
	out := new(T)
	return out, json.Unmarshal(text, out)
}

func (s *site) foreign(other *site) (*api.ForeignCluster, error) {
	return object[api.ForeignCluster](s, fcPath+"/"+string(other.id))
}

func (s *site) request(other *site) (*api.PeeringRequest, error) {
	return object[api.PeeringRequest](s, prPath+"/"+string(other.id))
}

func (s *site) offer(other *site) (*api.Advertisement, error) {
	return object[api.Advertisement](s, advPath+"/"+string(other.id))
}

func (s *site) secretPath(other *site) string {
	return "/api/v1/namespaces/liqo/secrets/" + plan.SecretName(other.id)
}

func (s *site) do(method, path, contentType, body string) {
	s.t.Helper()
	request(s.t, s.kube, method, path, contentType, body)
}

// join sets spec.join as a person does with kubectl.
func (s *site) join(other *site, join bool) {
	s.t.Helper()
	s.do("PATCH", fcPath+"/"+string(other.id), merge, fmt.Sprintf(`{"spec":{"join":%v}}`, join))
}

// joined reports what is missing until a consumes b's resources on both sides.
func joined(a, b *site) error {
	fc, err := a.foreign(b)
	if err != nil {
		return err
	}
	out := fc.Status.Outgoing
	c := fc.Condition(api.ConditionOutgoingPeering)
	switch {
	case !out.Joined || c == nil || c.Status != api.ConditionTrue:
		return fmt.Errorf("%s is not joined: %+v, %+v", a.name, out, c)
	case out.CADataRef == nil || out.Advertisement == nil || out.RemotePeeringRequestName != string(a.id):
		return fmt.Errorf("%s shows %+v", a.name, out)
	}
	adv, err := a.offer(b)
	if err != nil {
		return err
	}
	if adv.Status.AdvertisementStatus != api.AdvertisementAccepted || adv.Spec.ResourceQuota.Hard["cpu"] != "4" || string(adv.UID) != out.Advertisement.UID {
		return fmt.Errorf("%s has %+v", a.name, adv)
	}
	req, err := b.request(a)
	if err != nil {
		return err
	}
	if req.Status.Phase != api.RequestAccepted {
		return fmt.Errorf("%s has %+v", b.name, req)
	}
	back, err := b.foreign(a)
	if err != nil {
		return err
	}
	in := back.Status.Incoming
	if c := back.Condition(api.ConditionIncomingPeering); !in.Joined || in.CADataRef == nil || in.PeeringRequest == nil || in.PeeringRequest.UID != string(req.UID) ||
		c == nil || c.Status != api.ConditionTrue {
		return fmt.Errorf("%s shows %+v, %+v", b.name, in, c)
	}
	for _, s := range []struct{ at, of *site }{{a, b}, {b, a}} {
		secret, err := object[struct {
			Data map[string][]byte `json:"data"`
		}](s.at, s.at.secretPath(s.of))
		if err != nil {
			return err
		}
		if string(secret.Data["fingerprint"]) != s.of.key.Fingerprint().String() || len(secret.Data["ca.crt"]) == 0 || string(secret.Data["clusterID"]) != string(s.of.id) {
			return fmt.Errorf("%s keeps %q", s.at.name, secret.Data)
		}
	}
	return nil
}

// missing reports an object that is still there.
func (s *site) missing(paths ...string) error {
	for _, path := range paths {
		_, err := s.kube.Request(s.t.Context(), "GET", path, "", nil)
		switch {
		case err == nil:
			return fmt.Errorf("%s is still there at %s", path, s.name)
		case !strings.Contains(err.Error(), "404"):
			return err
		}
	}
	return nil
}

// parted reports what is left of a's consuming b's resources.
func parted(a, b *site) error {
	role := "/liqo:peer:"
	if err := errors.Join(
		a.missing(advPath+"/"+string(b.id), a.secretPath(b), rolePath+role+string(b.id), bindingPath+role+string(b.id)),
		b.missing(prPath+"/"+string(a.id), b.secretPath(a)),
	); err != nil {
		return err
	}
	fc, err := a.foreign(b)
	if err != nil {
		return err
	}
	if out := fc.Status.Outgoing; fc.Spec.Join || out.Joined || out.Advertisement != nil || out.CADataRef != nil || len(fc.Finalizers) > 0 {
		return fmt.Errorf("%s shows %v, %+v, %v", a.name, fc.Spec.Join, out, fc.Finalizers)
	}
	back, err := b.foreign(a)
	if err != nil {
		return err
	}
	if in := back.Status.Incoming; in.Joined || in.PeeringRequest != nil || in.CADataRef != nil {
		return fmt.Errorf("%s shows %+v", b.name, in)
	}
	return nil
}

// told returns how often the site has said its state. None of these answers is still being made: it would be that of
// a site which the test has stopped meanwhile.
func (s *site) told() int {
	s.looking.Lock()
	defer s.looking.Unlock()
	return s.looks
}

// looked waits until both sides have looked at each other again.
func looked(t *testing.T, a, b *site) {
	t.Helper()
	la, lb := a.told(), b.told()
	a.Noticed(b.id)
	b.Noticed(a.id)
	within(t, "both to look", func() error {
		if a.told() == la || b.told() == lb {
			return errors.New("not yet")
		}
		return nil
	})
}

// untilTold has a site look at another one by itself only in an hour: it knows sooner what it is told. The returned function ends that.
func untilTold(t *testing.T, s, other *site) (usual func()) {
	t.Helper()
	s.SetInterval(time.Hour)
	looked(t, s, other) // after which the next look is planned
	return func() {
		s.SetInterval(0)
		s.Noticed(other.id)
	}
}

// versions are those of all objects of a peering.
func versions(t *testing.T, a, b *site) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for _, s := range []struct {
		at    *site
		paths []string
	}{
		{a, []string{fcPath + "/" + string(b.id), advPath + "/" + string(b.id), a.secretPath(b)}},
		{b, []string{fcPath + "/" + string(a.id), prPath + "/" + string(a.id), b.secretPath(a)}},
	} {
		for _, path := range s.paths {
			o, err := object[api.ForeignCluster](s.at, path) // for its metadata
			if err != nil {
				t.Fatal(err)
			}
			out[s.at.name+path] = string(o.UID) + " " + o.ResourceVersion
		}
	}
	return out
}

// TestPair follows two clusters from strangers to a peering and back, with people
// who interfere at every object of it.
func TestPair(t *testing.T) {
	a, b := pair(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("story of the consumer: %q\nstory of the provider: %q", a.decisions.story(), b.decisions.story())
		}
	})
	for _, s := range []struct{ at, of *site }{{a, b}, {b, a}} {
		within(t, "first sight", func() error {
			fc, err := s.at.foreign(s.of)
			if err != nil {
				return err
			}
			return condition(api.ConditionReachable, api.ConditionTrue)(fc)
		})
	}
	is := func(reason string) func() error {
		return func() error {
			fc, err := a.foreign(b)
			if err != nil {
				return err
			}
			if c := fc.Condition(api.ConditionOutgoingPeering); c == nil || c.Status != api.ConditionFalse || c.Reason != reason {
				return fmt.Errorf("%+v, want %s", c, reason)
			}
			return nil
		}
	}

	t.Run("step by step", func(t *testing.T) {
		a.join(b, true)
		within(t, "trust", is(reason.AwaitingTrust))
		a.do("PATCH", fcPath+"/"+string(b.id), merge, `{"spec":{"trustMode":"Trusted"}}`)
		within(t, "acceptance", is(reason.AwaitingAcceptance))
		if a.decisions.Policy(b.id).Pin == nil {
			t.Error("spec.trustMode did not reach the decision store")
		}
		b.trusts(a, nil)
		within(t, "the request", func() error {
			req, err := b.request(a)
			if err == nil && req.Status.Phase != api.RequestPending {
				err = fmt.Errorf("%+v", req.Status)
			}
			return err
		})
		begun := time.Now()
		b.decisions.change(a.id, func(s *plan.Policy) { s.Accept = accepted })
		within(t, "joined", func() error { return joined(a, b) })
		t.Logf("accepted to joined: %v", time.Since(begun))
		if a.decisions.heard(b.id, "joined true") != 1 || b.decisions.heard(a.id, "served true") != 1 {
			t.Errorf("the decision stores heard %q and %q", a.decisions.story(), b.decisions.story())
		}
	})

	t.Run("nothing is written without a change", func(t *testing.T) {
		var before, after map[string]string
		steady(t, func() {
			before = versions(t, a, b)
			for range 5 {
				a.Enqueue(b.id)
				b.Enqueue(a.id)
				looked(t, a, b)
			}
			after = versions(t, a, b)
		}, a.running, b.running)
		if fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("objects went from\n%v to\n%v", before, after)
		}
	})

	t.Run("repaired", func(t *testing.T) {
		for _, tc := range []struct {
			name                      string
			at                        *site
			method, path, mime, patch string
			check                     func() error // that the damage is undone, besides being joined
		}{
			{"deleted offer", a, "DELETE", advPath + "/" + string(b.id), "", "", nil},
			{"edited offer", a, "PATCH", advPath + "/" + string(b.id), merge, `{"spec":{"resourceQuota":{"hard":{"cpu":"400"}}}}`, nil},
			{"edited words about the offer", a, "PATCH", advPath + "/" + string(b.id) + "/status", merge, `{"status":{"reason":"x","message":"y"}}`, func() error {
				adv, err := a.offer(b)
				if err == nil && adv.Status.Reason != reason.Joined {
					err = fmt.Errorf("%+v", adv.Status)
				}
				return err
			}},
			{"edited request", b, "PATCH", prPath + "/" + string(a.id), merge, `{"spec":{"clusterIdentity":{"clusterName":"eve"}}}`, func() error {
				req, err := b.request(a)
				if err == nil && req.Spec.ClusterIdentity.ClusterName != a.name {
					err = fmt.Errorf("%+v", req.Spec)
				}
				return err
			}},
			{"edited words about the request", b, "PATCH", prPath + "/" + string(a.id) + "/status", merge, `{"status":{"reason":"x","message":"y"}}`, func() error {
				req, err := b.request(a)
				if err == nil && (req.Status.Reason == "x" || req.Status.Message == "y") {
					err = fmt.Errorf("%+v", req.Status)
				}
				return err
			}},
			{"deleted Secret of the consumer", a, "DELETE", a.secretPath(b), "", "", nil},
			{"edited Secret of the consumer", a, "PATCH", a.secretPath(b), merge, `{"data":{"fingerprint":"eA=="}}`, nil},
			{"deleted Secret of the provider", b, "DELETE", b.secretPath(a), "", "", nil},
			{"Secret of the consumer that cannot be changed", a, "PATCH", a.secretPath(b), merge, `{"immutable":true,"metadata":{"labels":null},"data":{"ca.crt":null}}`, nil},
			{"edited status of the consumer", a, "PATCH", fcPath + "/" + string(b.id) + "/status", merge, `{"status":{"outgoing":{"joined":false,"caDataRef":null,"advertisement":null}}}`, nil},
			{"edited status of the provider", b, "PATCH", fcPath + "/" + string(a.id) + "/status", merge, `{"status":{"incoming":{"joined":false,"peeringRequest":null}}}`, nil},
			{"deleted roles of the consumer", a, "DELETE", rolePath + "/liqo:peer:" + string(b.id), "", "", func() error {
				_, err := a.kube.Request(t.Context(), "GET", rolePath+"/liqo:peer:"+string(b.id), "", nil)
				return err
			}},
			{"deleted binding of the provider", b, "DELETE", bindingPath + "/liqo:peer:" + string(a.id), "", "", func() error {
				_, err := b.kube.Request(t.Context(), "GET", bindingPath+"/liqo:peer:"+string(a.id), "", nil)
				return err
			}},
			{"deleted ForeignCluster of the provider", b, "DELETE", fcPath + "/" + string(a.id), "", "", nil},
		} {
			tc.at.do(tc.method, tc.path, tc.mime, tc.patch)
			within(t, tc.name, func() error {
				if tc.check != nil {
					if err := tc.check(); err != nil {
						return err
					}
				}
				return joined(a, b)
			})
		}
	})

	t.Run("restarts", func(t *testing.T) {
		identity := func() string {
			req, err1 := b.request(a)
			adv, err2 := a.offer(b)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			return string(req.UID) + string(adv.UID) + adv.Spec.Timestamp.String()
		}
		// A peering whose other side has lost its API server is True, too, and says so in the reason only.
		undisturbed := func() error {
			fc, err1 := a.foreign(b)
			back, err2 := b.foreign(a)
			if err := errors.Join(err1, err2, joined(a, b)); err != nil {
				return err
			}
			out, in := fc.Condition(api.ConditionOutgoingPeering), back.Condition(api.ConditionIncomingPeering)
			if out.Reason != reason.Joined || in.Reason != reason.Joined {
				return fmt.Errorf("%+v, %+v", out, in)
			}
			return nil
		}
		before := identity()
		for _, s := range []*site{a, b} {
			s.lose(t, s.line)
			within(t, "what it tells peers", func() error {
				if state := s.Controller.State(a.id); state.Kubernetes || state.Identity != s.identity() {
					return fmt.Errorf("it says %+v", state)
				}
				return nil
			})
			looked(t, a, b)
			s.line.mend()
			within(t, "connection", func() error {
				if st := s.Status(); !st.Connected {
					return errors.New(st.LastError)
				}
				return nil
			})
			looked(t, a, b)
			within(t, "joined", undisturbed)
		}
		for _, s := range []*site{a, b} {
			steady(t, func() { // what is not written yet would be the next one's
				looked(t, a, b)
				a.Enqueue(b.id)
				b.Enqueue(a.id)
			}, a.running, b.running)
			s.stop()
			s.begin()
			within(t, "connection", func() error {
				if st := s.Status(); !st.Connected {
					return errors.New(st.LastError)
				}
				return nil
			})
			looked(t, a, b)
			within(t, "joined", undisturbed)
			if n := s.Status().Writes; n > 0 {
				t.Errorf("%s wrote %d times after its start:\n%s", s.name, n, s.log.String())
			}
		}
		if after := identity(); after != before {
			t.Errorf("objects went from %s to %s", before, after)
		}
	})

	t.Run("disjoin", func(t *testing.T) {
		a.join(b, false)
		within(t, "parted", func() error { return parted(a, b) })
		if s := b.decisions.Policy(a.id); s.LastServed || s.Ended != "" || s.Accept != accepted {
			t.Errorf("the provider remembers %+v", s)
		}
	})

	t.Run("ended by the provider", func(t *testing.T) {
		a.join(b, true)
		within(t, "joined", func() error { return joined(a, b) })
		defer untilTold(t, a, b)()
		b.do("DELETE", prPath+"/"+string(a.id), "", "")
		within(t, "parted", func() error { return parted(a, b) })
		within(t, "the reason", is(reason.EndedByProvider))
		if b.decisions.heard(a.id, "ended here") != 1 || a.decisions.heard(b.id, "ended by provider") != 1 {
			t.Errorf("the decision stores heard %q and %q", a.decisions.story(), b.decisions.story())
		}
		b.decisions.change(a.id, func(s *plan.Policy) { s.Accept = accepted })
	})

	t.Run("deleted ForeignCluster", func(t *testing.T) {
		a.join(b, true)
		within(t, "joined", func() error { return joined(a, b) })
		before, err := a.foreign(b)
		if err != nil {
			t.Fatal(err)
		}
		a.do("DELETE", fcPath+"/"+string(b.id), "", "")
		within(t, "another one", func() error {
			fc, err := a.foreign(b)
			if err == nil && fc.UID == before.UID {
				err = fmt.Errorf("%+v", fc.ObjectMeta)
			}
			if err != nil {
				return err
			}
			return parted(a, b)
		})
		if a.decisions.heard(b.id, "hung up") != 1 {
			t.Errorf("the decision store heard %q", a.decisions.story())
		}
	})

	t.Run("both directions", func(t *testing.T) {
		a.trusts(b, func(s *plan.Policy) { s.Accept = accepted })
		a.join(b, true)
		b.join(a, true)
		within(t, "joined", func() error { return errors.Join(joined(a, b), joined(b, a)) })
		b.join(a, false)
		within(t, "one direction", func() error {
			if err := b.missing(advPath + "/" + string(a.id)); err != nil {
				return err
			}
			if err := a.missing(prPath + "/" + string(b.id)); err != nil {
				return err
			}
			return joined(a, b)
		})
	})

	t.Run("blocked", func(t *testing.T) {
		b.decisions.change(a.id, func(s *plan.Policy) { s.Blocked = true })
		within(t, "the end at the provider", func() error {
			return b.missing(prPath+"/"+string(a.id), b.secretPath(a), rolePath+"/liqo:peer:"+string(a.id))
		})
		within(t, "the end at the consumer", func() error {
			fc, err := a.foreign(b)
			if err == nil && fc.Status.Outgoing.Joined {
				err = fmt.Errorf("%+v", fc.Status)
			}
			return err
		})
	})
}
