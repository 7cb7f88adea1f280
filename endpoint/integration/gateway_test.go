package integration

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

func TestMain(m *testing.M) { bed.Main(m) }

// everybody is known, and none of them calls.
type everybody struct{ endpoint.Peers }

func (everybody) Admit(peer.ClusterID, trust.Shown) endpoint.AccessLevel { return endpoint.Known }

// cluster is one end: a key and an ID.
type cluster struct {
	id     peer.ClusterID
	key    *trust.Key
	issuer *trust.Issuer
}

func newCluster(t *testing.T, id peer.ClusterID) cluster {
	t.Helper()
	key, err := trust.LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return cluster{id, key, trust.NewIssuer(key, func() peer.ClusterID { return id })}
}

// caller sends requests of one cluster to another.
type caller struct {
	t      *testing.T
	client *client.Client
	target peer.Target
}

func (c caller) send(method, path, body string) (int, map[string]any) {
	c.t.Helper()
	request := client.Request{Method: method, Path: path}
	if body != "" {
		request.Body, request.ContentType = []byte(body), "application/apply-patch+yaml"
	}
	resp, err := c.client.Exchange(c.t.Context(), c.target, request)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	var object map[string]any
	if err := json.Unmarshal(resp.Body, &object); err != nil {
		c.t.Fatalf("%s %s: %v in %s", method, path, err, resp.Body)
	}
	return resp.Status, object
}

// deep returns a value in nested objects.
func deep(object map[string]any, path ...string) any {
	var v any = object
	for _, name := range path {
		within, _ := v.(map[string]any)
		v = within[name]
	}
	return v
}

const (
	requestPath = "/apis/discovery.liqo.io/v1alpha1/peeringrequests"
	advertPath  = "/apis/sharing.liqo.io/v1alpha1/advertisements"
)

func request(id, name string) string {
	return fmt.Sprintf(`{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"PeeringRequest","metadata":{"name":%q},"spec":{"clusterIdentity":{"clusterID":%q,"clusterName":%q},"namespace":"liqo"}}`, id, id, name)
}

