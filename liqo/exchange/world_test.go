package exchange

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/liqo/document"
	"liqo.io/agent/peer"
)

var now = time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)

// box is one of two clusters: its API server, as far as it is about the other one, and its Liqo.
type box struct {
	t      testing.TB
	id     document.ClusterID
	peer   peer.ClusterID
	key    ed25519.PrivateKey
	keys   document.Keys
	here   Here
	server string // its API server, as its Liqo says
	// addresses are those of its nodes.
	addresses string
	network   Network
	uids      int
	writes    []string
}

func newBox(t testing.TB, id document.ClusterID) *box {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	publicDER, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := document.ParseKeys(pemOf("PRIVATE KEY", privateDER), pemOf("PUBLIC KEY", publicDER))
	if err != nil {
		t.Fatal(err)
	}
	return &box{t: t, id: id, peer: peer.ClusterID("agent-of-" + id), key: private, keys: keys, server: "https://10.0.0.1:6443", addresses: "10.0.0.1", network: Network{Problem: "It is off."}}
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (b *box) object(name string) Object {
	b.uids++
	return Object{Name: name, UID: types.UID(fmt.Sprint("uid-", b.uids))}
}

// act does what an action says, as an API server does.
func (b *box) act(a Action) {
	b.t.Helper()
	b.writes = append(b.writes, string(a.Verb)+" "+string(a.Kind))
	h := &b.here
	switch {
	case a.Verb == Create && a.Kind == TenantNamespace && len(h.Namespaces) == 0:
		h.Namespaces = []Namespace{{Object: b.object(a.Name), Peer: a.Peer, Made: true}}
	case a.Verb == Apply && a.Kind == NonceSecret:
		if h.Nonce == nil {
			h.Nonce = &Secret{Object: b.object(a.Name)}
		}
	case a.Verb == Apply && a.Kind == SignedSecret:
		if h.Signed == nil {
			h.Signed = &Secret{Object: b.object(a.Name)}
		}
		signed := *h.Signed
		signed.Nonce = []byte(a.Nonce)
		h.Signed = &signed
	case a.Verb == Apply && a.Kind == TenantObject:
		next := Tenant{Object: b.object(a.Name), Tenant: *a.Tenant}
		if h.Tenant != nil {
			next.Object, next.Auth = h.Tenant.Object, h.Tenant.Auth
		}
		next.Addresses = a.Noted
		h.Tenant = &next
	case a.Verb == Apply && a.Kind == IdentityObject:
		next := Identity{Object: b.object(a.Name), Identity: *a.Identity, Type: document.IdentityControlPlane}
		if h.Identity != nil {
			next.Object, next.Kubeconfig = h.Identity.Object, h.Identity.Kubeconfig
		}
		h.Identity = &next
	case a.Verb == Move:
		next := *h.Identity
		next.APIServer = a.Server
		h.Identity = &next
	case a.Verb == Apply && a.Kind == SliceObject:
		h.Slices = []Slice{{Object: b.object(a.Name), Asks: maps.Clone(a.Asks)}}
	case a.Verb == Drain:
		next := *h.Tenant
		next.Drained = true
		h.Tenant = &next
	case a.Verb == Note && a.Kind == TenantObject:
		next := *h.Tenant
		next.Addresses = a.Noted
		h.Tenant = &next
	case a.Verb == Note && a.Kind == VirtualNode:
		for i := range h.VirtualNodes {
			if h.VirtualNodes[i].Name == a.Name {
				if a.Restart != (h.VirtualNodes[i].Server != "") {
					b.t.Errorf("the virtual kubelet starts again: %v", a.Restart)
				}
				h.VirtualNodes = []Node{{h.VirtualNodes[i].Object, a.Noted}}
			}
		}
	case a.Verb == Create && b.has(a.Kind):
		b.t.Fatalf("made a second time: %+v", a)
	case a.Kind == ConfigurationObject && a.Verb != Delete:
		h.Connected.Configuration = &Configuration{Object: b.object(a.Name), Ours: true, Ranges: a.Ranges}
	case a.Kind == GatewayServer && a.Verb != Delete:
		h.Connected.Server = &Gateway{Object: b.object(a.Name), Ours: true, Endpoint: Endpoint{MTU: a.Endpoint.MTU}}
	case a.Kind == GatewayClient && a.Verb != Delete:
		next := Gateway{Object: b.object(a.Name), Ours: true}
		if h.Connected.Client != nil {
			next = *h.Connected.Client
		}
		next.Endpoint = a.Endpoint
		h.Connected.Client = &next
	case a.Kind == PublicKeyObject && a.Verb != Delete:
		h.Connected.Key = &PublicKey{Object: b.object(a.Name), Ours: true, Key: a.Key}
	case a.Verb == Abandon && !h.Abandoned:
		h.Abandoned = true
	case a.Verb == Delete:
		b.delete(a)
	default:
		b.t.Fatalf("no such action: %+v", a)
	}
}

// has reports whether there is an object of a kind by which networks are connected.
func (b *box) has(k Kind) bool {
	c := b.here.Connected
	return k == ConfigurationObject && c.Configuration != nil || k == GatewayServer && c.Server != nil || k == GatewayClient && c.Client != nil || k == PublicKeyObject && c.Key != nil
}

func (b *box) delete(a Action) {
	h := &b.here
	gone := func(o Object) bool {
		if a.UID == "" || o.UID != a.UID {
			b.t.Fatalf("%s: UID %q, there is %q", a.Kind, a.UID, o.UID)
		}
		return true
	}
	switch a.Kind {
	case TenantNamespace:
		if gone(h.Namespaces[0].Object) {
			*h = Here{}
		}
	case NonceSecret:
		gone(h.Nonce.Object)
		h.Nonce = nil
	case SignedSecret:
		gone(h.Signed.Object)
		h.Signed = nil
	case TenantObject:
		gone(h.Tenant.Object)
		h.Tenant = nil
	case ForeignCluster:
		gone(*h.Foreign)
		h.Foreign = nil
	case CertSecret:
		gone(*h.Certificate)
		h.Certificate = nil
	case ConfigurationObject:
		gone(h.Connected.Configuration.Object)
		h.Connected.Configuration = nil
	case GatewayServer:
		gone(h.Connected.Server.Object)
		h.Connected.Server = nil
	case GatewayClient:
		gone(h.Connected.Client.Object)
		h.Connected.Client = nil
	case PublicKeyObject:
		gone(h.Connected.Key.Object)
		h.Connected.Key = nil
	case IdentityObject:
		gone(h.Identity.Object)
		h.Identity = nil
	case RenewObject:
		h.Replicated = slices.DeleteFunc(h.Replicated, func(r Replica) bool { return r.UID == a.UID })
	case SliceObject, VirtualNode: // they have finalizers
		h.Replicated = slices.DeleteFunc(h.Replicated, func(r Replica) bool { return r.UID == a.UID })
		for i := range h.Slices {
			if h.Slices[i].UID == a.UID {
				h.Slices[i].Deleting = true
			}
		}
		for i := range h.VirtualNodes {
			if h.VirtualNodes[i].UID == a.UID {
				h.VirtualNodes[i].Deleting = true
			}
		}
	}
}

// liqo does the next thing that Liqo's controllers do here, with the provider's Liqo at hand, and
// reports whether there was one.
func (b *box) liqo(provider *box) bool {
	h := &b.here
	switch {
	case h.Foreign == nil && (h.Tenant != nil || h.Identity != nil):
		o := b.object(string(provider.id))
		h.Foreign = &o
	case h.Nonce != nil && h.Nonce.Nonce == nil:
		random := make([]byte, 64)
		_, _ = rand.Read(random)
		h.Nonce = &Secret{Object: h.Nonce.Object, Nonce: []byte(base64.StdEncoding.EncodeToString(random))}
	case h.Signed != nil && !bytes.Equal(h.Signed.Signature, ed25519.Sign(b.key, h.Signed.Nonce)):
		h.Signed = &Secret{Object: h.Signed.Object, Nonce: h.Signed.Nonce, Signature: ed25519.Sign(b.key, h.Signed.Nonce)}
	case h.Tenant != nil && h.Tenant.Auth == nil && h.Nonce != nil:
		b.certify()
	case h.Tenant != nil && h.Tenant.Auth != nil && h.Tenant.Auth.APIServer != b.server && h.Tenant.Addresses == b.addresses: // it was made to look
		next := *h.Tenant
		auth := *next.Auth
		auth.APIServer = b.server
		next.Auth = &auth
		h.Tenant = &next
	case h.Tenant != nil && h.Tenant.Drained && !h.Tenant.Deleting && slices.ContainsFunc(h.Replicated, given):
		h.Replicated = slices.DeleteFunc(h.Replicated, given) // and nobody removes a Renew
	case h.Identity != nil && !h.Identity.Kubeconfig:
		next := *h.Identity
		next.Kubeconfig = true
		h.Identity, h.Kubeconfig = &next, true
	case h.Identity != nil && h.Identity.APIServer != h.Checked && (h.Checked == "" || h.Identity.APIServer == ""):
		h.Checked = h.Identity.APIServer
	case h.Identity == nil && h.Checked != "":
		h.Checked = ""
	case h.Identity == nil && h.Kubeconfig && len(h.Slices) == 0:
		if provider.here.Tenant != nil {
			provider.here.Replicated = nil
		} else if len(provider.here.Replicated) > 0 {
			return false // it has no rights there any more, and tries for ever
		}
		h.Kubeconfig = false
	case len(h.Slices) > 0 && h.Slices[0].Deleting:
		switch {
		case provider.here.Tenant != nil:
			provider.here.Replicated = slices.DeleteFunc(provider.here.Replicated, func(r Replica) bool { return r.Name == h.Slices[0].Name })
		case h.Identity != nil && !strings.HasSuffix(h.Identity.APIServer, "/"):
			return false // it has no rights there any more, and tries for ever
		}
		h.Slices = nil
	case len(h.VirtualNodes) > 0 && (h.VirtualNodes[0].Deleting || len(h.Slices) == 0):
		h.VirtualNodes = nil
	case len(h.Slices) > 0 && h.Slices[0].Accepted() && provider.here.Tenant != nil && provider.here.Tenant.Auth != nil && h.Slices[0].Server != provider.here.Tenant.Auth.APIServer:
		h.Slices = slices.Clone(h.Slices)
		h.Slices[0].Server = provider.here.Tenant.Auth.APIServer
	case len(h.Slices) > 0 && !h.Slices[0].Accepted() && h.Identity != nil && provider.here.Tenant != nil && provider.here.Tenant.Auth != nil:
		s := &h.Slices[0]
		if provider.here.Replicated == nil {
			provider.here.Replicated = []Replica{{provider.object("renew"), RenewObject}, {provider.object(s.Name), SliceObject}}
		}
		s.Authentication, s.Resources = document.Accepted, document.Accepted
		s.Server = provider.here.Tenant.Auth.APIServer
		h.VirtualNodes = []Node{{Object: b.object(s.Name)}}
	default:
		return b.connects(provider)
	}
	return true
}

// connects does the next thing that Liqo's networking does here.
func (b *box) connects(other *box) bool {
	c := &b.here.Connected
	gateway, what := c.gateway()
	switch {
	case c.Configuration != nil && !c.Configuration.Applied:
		next := *c.Configuration
		next.Applied = true
		c.Configuration = &next
	case gateway != nil && gateway.Key == nil:
		next := *gateway
		next.Key = make([]byte, 32)
		_, _ = rand.Read(next.Key)
		if what == document.Server {
			next.Port = 30000 + b.uids
			c.Server = &next
		} else {
			c.Client = &next
		}
	default:
		theirs, role := other.here.Connected.gateway()
		return b.shows(gateway != nil && theirs != nil && what != role && c.Key != nil && bytes.Equal(c.Key.Key, theirs.Key) && c.Configuration != nil &&
			other.here.Connected.Key != nil && bytes.Equal(other.here.Connected.Key.Key, gateway.Key) && theirs.Port == gateway.Port)
	}
	return true
}

// shows has Liqo show whether the networks are connected, and reports whether that is another.
func (b *box) shows(connected bool) bool {
	if b.here.established() == connected || b.here.Foreign == nil {
		return false
	}
	b.here.Shown = nil
	if connected {
		b.here.Shown = []Shown{{Module: "networking", Type: ShownConnection, Status: Established}}
	}
	return true
}

// given reports whether a replica is a ResourceSlice.
func given(r Replica) bool { return r.Kind == SliceObject }

// certify gives the Tenant a certificate, as Liqo does it: the first request only.
func (b *box) certify() {
	b.t.Helper()
	h := &b.here
	block, _ := pem.Decode(h.Tenant.CSR)
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		b.t.Fatal(err)
	}
	certificate, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: csr.Subject, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), BasicConstraintsValid: true,
	}, &x509.Certificate{Subject: pkix.Name{CommonName: "k3s-client-ca"}}, csr.PublicKey, b.key)
	if err != nil {
		b.t.Fatal(err)
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "k3s-server-ca"}, NotBefore: now, NotAfter: now.Add(time.Hour), BasicConstraintsValid: true, IsCA: true,
	}
	ca, err := x509.CreateCertificate(rand.Reader, authority, authority, b.key.Public(), b.key)
	if err != nil {
		b.t.Fatal(err)
	}
	o := b.object("liqo-remote-certificate")
	h.Certificate = &o
	next := *h.Tenant
	next.Auth = &document.Identity{Namespace: h.Namespaces[0].Name, APIServer: b.server, CA: pemOf("CERTIFICATE", ca), Certificate: pemOf("CERTIFICATE", certificate)}
	h.Tenant = &next
}

