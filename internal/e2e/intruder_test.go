//go:build linux

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// caller calls endpoints from a host, with a cluster key.
type caller struct {
	t      *testing.T
	client *http.Client
	at     netip.Addr // whose endpoint
}

// newCaller calls from a host to an address. key nil: without a certificate.
func newCaller(t *testing.T, from *bed.Host, key *trust.Key, id string, at netip.Addr) *caller {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true} // an attacker does not mind who answers
	if key != nil {
		config.GetClientCertificate = trust.NewIssuer(key, func() peer.ClusterID { return peer.ClusterID(id) }).GetClientCertificate
	}
	transport := &http.Transport{DialContext: from.DialContext, TLSClientConfig: config, DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{t: t, at: at, client: &http.Client{
		Transport: transport, Timeout: soon,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// keyOf is the cluster key of a box, as a thief has it.
func keyOf(t *testing.T, x *box) *trust.Key {
	t.Helper()
	key, err := trust.LoadOrCreateKey(x.host.Path(filepath.Dir(statePath)))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// call sends a request as it is and returns status and body.
func (c *caller) call(method, path string, header http.Header, body []byte) (int, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, "https://"+netip.AddrPortFrom(c.at, 6447).String(), bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body == nil {
		r.Body, r.ContentLength = nil, 0
	}
	// Opaque goes on the wire as it is.
	r.URL.Opaque = path
	for k, v := range header {
		r.Header[k] = v
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return resp.StatusCode, err.Error()
	}
	return resp.StatusCode, string(text)
}

// Beside a peering are a peer that wants more than is its own, strangers, some of them many, and one who sits in a peer's place.
func TestIntruders(t *testing.T) {
	t.Parallel()
	p := newPair(t, "")
	p.join()
	p.works()
	t.Run("a peer reaches only its own", p.reachesOnlyItsOwn)
	t.Run("strangers may ask", p.strangersMayAsk)
	t.Run("a flood of connections", p.flooded)
	t.Run("an impostor at the peer's address", p.impersonated)
}

// A peer that is let in, with all that its own key allows, reaches its own
// request and its own offer at a real API server, and nothing else.
func (p *pair) reachesOnlyItsOwn(t *testing.T) {
	// What there is to steal: another peer's objects, and a Secret.
	p.b.kubectl("create", "secret", "generic", "treasure", "-n", "default", "--from-literal", "x=gold")
	c := newCaller(t, p.a.host, keyOf(t, p.a), p.aID, p.b.addr)
	own := "/kube" + prPath + "/" + p.aID
	if status, body := c.must(attempt{"GET", own, nil, nil}); status != http.StatusOK || !strings.Contains(body, p.aID) {
		t.Fatalf("its own request: %d %s", status, body)
	}
	apply := http.Header{"Content-Type": {"application/apply-patch+yaml"}}
	patch := func(kind, name, more string) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"discovery.liqo.io/v1alpha1","kind":%q,"metadata":{"name":%q%s},"spec":{"clusterIdentity":{"clusterID":%q}}}`, kind, name, more, name)
	}
	for _, tc := range []struct {
		method, path string
		header       http.Header
		body         []byte
	}{
		{"GET", "/kube" + prPath, nil, nil},
		{"GET", "/kube" + prPath + "?watch=true", nil, nil},
		{"GET", own + "?watch=true", nil, nil},
		{"GET", own + "/status", nil, nil},
		{"GET", "/kube" + prPath + "/" + p.bID, nil, nil},
		{"GET", "/kube" + advPath, nil, nil},
		{"GET", "/kube" + advPath + "/" + p.bID, nil, nil},
		{"GET", "/kube" + fcPath, nil, nil},
		{"GET", "/kube/api/v1/secrets", nil, nil},
		{"GET", "/kube/api/v1/namespaces/default/secrets/treasure", nil, nil},
		{"GET", "/kube/api/v1/namespaces/liqo/secrets/liqo-peer-" + p.aID, nil, nil},
		{"GET", "/kube/api/v1/nodes", nil, nil},
		{"GET", "/kube/api/v1/pods", nil, nil},
		{"GET", "/kube/metrics", nil, nil},
		{"GET", "/kube/version", nil, nil},
		{"GET", "/kube/", nil, nil},
		{"GET", "/kube", nil, nil},
		{"GET", "/metrics", nil, nil},
		{"GET", "/api/v1/nodes", nil, nil},
		{"GET", prPath + "/" + p.aID, nil, nil},
		{"GET", "/kube//apis/discovery.liqo.io/v1alpha1/peeringrequests/" + p.aID, nil, nil},
		{"GET", own + "/../../../../../api/v1/nodes", nil, nil},
		{"GET", own + "/..%2f..%2f..%2f..%2f..%2fapi/v1/nodes", nil, nil},
		{"GET", own + "%2f..%2f" + p.bID, nil, nil},
		{"GET", strings.Replace(own, "peeringrequests", "PeeringRequests", 1), nil, nil},
		{"GET", own + ";x=/api/v1/nodes", nil, nil},
		{"GET", own, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, nil},
		{"POST", "/kube" + prPath, http.Header{"Content-Type": {"application/json"}}, patch("PeeringRequest", p.bID, "")},
		{"PUT", own, http.Header{"Content-Type": {"application/json"}}, patch("PeeringRequest", p.aID, "")},
		{"DELETE", "/kube" + prPath, nil, nil},
		{"PATCH", own, http.Header{"Content-Type": {"application/merge-patch+json"}}, []byte(`{"metadata":{"finalizers":["a/b"]}}`)},
		{"PATCH", own, apply, patch("PeeringRequest", p.aID, `,"finalizers":["a/b"]`)},
		{"PATCH", own, apply, patch("PeeringRequest", p.bID, "")},
		{"PATCH", "/kube" + prPath + "/" + p.bID, apply, patch("PeeringRequest", p.bID, "")},
		{"PATCH", own, apply, bytes.Repeat([]byte(" "), 1<<20)},
		{"CONNECT", own, nil, nil},
	} {
		if status, body := c.call(tc.method, tc.path, tc.header, tc.body); status >= 200 && status < 400 {
			t.Errorf("%s %s: %d %s", tc.method, tc.path, status, body)
		}
	}
	// Whatever it says about who it is, it is itself.
	for _, header := range []http.Header{
		{"Impersonate-User": {"system:admin"}, "Impersonate-Group": {"system:masters"}},
		{"X-Remote-User": {"system:admin"}, "X-Remote-Group": {"system:masters"}},
		{"Authorization": {"Bearer x"}},
	} {
		if status, body := c.call("GET", "/kube"+prPath+"/"+p.bID, header, nil); status < 400 {
			t.Errorf("with %v: %d %s", header, status, body)
		}
	}
	// RBAC alone, without the gateway's list, says the same.
	out, err := p.b.kube.Kubectl(t.Context(), "auth", "can-i", "--list", "--as", "system:serviceaccount:liqo:liqo-peer-"+p.aID, "--as-group", "liqo:peers")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) > 1 && strings.Contains(fields[0], ".") && !strings.HasPrefix(fields[0], "selfsubject") &&
			!strings.Contains(line, "["+p.aID+"]") {
			t.Errorf("RBAC lets the peer do more: %s", line)
		}
	}
	p.works()
}

// Who is not trusted gets no further than to ask.
func (p *pair) strangersMayAsk(t *testing.T) {
	own, err := trust.LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const stranger = "5f4dcc3b-0000-4000-8000-000000000001"
	nobody := newCaller(t, p.a.host, nil, "", p.b.addr)
	if status, body := nobody.call("GET", "/ids", nil, nil); status != http.StatusOK || !strings.Contains(body, `"clusterId":"`+p.bID) {
		t.Errorf("/ids: %d %s", status, body)
	}
	greeting := func(id string) []byte {
		text, err := json.Marshal(wire.Ask{Greeting: wire.Greeting{Port: 6447,
			Identity: peer.Identity{ClusterID: peer.ClusterID(id), ClusterName: "stranger", GuestNamespace: "liqo"}}})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	jsonBody := http.Header{"Content-Type": {"application/json"}}
	for name, c := range map[string]*caller{
		"nobody":                             nobody,
		"a stranger":                         newCaller(t, p.a.host, own, stranger, p.b.addr),
		"a thief of the ID with his own key": newCaller(t, p.a.host, own, p.aID, p.b.addr),
	} {
		for _, path := range []string{wire.PathState, wire.PathWithdraw, wire.PathNotice} {
			if status, body := c.call("POST", path, jsonBody, greeting(p.aID)); status < 400 {
				t.Errorf("%s: POST %s: %d %s", name, path, status, body)
			}
		}
		if status, body := c.call("GET", "/kube"+prPath+"/"+p.aID, nil, nil); status < 400 {
			t.Errorf("%s: the gateway: %d %s", name, status, body)
		}
	}
	thief := newCaller(t, p.a.host, own, p.aID, p.b.addr)
	p.b.eventually("the stolen ID is refused", func() error {
		status, body := thief.call("POST", wire.PathAsk, jsonBody, greeting(p.aID))
		var answer wire.Answer
		if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.Auth != api.AuthRefused {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	if got := p.b.peerJSON(p.aID).Trust; got.Mode != control.Trusted || got.Fingerprint != p.a.mustStatus().Identity.Fingerprint {
		t.Errorf("after the thief asked: %+v", got)
	}
	p.works()
}

// Somebody with another key sits at the address of a joined peer, and multicasts
// in its name. Nothing is said to him, and the peering stands.
func (p *pair) impersonated(t *testing.T) {
	before := p.objects()
	p.b.host.Link("eth0").Unplug()
	p.a.awaitStatus("notices that the peer is away", p.bID, func(fc *api.ForeignCluster) error {
		return condition(fc, api.ConditionReachable, api.ConditionFalse, "")
	})
	// The impostor is a whole agent of the same ID and name, at the same address.
	impostor := newImpostor(t, p)
	// Who takes over an address announces it on the link (RFC 5227 section 2.3).
	if _, err := p.a.host.Run(t.Context(), "ip", "neigh", "flush", "dev", "eth0"); err != nil {
		t.Fatal(err)
	}
	p.a.eventually("the other key is seen and refused", func() error {
		impostor.announce()
		if q, err := p.a.peer(p.bID); err != nil || q.Conflict == nil {
			return fmt.Errorf("no conflict: %+v %v", q, err)
		}
		return nil
	})
	for _, asked := range impostor.paths() {
		if asked != "/ids" {
			t.Errorf("the impostor was asked for %s", asked)
		}
	}
	fc, err := p.a.full(p.bID)
	if err != nil || outgoing(true)(fc) != nil || fc.Status.Fingerprint != p.a.peerJSON(p.bID).Trust.Fingerprint {
		t.Errorf("%+v %v", fc.Status, err)
	}
	impostor.leave()
	p.b.host.Link("eth0").Plug()
	p.works()
	p.same(before)
}

// impostor answers at a peer's address with a key of its own, and writes down
// what it is asked.
type impostor struct {
	t     *testing.T
	host  *bed.Host
	close func()
	mdns  *attacker
	claim claim
	said  time.Time

	mu    sync.Mutex
	asked []string
}

func newImpostor(t *testing.T, p *pair) *impostor {
	t.Helper()
	i := &impostor{t: t, mdns: newAttacker(t, p.bed, "impostor", p.b.addr)}
	i.host = i.mdns.host
	key, err := trust.LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	issuer := trust.NewIssuer(key, func() peer.ClusterID { return peer.ClusterID(p.bID) })
	var l net.Listener
	if err := i.host.Do(func() (err error) {
		l, err = net.Listen("tcp4", ":6447")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: issuer.GetCertificate, ClientAuth: tls.RequestClientCert},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			i.mu.Lock()
			i.asked = append(i.asked, r.URL.Path)
			i.mu.Unlock()
			_ = json.NewEncoder(w).Encode(peer.Identity{ClusterID: peer.ClusterID(p.bID), ClusterName: "birch", GuestNamespace: "liqo"})
		}),
	}
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(l, "", "") }()
	i.close = sync.OnceFunc(func() {
		srv.Close()
		<-done
	})
	t.Cleanup(i.close)
	i.claim = claimFor(p.bID, key.Fingerprint(), p.b.addr)
	i.claim.id = p.bID
	return i
}

// announce multicasts the claim, once a second at most. It has to be said again and again: nobody answers here when it is asked for,
// so a first one that cannot be verified because the address still leads to the other box is forgotten.
func (i *impostor) announce() {
	if time.Since(i.said) < time.Second {
		return
	}
	i.said = time.Now()
	i.mdns.say(i.claim.all()...)
}

func (i *impostor) paths() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]string(nil), i.asked...)
}

