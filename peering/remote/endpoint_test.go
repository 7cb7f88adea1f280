package remote

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/trust"
)

// cluster is a peer with a real endpoint, a gateway and something behind it that
// keeps objects as an API server does.
type cluster struct {
	key    *trust.Key
	issuer *trust.Issuer
	port   uint16

	mu      sync.Mutex
	known   map[peer.ClusterID]peer.Fingerprint
	objects map[string]json.RawMessage // path -> spec
	users   map[string]bool            // who the API server saw
	calls   int
	notices int
}

func newCluster(t *testing.T, id peer.ClusterID) *cluster {
	t.Helper()
	key, err := trust.LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{
		key: key, issuer: trust.NewIssuer(key, func() peer.ClusterID { return id }),
		known: make(map[peer.ClusterID]peer.Fingerprint), objects: make(map[string]json.RawMessage), users: make(map[string]bool),
	}
}

// serve runs the endpoint until the test ends.
func (c *cluster) serve(t *testing.T) {
	t.Helper()
	upstream := httptest.NewTLSServer(http.HandlerFunc(c.apiServer))
	t.Cleanup(upstream.Close)
	base, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := endpoint.NewServer(endpoint.ServerConfig{
		Listen: "127.0.0.1:0", Issuer: c.issuer, Identity: c.identity, Peers: c, Logger: slog.New(slog.DiscardHandler),
		Gateway: gateway.New(gateway.Config{
			Upstream: func() (gateway.Upstream, bool) {
				return gateway.Upstream{Base: base, Transport: upstream.Client().Transport, Users: api.PeerUsers{Namespace: "liqo"}}, true
			},
			Logger: slog.New(slog.DiscardHandler),
		}),
	})
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.port = s.Port()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (c *cluster) target() peer.Target {
	return peer.Target{
		ID: them, Fingerprint: c.key.Fingerprint(), Addrs: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), c.port)},
	}
}

func (c *cluster) identity() peer.Identity {
	return peer.Identity{ClusterID: them, ClusterName: "them", GuestNamespace: "liqo"}
}

func (c *cluster) apiServer(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users[r.Header.Get("Impersonate-User")] = true
	w.Header().Set("Content-Type", "application/json")
	status := http.StatusOK
	switch r.Method {
	case http.MethodPatch:
		var body struct{ Spec json.RawMessage }
		text, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(text, &body); err != nil {
			status = http.StatusBadRequest
		}
		if c.objects[r.URL.Path] == nil {
			status = http.StatusCreated
		}
		c.objects[r.URL.Path] = body.Spec
	case http.MethodDelete:
		if c.objects[r.URL.Path] == nil {
			status = http.StatusNotFound
		}
		delete(c.objects, r.URL.Path)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "{}")
}

// The methods of endpoint.Peers.

func (c *cluster) Admit(id peer.ClusterID, shown trust.Shown) endpoint.AccessLevel {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[id] == shown.Fingerprint {
		return endpoint.Known
	}
	return endpoint.Stranger
}

func (c *cluster) Ask(_ context.Context, caller endpoint.Caller, a wire.Ask) wire.Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if a.Token != "right" && a.Token != "second" {
		return wire.Answer{Auth: api.AuthRefused, Reason: wire.ReasonBadToken, Message: "no"}
	}
	c.known[caller.ID] = caller.Shown.Fingerprint
	return wire.Answer{Auth: api.AuthAccepted, Reason: wire.ReasonTrusted, Message: "welcome"}
}

func (c *cluster) State(context.Context, endpoint.Caller, wire.Greeting) wire.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	s := wire.State{Identity: c.identity(), Kubernetes: true, AdvertisementWelcome: true}
	for path, spec := range c.objects {
		if strings.Contains(path, api.PluralPeeringRequests) {
			s.Request = &wire.RequestState{UID: "u", Phase: api.RequestAccepted}
			_ = json.Unmarshal(spec, &s.Request.Spec)
		} else {
			s.Advertisement = &wire.OfferState{UID: "v", Status: api.AdvertisementAccepted}
			_ = json.Unmarshal(spec, &s.Advertisement.Spec)
		}
	}
	return s
}

