//go:build linux

package crowd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/peering/remote"
	"liqo.io/agent/trust"
)

// lookEvery is how often a provider looks at its consumer, as a real agent does.
const lookEvery = 30 * time.Second

// offerLasts is until when a provider's offer stands; no benchmark takes that
// long.
const offerLasts = 6 * time.Hour

// provider is the part of a box that shares its capacity: a real endpoint with
// mutual TLS and the gateway, the real calls to its consumer, and in place of an
// API server a memory for the one PeeringRequest that there is. It lets in the
// first cluster that asks.
type provider struct {
	box    *Box
	issuer *trust.Issuer
	server *endpoint.Server
	syncer *remote.Syncer

	mu       sync.Mutex
	consumer peer.ClusterID
	key      peer.Fingerprint
	at       netip.AddrPort
	request  *api.PeeringRequestSpec
	version  int
	offered  *api.AdvertisementSpec
}

// newProvider makes the box's key and binds its port. It has to run inside the
// host.
func newProvider(ctx context.Context, b *Box, key *trust.Key, port uint16) (*provider, error) {
	p := &provider{box: b}
	p.issuer = trust.NewIssuer(key, func() peer.ClusterID { return b.ID })
	logger := slog.New(slog.DiscardHandler)
	p.server = endpoint.NewServer(endpoint.ServerConfig{
		Listen: netip.AddrPortFrom(b.Addr, port).String(), Issuer: p.issuer, Identity: p.identity, Peers: p,
		Gateway: gateway.New(gateway.Config{
			Upstream: func() (gateway.Upstream, bool) {
				return gateway.Upstream{Base: &url.URL{Scheme: "https", Host: "memory"}, Transport: p}, true
			},
			Logger: logger,
		}),
		Logger: logger,
	})
	p.syncer = remote.New(remote.Config{
		Peers:    newCaller(b.Addr, p.issuer),
		Greeting: func() wire.Greeting { return wire.Greeting{Identity: p.identity(), Port: port} },
		Changed:  func(peer.ClusterID) {}, Interval: lookEvery, Workers: 1, Logger: logger,
	})
	return p, p.server.Listen(ctx)
}

// caller makes a box's calls from the box's own address, on one connection that it
// keeps. It looks at nobody's key: what is measured is the other end.
type caller struct{ client *http.Client }

func newCaller(from netip.Addr, issuer *trust.Issuer) *caller {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
	return &caller{&http.Client{Transport: &http.Transport{
		DialContext:     dialer.DialContext,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, GetClientCertificate: issuer.GetClientCertificate},
		MaxConnsPerHost: 1,
	}}}
}

// Exchange implements remote.Caller.
func (c *caller) Exchange(ctx context.Context, t peer.Target, r client.Request) (client.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, "https://"+t.Addrs[0].String()+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return client.Response{}, err
	}
	if len(r.Body) == 0 {
		req.Body = http.NoBody
	}
	req.Header.Set("Content-Type", cmp.Or(r.ContentType, "application/json"))
	resp, err := c.client.Do(req)
	if err != nil {
		return client.Response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	out := client.Response{Status: resp.StatusCode, Body: body}
	out.Result.Fingerprint = t.Fingerprint
	return out, err
}

// provide runs the providers of all boxes, which announce themselves, until ctx ends.
func (c *Crowd) provide(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, len(c.Boxes))
	for _, b := range c.Boxes {
		p, err := newProvider(ctx, b, b.cluster, c.opts.Port)
		if err != nil {
			return err
		}
		all.Go(func() { failed <- p.run(ctx) })
	}
	again := time.After(time.Second)
	if err := c.announceAll(); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-again:
			if err := c.announceAll(); err != nil {
				return err
			}
		}
	}
}

// announceAll has each box say that it is there, as it does twice when it begins (RFC 6762 section 8.3).
func (c *Crowd) announceAll() error {
	for i := range c.Boxes {
		if err := c.Announce(i); err != nil {
			return err
		}
	}
	return nil
}

