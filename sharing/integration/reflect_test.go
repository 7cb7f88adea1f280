package integration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/tunnel"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/network"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/host"
	"liqo.io/agent/sharing/offload"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/workload"
	"liqo.io/agent/trust"
)

// everybody is known, and none of them calls.
type everybody struct{ endpoint.Peers }

func (everybody) Admit(peer.ClusterID, trust.Shown) endpoint.AccessLevel { return endpoint.Known }

// landlord is a Host as the endpoint wants it.
type landlord struct{ *runningHost }

func (l landlord) refused(err error) error {
	var no *host.Refused
	if !errors.As(err, &no) {
		return err
	}
	out := &wire.Refused{Reason: no.Reason, Message: no.Message}
	if no.Reason == host.ReasonNotReady || no.Reason == host.ReasonTerminating {
		out.Retry = no.Retry
	}
	return out
}

func (l landlord) Owns(id peer.ClusterID, ns string) error {
	return l.refused(l.serving.Load().Owns(id, ns))
}

func (l landlord) Namespace(ctx context.Context, id peer.ClusterID, origin string) (string, error) {
	name, err := l.serving.Load().Namespace(ctx, id, origin)
	return name, l.refused(err)
}

func (l landlord) Release(ctx context.Context, id peer.ClusterID, origin string) error {
	return l.refused(l.serving.Load().Release(ctx, id, origin))
}

func (l landlord) Pod(ctx context.Context, id peer.ClusterID, ns string, body []byte) ([]byte, func([]byte), error) {
	clean, done, err := l.serving.Load().Pod(ctx, id, ns, body)
	return clean, done, l.refused(err)
}

func (landlord) Named(pod []byte) (map[string][]string, error) { return host.Named(pod) }

func (l landlord) PodPatch(id peer.ClusterID, ns, name string, body []byte) ([]byte, string, error) {
	clean, contentType, err := l.serving.Load().PodPatch(id, ns, name, body)
	return clean, contentType, l.refused(err)
}

func (l landlord) Ephemeral(ctx context.Context, id peer.ClusterID, ns, name string, body []byte) ([]byte, func([]byte), error) {
	clean, done, err := l.serving.Load().Ephemeral(ctx, id, ns, name, body)
	return clean, done, l.refused(err)
}

func (l landlord) Object(id peer.ClusterID, ns, resource, name string, body []byte) ([]byte, error) {
	clean, err := l.serving.Load().Object(id, ns, resource, name, body)
	return clean, l.refused(err)
}

// startEndpoint returns the consumer's connection to an endpoint of the provider, which has a
// gateway and a Host.
func startEndpoint(t *testing.T, p *pair, r *runningHost) *tunnel.Link {
	t.Helper()
	config := p.kubeB.RESTConfig()
	base, err := url.Parse(config.Host)
	must(t, err)
	up := gateway.Upstream{Base: base, Users: api.PeerUsers{Namespace: "liqo"}}
	up.Transport, err = rest.TransportFor(config)
	must(t, err)
	up.Upgrade = up.Transport
	home, mill := endpointtest.New(t, providerID), endpointtest.New(t, consumerID)
	quiet := slog.New(slog.DiscardHandler)
	server := endpoint.NewServer(endpoint.ServerConfig{
		Listen: "127.0.0.1:0", Issuer: home.Issuer, Peers: everybody{}, Logger: quiet, Identity: home.Identify,
		Gateway: gateway.New(gateway.Config{Upstream: func() (gateway.Upstream, bool) { return up, true }, Logger: quiet}),
		Guests:  landlord{r},
	})
	must(t, server.Listen(t.Context()))
	bedtest.Run(t, nil, nil, server.Run)
	caller := client.New(client.Config{Issuer: mill.Issuer})
	t.Cleanup(caller.Close)
	link := tunnel.New(caller, tunnel.Config{Target: func() (peer.Target, bool) {
		return peer.Target{ID: providerID, Fingerprint: home.Key.Fingerprint(),
			Addrs: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), server.Port())}}, true
	}})
	t.Cleanup(link.Close)
	return link
}