func (c *cluster) Withdraw(context.Context, endpoint.Caller, wire.Withdrawal) error { return nil }

func (c *cluster) Notice(endpoint.Caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notices++
}

// seen returns how many objects there are, how many calls and notices came.
func (c *cluster) seen() (objects, calls, notices int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.objects), c.calls, c.notices
}

// run runs a Syncer for a cluster of ours until the test ends.
func (c *cluster) run(t *testing.T) *Syncer {
	t.Helper()
	caller := client.New(client.Config{Issuer: c.issuer, Keep: 4, Timeout: time.Minute})
	t.Cleanup(caller.Close)
	s := New(Config{Peers: caller, Greeting: greeting, Changed: func(peer.ClusterID) {}, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen", what)
		}
	}
}

// The whole way: through TLS, the peer's endpoint and its gateway.
func TestThroughARealEndpoint(t *testing.T) {
	home, foreign := newCluster(t, us), newCluster(t, them)
	foreign.serve(t)
	s := home.run(t)
	want := plan.RemoteSpec{
		Target: foreign.target(), Contact: true, Ask: true, Token: "right", Request: request(), Advertisement: offer("4"),
	}
	s.Set(them, want)
	eventually(t, "both objects are there", func() bool {
		got := s.Get(them)
		return got.State != nil && got.State.Request != nil && got.State.Advertisement != nil
	})
	got := s.Get(them)
	if got.State.Request.Spec != *request() || !sameOffer(got.State.Advertisement.Spec, *offer("4")) || got.Err != nil ||
		string(got.CA) != string(foreign.key.CA().Raw) || !foreign.users["system:serviceaccount:liqo:liqo-peer-"+string(us)] || len(foreign.users) != 1 {
		t.Errorf("%+v, as %v", got, foreign.users)
	}
	s.Notify(them)
	eventually(t, "the notice arrives", func() bool { _, _, n := foreign.seen(); return n == 1 })

	// They forget us. The token was for once; another one opens again.
	foreign.mu.Lock()
	clear(foreign.known)
	foreign.mu.Unlock()
	s.Check(them)
	eventually(t, "we are refused", func() bool {
		got := s.Get(them)
		return got.Asked != nil && got.Asked.Reason == wire.ReasonBadToken
	})
	want.Token = "second"
	s.Set(them, want)
	eventually(t, "we are let in again", func() bool {
		got := s.Get(them)
		return got.Asked != nil && got.Asked.Auth == api.AuthAccepted && got.Denied == ""
	})
	s.Set(them, plan.RemoteSpec{Target: foreign.target(), RequestGone: true, AdvertisementGone: true})
	s.Set(them, plan.RemoteSpec{})
	eventually(t, "both objects are gone", func() bool { n, _, _ := foreign.seen(); return n == 0 })
}

// Somebody else with the peer's address, and its ID, sees nothing of us.
func TestNothingGoesToAnotherKey(t *testing.T) {
	home, foreign, impostor := newCluster(t, us), newCluster(t, them), newCluster(t, them)
	impostor.serve(t)
	foreign.port = impostor.port
	s := home.run(t)
	s.Set(them, plan.RemoteSpec{
		Target: foreign.target(), Contact: true, Ask: true, Token: "right", Request: request(), Advertisement: offer("4"), AdvertisementGone: true,
	})
	s.Notify(them)
	eventually(t, "the call fails by the key", func() bool {
		got := s.Get(them)
		return got.Failures >= 2 && strings.Contains(got.Err.Error(), impostor.key.Fingerprint().String())
	})
	if objects, calls, notices := impostor.seen(); objects+calls+notices != 0 {
		t.Errorf("%d objects, %d calls, %d notices arrived", objects, calls, notices)
	}
}