// loadKey returns the cluster key that a box keeps in a directory, or a new one that is kept nowhere.
func loadKey(dir, name string) (*trust.Key, error) {
	if dir != "" {
		return trust.LoadOrCreateKey(filepath.Join(dir, name))
	}
	dir, err := os.MkdirTemp("", "neighbour")
	if err != nil {
		return nil, err
	}
	key, err := trust.LoadOrCreateKey(dir)
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	return key, err
}

func (p *provider) run(ctx context.Context) error {
	var background sync.WaitGroup
	background.Go(func() { _ = p.syncer.Run(ctx) }) // it returns nil
	err := p.server.Run(ctx)
	background.Wait()
	return err
}

func (p *provider) identity() peer.Identity {
	return peer.Identity{ClusterID: p.box.ID, ClusterName: p.box.Name, GuestNamespace: "liqo"}
}

// Admit implements endpoint.Peers.
func (p *provider) Admit(id peer.ClusterID, shown trust.Shown) endpoint.AccessLevel {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id == p.consumer && shown.Fingerprint == p.key {
		return endpoint.Known
	}
	return endpoint.Stranger
}

// Ask implements endpoint.Peers.
func (p *provider) Ask(_ context.Context, c endpoint.Caller, a wire.Ask) wire.Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.consumer != "" && (p.consumer != c.ID || p.key != c.Shown.Fingerprint) {
		return wire.Answer{Auth: api.AuthRefused, Reason: wire.ReasonPolicyNone, Message: "somebody else was first"}
	}
	p.consumer, p.key = c.ID, c.Shown.Fingerprint
	p.at = netip.AddrPortFrom(c.Source, a.Port)
	return wire.Answer{Auth: api.AuthAccepted, Reason: wire.ReasonTrusted, Message: "come in"}
}

// State implements endpoint.Peers.
func (p *provider) State(_ context.Context, c endpoint.Caller, g wire.Greeting) wire.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = netip.AddrPortFrom(c.Source, g.Port)
	st := wire.State{Identity: p.identity(), Kubernetes: true}
	if p.request != nil {
		st.Request = &wire.RequestState{UID: fmt.Sprintf("uid-%d", p.version), Phase: api.RequestAccepted, Reason: "Trusted", Spec: *p.request}
	}
	return st
}

// Withdraw implements endpoint.Peers.
func (p *provider) Withdraw(_ context.Context, _ endpoint.Caller, w wire.Withdrawal) error {
	if w.Request {
		p.set(nil)
	}
	return nil
}

// Notice implements endpoint.Peers.
func (p *provider) Notice(c endpoint.Caller) { p.syncer.Check(c.ID) }

// set takes in the consumer's request, nil for none, and offers what is to be
// offered then.
func (p *provider) set(spec *api.PeeringRequestSpec) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.request == nil && spec != nil {
		p.version++
		now := metav1.NewTime(time.Now().Truncate(time.Second))
		p.offered = &api.AdvertisementSpec{
			ClusterID:     string(p.box.ID),
			ResourceQuota: api.ResourceQuota{Hard: map[string]string{"cpu": "2", "memory": "3Gi", "pods": "110"}},
			Timestamp:     now, TimeToLive: metav1.NewTime(now.Add(offerLasts)),
		}
	}
	p.request = spec
	desired := plan.RemoteSpec{
		Target:  peer.Target{ID: p.consumer, Fingerprint: p.key, Addrs: []netip.AddrPort{p.at}},
		Contact: true,
	}
	if spec != nil {
		desired.Advertisement = p.offered
	} else {
		desired.AdvertisementGone = true
	}
	p.syncer.Set(p.consumer, desired)
}

// RoundTrip is the API server: it knows one PeeringRequest.
func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	status := http.StatusOK
	var body any = map[string]any{}
	name := path.Base(r.URL.Path)
	switch r.Method {
	case http.MethodPatch:
		var pr api.PeeringRequest
		text, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(text, &pr)
		}
		if err != nil {
			return nil, err
		}
		p.set(&pr.Spec)
		pr.UID = "uid"
		body = pr
	case http.MethodDelete:
		p.set(nil)
	default:
		status, body = http.StatusNotFound, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Message: name + " not found", Code: http.StatusNotFound}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)),
	}, nil
}