// A peer does with its own objects what RBAC lets it do, as itself, and gets no
// further.
func TestGateway(t *testing.T) {
	k := bed.New(t).AddCluster(t.Context(), "box", "10.77.0.1/24")
	for _, crd := range api.CRDs() {
		if err := k.Apply(t.Context(), string(crd.YAML)); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=30s", "crd/"+crd.Name); err != nil {
			t.Fatal(err)
		}
	}
	config := k.RESTConfig()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var deleted []string
	home, mill, barn := newCluster(t, "home"), newCluster(t, "mill"), newCluster(t, "barn")
	server := endpoint.NewServer(endpoint.ServerConfig{
		Listen: "127.0.0.1:0", Issuer: home.issuer, Peers: everybody{}, Logger: slog.New(slog.DiscardHandler),
		Identity: func() peer.Identity { return peer.Identity{ClusterID: home.id} },
		Gateway: gateway.New(gateway.Config{
			Upstream: func() (gateway.Upstream, bool) {
				return gateway.Upstream{Base: base, Transport: transport, Users: api.PeerUsers{Namespace: "liqo"}}, true
			},
			DeletedByPeer: func(id peer.ClusterID, resource string) func(int) {
				return func(status int) {
					mu.Lock()
					defer mu.Unlock()
					deleted = append(deleted, fmt.Sprint(id, " ", resource, " ", status))
				}
			},
			Logger: slog.New(slog.DiscardHandler),
		}),
	})
	if err := server.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	bedtest.Run(t, nil, nil, server.Run)
	as := func(c cluster) caller {
		client := client.New(client.Config{Issuer: c.issuer, Keep: 1, Timeout: bedtest.RequestTimeout})
		t.Cleanup(client.Close)
		return caller{t, client, peer.Target{
			ID: home.id, Fingerprint: home.key.Fingerprint(),
			Addrs: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), server.Port())},
		}}
	}
	peerMill := as(mill)
	own := wire.PathGateway[:len(wire.PathGateway)-1] + requestPath + "/mill"

	// Nothing is allowed until RBAC says so, and that is what is passed on.
	if status, object := peerMill.send(http.MethodPatch, own, request("mill", "Mill")); status != http.StatusForbidden || object["reason"] != "Forbidden" ||
		!strings.Contains(fmt.Sprint(object["message"]), `User "system:serviceaccount:liqo:liqo-peer-mill"`) {
		t.Fatalf("%d %v", status, object)
	}
	if err := k.Apply(t.Context(), `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "liqo:peer:mill"}
rules:
- {apiGroups: [discovery.liqo.io], resources: [peeringrequests], resourceNames: [mill], verbs: [get, create, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "liqo:peer:mill"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "liqo:peer:mill"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:serviceaccount:liqo:liqo-peer-mill"}]
`); err != nil {
		t.Fatal(err)
	}
	var status int
	var object map[string]any
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if status, object = peerMill.send(http.MethodGet, own, ""); status == http.StatusNotFound {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("RBAC has no effect: %d %v", status, object)
		}
	}
	if object["kind"] != "Status" || object["reason"] != "NotFound" {
		t.Errorf("%v", object)
	}

	// What is sent as JSON arrives as it was meant, although it is read as YAML.
	name := "Mühle: <3 & 🌾 {-} \" # 'x' %"
	if status, object = peerMill.send(http.MethodPatch, own, request("mill", name)); status != http.StatusCreated {
		t.Fatalf("%d %v", status, object)
	}
	if got := deep(object, "spec", "clusterIdentity", "clusterName"); got != name {
		t.Errorf("the name became %q", got)
	}
	if status, object = peerMill.send(http.MethodPatch, own, request("mill", "Mill")); status != http.StatusOK {
		t.Fatalf("%d %v", status, object)
	}
	uid := deep(object, "metadata", "uid")
	fields, _ := deep(object, "metadata", "managedFields").([]any)
	if len(fields) == 0 {
		t.Errorf("no managed fields in %v", object)
	}
	for _, f := range fields {
		if m, _ := f.(map[string]any); m["manager"] == "liqo-peer" && m["operation"] != "Apply" {
			t.Errorf("%v", m)
		}
	}
	if status, object = peerMill.send(http.MethodGet, own, ""); status != http.StatusOK || deep(object, "metadata", "uid") != uid {
		t.Errorf("%d %v", status, object)
	}

	// RBAC does not know about this one, and the gateway not about others.
	if status, object := peerMill.send(http.MethodGet, "/kube"+advertPath+"/mill", ""); status != http.StatusForbidden || object["reason"] != "Forbidden" {
		t.Errorf("%d %v", status, object)
	}
	if status, object := as(barn).send(http.MethodGet, own, ""); status != http.StatusForbidden || object["reason"] != wire.ReasonNotPermitted {
		t.Errorf("%d %v", status, object)
	}
	if status, object := as(barn).send(http.MethodDelete, "/kube"+requestPath+"/barn", ""); status != http.StatusForbidden || object["reason"] != "Forbidden" {
		t.Errorf("%d %v", status, object)
	}

	// The API server's own refusal of a wrong value is passed on.
	if status, object := peerMill.send(http.MethodPatch, own, strings.Replace(request("mill", "x"), `"liqo"`, `"NO"`, 1)); status != http.StatusUnprocessableEntity || object["reason"] != "Invalid" {
		t.Errorf("%d %v", status, object)
	}

	if status, object := peerMill.send(http.MethodDelete, own, ""); status != http.StatusOK {
		t.Errorf("%d %v", status, object)
	}
	if status, _ := peerMill.send(http.MethodGet, own, ""); status != http.StatusNotFound {
		t.Errorf("deleted, and %d", status)
	}
	mu.Lock()
	if got := strings.Join(deleted, ","); got != "barn peeringrequests 403,mill peeringrequests 200" {
		t.Errorf("told of %s", got)
	}
	mu.Unlock()

	// Unreachable is never gone.
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	if status, object := peerMill.send(http.MethodGet, own, ""); status != http.StatusServiceUnavailable || object["reason"] != wire.ReasonNoAPIServer {
		t.Errorf("%d %v", status, object)
	}
}
