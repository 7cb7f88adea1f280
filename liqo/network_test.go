package liqo

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/kube"
	"liqo.io/agent/liqo/document"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/liqo/exchange"
	"liqo.io/agent/peer"
)

// TestWithoutNetworking: where one of the kinds that connect networks is not served, or may not be listed, Liqo is used without
// them: nobody waits for a list that never comes.
func TestWithoutNetworking(t *testing.T) {
	kinds := map[string][]string{
		document.Authentication.String(): {document.PluralTenants, document.PluralIdentities, document.PluralResourceSlices}, document.Core.String(): {}, document.Offloading.String(): {},
		document.IPAM.String(): {document.PluralNetworks},
		document.Networking.String(): {document.PluralConfigurations, document.PluralGatewayServers, document.PluralGatewayClients, document.PluralPublicKeys,
			document.PluralServerTemplates, document.PluralClientTemplates},
	}
	look := func(missing, denied string) *served {
		t.Helper()
		s := kubetest.New(func(r *http.Request, body string) (int, string) {
			if r.Method == http.MethodPost {
				var review struct {
					Spec struct {
						ResourceAttributes kube.Access `json:"resourceAttributes"`
					} `json:"spec"`
				}
				if err := json.Unmarshal([]byte(body), &review); err != nil {
					t.Error(err)
				}
				if review.Spec.ResourceAttributes.Resource == denied {
					return 201, `{"status":{"allowed":false}}`
				}
				return 201, `{"status":{"allowed":true}}`
			}
			var names []map[string]string
			for _, kind := range kinds[strings.TrimPrefix(r.URL.Path, "/apis/")] {
				if kind != missing {
					names = append(names, map[string]string{"name": kind})
				}
			}
			text, err := json.Marshal(map[string]any{"resources": names})
			if err != nil {
				t.Error(err)
			}
			return 200, string(text)
		})
		found, err := detect(t.Context(), s.Client(t))
		if err != nil || found.problem != "" {
			t.Fatalf("%+v, %v", found, err)
		}
		return found
	}
	if found := look("", ""); found.unconnected != "" {
		t.Errorf("%+v", found)
	}
	for _, kind := range slices.Concat(kinds[document.IPAM.String()], kinds[document.Networking.String()]) {
		if found := look(kind, ""); !strings.Contains(found.unconnected, "does not serve "+kind) {
			t.Errorf("without %s: %+v", kind, found)
		}
		if found := look("", kind); !strings.Contains(found.unconnected, "may not list "+kind) {
			t.Errorf("without the right to %s: %+v", kind, found)
		}
	}
}

// silent is a peer that does not answer, and counts its calls.
type silent struct{ calls int }

func (s *silent) Exchange(context.Context, peer.Target, client.Request) (client.Response, error) {
	s.calls++
	return client.Response{}, errors.New("nobody answers")
}

// TestRefusedNetwork: an API server that refuses what connects networks keeps the two from nothing else. The provider is
// asked all the same, or its new address would be missed.
func TestRefusedNetwork(t *testing.T) {
	const id, inside = peer.ClusterID("83d0f353-3141-44ad-bc31-9c4520be089f"), "liqo-tenant-mill"
	refuses := kubetest.New(func(r *http.Request, _ string) (int, string) {
		return 403, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no room for a Configuration"}`
	})
	provider := &silent{}
	l := New(Config{Peers: provider, Changed: func(peer.ClusterID) {}, Found: func() {}, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		Addresses: func() ([]net.Addr, error) {
			var all []net.Addr
			for _, address := range []string{"127.0.0.1/8", "10.42.0.1/24", "10.80.0.2/32", "192.168.7.9/22", "10.8.0.6/24"} { // loopback, the bridge of pods, a tunnel of Liqo's, a LAN, a VPN
				ip, own, err := net.ParseCIDR(address)
				if err != nil {
					return nil, err
				}
				all = append(all, &net.IPNet{IP: ip, Mask: own.Mask})
			}
			return all, nil
		}})
	s := newSession(l, refuses.Client(t), served{})
	s.namespace = "liqo"
	l.set(&engine.Installation{ID: "barn"}, false)
	mine := map[string]string{document.LabelRemoteCluster: "mill", document.LabelTenantNamespace: "true", document.LabelReplicationTo: "mill", api.LabelClusterID: string(id)}
	fill := func(cache *kube.Cache[*object], namespace, name string, change func(*object)) *object {
		t.Helper()
		o := &object{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: "1", Labels: mine}}
		change(o)
		if err := cache.Told().Update(o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	fill(s.namespaces, "", inside, func(*object) {})
	fill(s.identities, inside, "controlplane-mill", func(o *object) { o.Status.KubeconfigSecretRef = &reference{Name: "kubeconfig"} })
	fill(s.slices, inside, "mill", func(o *object) {
		o.Status.Conditions = []document.SliceCondition{{Type: "Authentication", Status: "Accepted"}, {Type: "Resources", Status: "Accepted"}}
	})
	fill(s.serverTemplates, "liqo", document.ServerTemplate, func(*object) {})
	fill(s.clientTemplates, "liqo", document.ClientTemplate, func(*object) {})
	for name, cidr := range map[string]string{document.NetworkPods: "10.42.0.0/16", document.NetworkExternal: "10.70.0.0/16", "internal-cidr": "10.80.0.0/16", "reserved": ""} {
		fill(s.networks, "liqo", name, func(o *object) { o.Labels, o.Status.CIDR = map[string]string{document.LabelNetworkType: name}, cidr })
	}
	says := func(pods string) *exchange.Answer {
		text, err := document.Network{ClusterID: "mill", Pods: []netip.Prefix{netip.MustParsePrefix(pods)}, External: []netip.Prefix{netip.MustParsePrefix("10.71.0.0/16")}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return &exchange.Answer{ClusterID: "mill", Identity: json.RawMessage("{}"), Network: text}
	}
	p := &pair{told: make(chan struct{}), asking: asking{said: says("10.42.0.0/16")}}
	p.desired.Consume = &Consumption{Wanted: true, Target: peer.Target{Fingerprint: peer.FingerprintOf([]byte("mill"))}}
	l.pairs[id] = p
	var err error
	for range shownFailures + 1 {
		_, err = s.consume(t.Context(), id, p, *p, "barn")
	}
	if !p.consuming.Ready || !strings.Contains(p.consuming.Unconnected, "no room for a Configuration") || err == nil || provider.calls != 1 {
		t.Errorf("%+v, %v, after %d calls", p.consuming, err, provider.calls)
	}
	// A part of a network that this machine is in, by whatever link, is nobody's pods.
	for pods, network := range map[string]string{"192.168.5.0/24": "192.168.4.0/22", "10.8.0.0/16": "10.8.0.0/24"} {
		p.asking.said = says(pods)
		if _, err := s.consume(t.Context(), id, p, *p, "barn"); err != nil || !strings.Contains(p.consuming.Unconnected, "overlaps the network "+network) {
			t.Errorf("%s: %+v, %v", pods, p.consuming, err)
		}
	}
}