// world is a consumer and its provider, and the agents of both.
type world struct {
	consumer, provider *box
	wanted, admitted   bool
	overdue, gone, cut bool
	said               *Answer
	heard              *Call
	address, from      netip.Addr // of the provider, and of the consumer
	both               bool       // each of them consumes the other one
	asks               map[string]string
	calls              []Call   // all that were made
	answers            []Answer // all that came
}

func newWorld(t testing.TB) *world {
	return &world{consumer: newBox(t, "barn"), provider: newBox(t, "mill"), wanted: true, admitted: true, address: netip.MustParseAddr("192.0.2.7"), from: netip.MustParseAddr("192.0.2.5")}
}

// newConnected returns two clusters whose networks Liqo can connect.
func newConnected(t testing.TB) *world {
	w := newWorld(t)
	for i, b := range []*box{w.consumer, w.provider} {
		b.network = Network{
			Ranges: Ranges{Pods: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, External: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 70 + byte(i)}), 16)}},
			Taken:  []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
		}
	}
	return w
}

// other is the ID of the other cluster: as it said, or as the namespace in care says.
func other(here Here, id, said document.ClusterID) document.ClusterID {
	if len(here.Namespaces) > 0 {
		return id
	}
	return said
}

func (w *world) consumerPlan() Decision {
	obs := Consumer{
		Peer: w.provider.peer, Wanted: w.wanted, Gone: w.gone, Cut: w.cut, Self: w.consumer.id, Keys: &w.consumer.keys, Asks: w.asks, Here: w.consumer.here, Said: w.said, Address: w.address, Now: now,
		Serves: w.both, Network: w.consumer.network,
	}
	if w.said != nil {
		obs.Provider = w.said.ClusterID
	}
	obs.Provider = other(w.consumer.here, w.provider.id, obs.Provider)
	return PlanConsumer(obs)
}