// reflection: Services of a namespace with pods at a provider are there too, with the pods
// of both clusters behind them, for as long as there are such pods; through the endpoint of
// the provider, its gateway and its Host.
func reflection(p *pair) {
	t, ctx := p.t, p.t.Context()
	r := startHost(t, p.kubeB)
	blocks := network.Blocks{Ours: []netip.Prefix{netip.MustParsePrefix("241.7.4.0/24")}}
	tenant := tenancy(consumerID, smallOffer())
	tenant.Network = []netip.Prefix{netip.MustParsePrefix("241.7.4.0/23")}
	r.Set(tenant)
	link := startEndpoint(t, p, r)

	const ns, home = "square", "/api/v1/namespaces/square"
	p.namespace(ns, enabled())
	log := &bedtest.Log{}
	o := offload.New(offload.Config{Self: func() peer.ClusterID { return consumerID }, Logger: log.Logger()})
	provider := offload.Provider{ID: providerID, Node: barnNode, Remote: link, Offer: "1", Reachable: true}
	version := uint64(0)
	path := func(blocks network.Blocks) *workload.Network {
		version++
		return &workload.Network{Thirds: map[netip.Addr]netip.Addr{}, Version: version, Here: blocks.Here, There: func(a netip.Addr) (netip.Addr, bool) {
			return blocks.There(a, []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24")})
		}}
	}
	provider.Network = path(blocks)
	o.Set(provider)
	stop := bedtest.Run(t, log, context.Canceled, func(ctx context.Context) error { return o.Run(ctx, p.kubeA.RESTConfig()) })

	// At home: a StatefulSet's pod with its Service, and what no provider is to have.
	service := func(name string, spec object, meta ...string) {
		labels := object{}
		for _, key := range meta {
			labels[key] = "true"
		}
		p.must(p.a.Create(ctx, home+"/services", object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": name, "labels": labels}, "spec": spec}, nil))
	}
	web := object{"selector": object{"app": "web"}, "ports": []any{object{"name": "http", "port": 80, "targetPort": 8080}}}
	service("web", object{"type": "NodePort", "selector": web["selector"], "ports": web["ports"], "sessionAffinity": "ClientIP"})
	service("peers", object{"clusterIP": "None", "publishNotReadyAddresses": true, "selector": web["selector"], "ports": web["ports"]})
	service("alias", object{"type": "ExternalName", "externalName": "example.com"})
	service("private", web, workload.SkipReflection)
	service("mesh", object{"selector": object{"istio.io/rev": "a"}, "ports": web["ports"]})
	at := func(c *kube.Client, ns, name, ip string, spec object) {
		t.Helper()
		var made corev1.Pod
		spec["containers"] = []any{object{"name": "main", "image": "docker.io/web:1"}}
		p.must(c.Create(ctx, "/api/v1/namespaces/"+ns+"/pods", object{
			"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "labels": object{"app": "web"}}, "spec": spec,
		}, &made))
		if ip == "" {
			return
		}
		status := runningStatus(&made)
		status.PodIP, status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
		p.must(c.Patch(ctx, podPath(ns, name)+"/status", "kubelet", types.StrategicMergePatchType, marshal(t, object{"status": status}), nil))
	}
	at(p.a, ns, "web-0", "10.42.0.17", object{"nodeName": "a", "hostname": "web-0", "subdomain": "peers"})
	at(p.a, ns, "web-1", "", object{"nodeName": barnNode, "hostname": "web-1", "subdomain": "peers"})
	guests := guestNamespace(ns)
	there := "/api/v1/namespaces/" + guests
	theirs := await(t, p.b, guests, "web-1", func(*corev1.Pod) error { return nil })
	status := runningStatus(theirs)
	status.PodIP, status.PodIPs = "10.42.0.9", []corev1.PodIP{{IP: "10.42.0.9"}}
	p.setStatus(guests, "web-1", status)

	// endpoints returns what a Service leads to at the provider, by all its EndpointSlices.
	endpoints := func(name string) (out []string) {
		var list discoveryv1.EndpointSliceList
		p.must(p.b.Get(ctx, "/apis/discovery.k8s.io/v1/namespaces/"+guests+"/endpointslices", &list))
		for _, s := range list.Items {
			if s.Labels[discoveryv1.LabelServiceName] != name {
				continue
			}
			for _, e := range s.Endpoints {
				host := ""
				if e.Hostname != nil {
					host = *e.Hostname
				}
				out = append(out, fmt.Sprintf("%s:%d %s ready=%t", e.Addresses[0], *s.Ports[0].Port, host, *e.Conditions.Ready))
			}
		}
		slices.Sort(out)
		return out
	}
	leads := func(what, name string, want ...string) {
		t.Helper()
		bedtest.Within(t, what, func() error {
			if got := endpoints(name); !slices.Equal(got, want) {
				return fmt.Errorf("%s leads to %q, want %q", name, got, want)
			}
			return nil
		})
	}
	near, far := "10.42.0.9:8080 web-1 ready=true", "241.7.4.17:8080 web-0 ready=true"
	leads("the pods of both clusters", "peers", near, far)
	near, far = "10.42.0.9:8080  ready=true", "241.7.4.17:8080  ready=true"
	// Hostnames are those of the Service that the pods are in.
	leads("the pods of both clusters", "web", near, far)
	var svc corev1.Service
	svc = corev1.Service{}
	p.must(p.b.Get(ctx, there+"/services/web", &svc))
	if svc.Spec.Type != "ClusterIP" || svc.Spec.ClusterIP == "" || svc.Spec.Ports[0].NodePort != 0 || svc.Spec.SessionAffinity != "ClientIP" ||
		svc.Spec.Selector[workload.LabelOriginCluster] != string(consumerID) || svc.Spec.Selector["app"] != "web" {
		t.Errorf("web is %+v", svc.Spec)
	}
	svc = corev1.Service{}
	p.must(p.b.Get(ctx, there+"/services/peers", &svc))
	if !workload.Headless(&svc) || !svc.Spec.PublishNotReadyAddresses {
		t.Errorf("peers is %+v", svc.Spec)
	}
	var list corev1.ServiceList
	p.must(p.b.Get(ctx, there+"/services", &list))
	if len(list.Items) != 2 {
		t.Errorf("%d Services are at the provider", len(list.Items))
	}
	bedtest.Within(t, "what is refused is told", func() error {
		got := o.Services(providerID)
		if got.Reflected != 2 || len(got.Refused) != 2 || got.Refused[0].Name != "alias" || got.Refused[1].Name != "mesh" {
			return fmt.Errorf("%+v", got)
		}
		var events corev1.EventList
		p.must(p.a.Get(ctx, home+"/events", &events))
		told := ""
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "Service" && e.Reason == "NotReflected" {
				told += e.InvolvedObject.Name + " "
			}
		}
		if !strings.Contains(told, "alias") || !strings.Contains(told, "mesh") {
			return fmt.Errorf("events about %q", told)
		}
		return nil
	})

	// Changes arrive, and what is left out goes.
	patch := func(c *kube.Client, path, text string) {
		t.Helper()
		p.must(c.Patch(ctx, path, "", types.MergePatchType, []byte(text), nil))
	}
	patch(p.a, home+"/services/web", `{"spec":{"type":"ClusterIP","sessionAffinity":"None","selector":{"app":null,"role":"web"},"ports":[{"name":"http","port":81,"targetPort":8081}]}}`)
	bedtest.Within(t, "a change of the Service", func() error {
		svc = corev1.Service{}
		p.must(p.b.Get(ctx, there+"/services/web", &svc))
		if len(svc.Spec.Ports) != 1 || svc.Spec.Ports[0].Port != 81 || len(svc.Spec.Selector) != 2 || svc.Spec.Selector["role"] != "web" || svc.Spec.SessionAffinity != "None" {
			return fmt.Errorf("it is %+v", svc.Spec)
		}
		return nil
	})
	leads("nobody has the new label", "web")
	patch(p.a, home+"/services/web", `{"spec":{"selector":{"app":"web","role":null},"ports":[{"name":"http","port":80,"targetPort":8080}]}}`)
	leads("and back", "web", near, far)
	patch(p.a, podPath(ns, "web-0")+"/status", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	leads("a pod is not ready", "web", near, "241.7.4.17:8080  ready=false")
	patch(p.a, podPath(ns, "web-0")+"/status", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	leads("and is again", "web", near, far)

	// A pod at another provider is listed once it has an address at this one.
	p.must(p.a.Create(ctx, "/api/v1/nodes", object{"apiVersion": "v1", "kind": "Node", "metadata": object{"name": "mill"}}, nil))
	at(p.a, ns, "web-2", "241.83.20.9", object{"nodeName": "mill"})
	bedtest.Within(t, "it is known that the pod is left out", func() error {
		var events corev1.EventList
		p.must(p.a.Get(ctx, home+"/events", &events))
		if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Reason == "EndpointsLeftOut" && e.InvolvedObject.Name == "web" }) {
			return errors.New("there is no event")
		}
		return nil
	})
	leads("a pod at another provider has no address", "web", near, far)
	third := *provider.Network
	third.Thirds = map[netip.Addr]netip.Addr{netip.MustParseAddr("241.83.20.9"): netip.MustParseAddr("241.7.5.3")}
	provider.Network = &third
	o.Set(provider)
	leads("a pod at another provider", "web", near, far, "241.7.5.3:8080  ready=true")
	patch(p.a, podPath(ns, "web-2")+"/status", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	leads("the other provider is not reached", "web", near, far, "241.7.5.3:8080  ready=false")
	now := int64(0)
	p.must(p.a.Delete(ctx, podPath(ns, "web-2"), metav1.DeleteOptions{GracePeriodSeconds: &now}))
	leads("the pod at the other provider is gone", "web", near, far)

	// While no packets pass, the provider leaves out what it cannot reach, by itself.
	tenant.NetworkDown = true
	r.Set(tenant)
	leads("the path is down", "web", near, "241.7.4.17:8080  ready=false")
	leads("the path is down", "peers", "10.42.0.9:8080 web-1 ready=true", "241.7.4.17:8080 web-0 ready=false")
	tenant.NetworkDown = false
	r.Set(tenant)
	leads("the path is back", "web", near, far)
	leads("the path is back", "peers", "10.42.0.9:8080 web-1 ready=true", "241.7.4.17:8080 web-0 ready=true")

	// The provider chooses another block: what it has is cleared, and sent again when the
	// consumer knows.
	blocks.Ours = []netip.Prefix{netip.MustParsePrefix("241.9.0.0/24")}
	tenant.Network = blocks.Ours
	r.Set(tenant)
	leads("the block changed", "web", near)
	provider.Network = path(blocks)
	o.Set(provider)
	leads("the consumer knows the block", "web", near, "241.9.0.17:8080  ready=true")

	// A restarted agent takes over what is there, and removes what is not wanted any more.
	stop()
	p.must(p.a.Delete(ctx, home+"/services/peers", metav1.DeleteOptions{}))
	o = offload.New(offload.Config{Self: func() peer.ClusterID { return consumerID }, Logger: log.Logger()})
	o.Set(provider)
	bedtest.Run(t, log, context.Canceled, func(ctx context.Context) error { return o.Run(ctx, p.kubeA.RESTConfig()) })
	awaitGone(t, p.kubeB, there+"/services/peers")
	leads("nothing of it is left", "peers")
	leads("the other Service stays", "web", near, "241.9.0.17:8080  ready=true")

	// A label on the Service takes it back; so does the end of the namespace's own label.
	patch(p.a, home+"/services/web", `{"metadata":{"annotations":{"liqo.io/skip-reflection":""}}}`)
	awaitGone(t, p.kubeB, there+"/services/web")
	leads("nothing of it is left", "web")
	patch(p.a, home+"/services/web", `{"metadata":{"annotations":null}}`)
	leads("it is there again", "web", near, "241.9.0.17:8080  ready=true")
	patch(p.a, home, `{"metadata":{"labels":{"liqo.io/enabled":null}}}`)
	awaitGone(t, p.kubeB, there+"/services/web")
	leads("nothing of it is left", "web")

	// The provider disconnects the consumer.
	r.Set(spec.Tenant{ID: consumerID})
	await(t, p.b, guests, "web-1", func(pod *corev1.Pod) error {
		if pod.DeletionTimestamp == nil {
			return errors.New("it is not being deleted")
		}
		return nil
	})
	p.must(p.b.Delete(ctx, podPath(guests, "web-1"), metav1.DeleteOptions{GracePeriodSeconds: &now})) // no kubelet ends it
	awaitGone(t, p.kubeB, "/api/v1/namespaces/"+guests)
	p.must(p.a.Delete(ctx, "/api/v1/nodes/mill", metav1.DeleteOptions{}))
}