// leave takes the impostor off the network.
func (i *impostor) leave() {
	i.close()
	i.host.Link("eth0").Unplug()
}

// A flood of connections does not keep a peer out.
func (p *pair) flooded(t *testing.T) {
	flooder := p.bed.AddHost("flooder", "10.77.0.200/24")
	const atOnce, least = 200, 2000
	slots := make(chan struct{}, atOnce)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var flood sync.WaitGroup
	var dialed atomic.Int64
	target := netip.AddrPortFrom(p.b.addr, 6447).String()
	flood.Go(func() {
		var open sync.WaitGroup
		defer open.Wait()
		for {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			open.Go(func() {
				defer func() { <-slots }()
				conn, err := flooder.DialContext(ctx, "tcp", target)
				if err != nil {
					return
				}
				defer conn.Close()
				dialed.Add(1)
				// Silent until the server has had enough.
				_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
				_, _ = io.Copy(io.Discard, conn)
			})
		}
	})
	p.b.eventually("the flood is one", func() error {
		if n := dialed.Load(); n < least {
			return fmt.Errorf("%d connections", n)
		}
		return nil
	})
	p.works()
	st := p.b.mustStatus()
	cancel()
	flood.Wait()
	p.works()
	if st.Endpoint.Connections > 256 {
		t.Errorf("%d connections", st.Endpoint.Connections)
	}
	if dropped := st.Drops; len(dropped) == 0 {
		t.Error(errors.New("nothing of the flood was counted"))
	}
}