func (w *world) providerPlan() Decision {
	obs := Provider{Peer: w.consumer.peer, Wanted: w.admitted, Overdue: w.overdue, Cut: w.cut, Self: w.provider.id, Addresses: w.provider.addresses, Here: w.provider.here, Said: w.heard,
		Consumes: w.both, Network: w.provider.network, Address: w.from}
	if w.heard != nil {
		obs.Consumer = w.heard.ClusterID
	}
	obs.Consumer = other(w.provider.here, w.consumer.id, obs.Consumer)
	return PlanProvider(obs)
}

// carry carries out a plan up to that many actions, all if it is negative.
func carry(b *box, d Decision, most int) bool {
	for i, a := range d.Actions {
		if i == most {
			break
		}
		b.act(a)
	}
	return len(d.Actions) > 0
}

// settle lets everybody work until nobody has anything left to do.
func (w *world) settle(t testing.TB) (consumer, provider Decision) {
	t.Helper()
	for range 200 {
		busy := false
		provider = w.providerPlan()
		busy = carry(w.provider, provider, -1) || busy
		consumer = w.consumerPlan()
		busy = carry(w.consumer, consumer, -1) || busy
		busy = w.consumer.liqo(w.provider) || busy
		busy = w.provider.liqo(w.consumer) || busy
		if consumer.Call != nil && w.admitted && (len(w.calls) == 0 || !w.calls[len(w.calls)-1].Equal(*consumer.Call)) {
			w.call(*consumer.Call)
			busy = true
		}
		if answer := w.providerPlan().Answer; w.wanted && w.heard != nil && !sameAnswer(w.said, answer) {
			w.answer(answer)
			busy = true
		}
		if !busy {
			return w.consumerPlan(), w.providerPlan()
		}
	}
	t.Fatalf("they never end: consumer %+v, provider %+v", consumer, provider)
	return
}

func (w *world) call(c Call) {
	w.heard = &c
	w.calls = append(w.calls, c)
}

func (w *world) answer(a Answer) {
	w.said = &a
	w.answers = append(w.answers, a)
}

// consumerAsks has the consumer call the provider, if it has something to say.
func (w *world) consumerAsks() {
	if d := w.consumerPlan(); d.Call != nil {
		w.call(*d.Call)
	}
}

// providerReplies has the provider answer the last call, if there was one.
func (w *world) providerReplies() {
	if w.heard != nil {
		w.answer(w.providerPlan().Answer)
	}
}

func sameAnswer(a *Answer, b Answer) bool {
	return a != nil && a.ClusterID == b.ClusterID && a.Nonce == b.Nonce && bytes.Equal(a.Identity, b.Identity) && bytes.Equal(a.Network, b.Network) && a.Waits == b.Waits
}
