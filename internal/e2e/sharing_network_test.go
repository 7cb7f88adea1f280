package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
)

// webPod is a pod that tells over HTTP who it is, and from which address it was asked.
func webPod(name, node string) string {
	return `apiVersion: v1
kind: Pod
metadata: {name: ` + name + `, namespace: shop, labels: {app: web}}
spec:
  nodeSelector: {kubernetes.io/hostname: ` + node + `}
  terminationGracePeriodSeconds: 0
  containers:
  - name: web
    image: ` + bed.Image + `
    imagePullPolicy: Never
    command: [sh, -c, 'mkdir -p /tmp/w/cgi-bin; echo "#!/bin/sh" > /tmp/w/cgi-bin/who; echo "echo; echo ` + name + ` asked by \$REMOTE_ADDR" >> /tmp/w/cgi-bin/who; chmod 755 /tmp/w/cgi-bin/who; exec httpd -f -p 8080 -h /tmp/w']
    resources: {requests: {cpu: 10m, memory: 8Mi}}
`
}

// awaitAddress waits until a pod is ready and has an address of each family that the box's pods have, and returns the first.
func (x *box) awaitAddress(pod string) netip.Addr { return x.awaitAddresses(pod)[0] }

// awaitAddresses is awaitAddress, and returns all.
func (x *box) awaitAddresses(pod string) []netip.Addr {
	x.t.Helper()
	var addrs []netip.Addr
	x.eventually("pod "+pod+" is ready and has an address", func() error {
		p, _, err := get[corev1.Pod](x, "/api/v1/namespaces/shop/pods/"+pod)
		if err == nil && (!podReady(p) || len(p.Status.PodIPs) != len(x.host.Pods)) {
			err = fmt.Errorf("it is %s, its addresses are %v: %+v", p.Status.Phase, p.Status.PodIPs, p.Status.Conditions)
		}
		if err == nil {
			addrs = addressesOf(&p)
		}
		return err
	})
	return addrs
}

// TestNetwork: pods reach each other from one cluster to the other, by addresses that each cluster has chosen for itself, in
// both families. The clusters are dual-stack, and A has other ranges than those of K3s without options. What clusters with the
// same ranges do is in TestNames.
func TestNetwork(t *testing.T) {
	t.Parallel()
	if !bed.RealRoot() {
		t.Skip("containers need root on the machine; run the tests as root to have this one")
	}
	p := newPairOf(t, "[sharing]\nregistries = [\"bed.example.com\"]\nlocal_images = true\n", bed.RangesOf("10.50.0.0/16,fd50::/56"), bed.RangesOf("10.42.0.0/16,fd42::/56"))
	a, b := p.a, p.b
	for _, x := range []*box{a, b} {
		if err := errors.Join(x.kube.StartControllers(t.Context()), x.kube.StartKubelet(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	proxy := a.likeK3s(bed.ProxyIPTables)
	b.likeK3s(bed.ProxyNFTables)
	p.join()
	a.awaitNode(b.asNode(), true)
	a.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {liqo.io/enabled: \"true\"}}\n")
	a.tolerates()
	a.apply(webPod("home", a.host.Name) + "---\n" + webPod("away", b.asNode()))
	home, away := a.awaitAddresses("home"), a.awaitAddresses("away")
	// asks has a pod ask another one for its name, and returns the address by which that knows
	// who asked.
	asks := func(from, to, name string) (by netip.Addr) {
		t.Helper()
		a.eventually(from+" asks "+to, func() error {
			out, err := a.tryShell(fmt.Sprintf(`kubectl exec -n shop %s -- sh -c 'printf "GET /cgi-bin/who HTTP/1.0\r\n\r\n" | nc -w 5 %s 8080' | tail -1`, from, to))
			if err != nil {
				return err
			}
			said, text, ok := strings.Cut(strings.TrimSpace(out), " asked by ")
			if !ok || said != name {
				return fmt.Errorf("it says %q", out)
			}
			addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
			by = addr.Unmap()
			return err
		})
		return by
	}
	blocks := []netip.Prefix{netip.MustParsePrefix("241.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	own := []netip.Prefix{netip.MustParsePrefix("10.50.0.0/24"), netip.MustParsePrefix("fd50::/64")}
	var there []netip.Addr // pod home, as B knows it
	for i := range blocks {
		if !blocks[i].Contains(away[i]) || !own[i].Contains(home[i]) {
			t.Errorf("the pod at B is known as %s here, and that at home as %s", away, home)
		}
		there = append(there, asks("home", away[i].String(), "away"))
		if !blocks[i].Contains(there[i]) || own[i].Contains(there[i]) || counterpart(home[i], there[i:]) != there[i] {
			t.Errorf("%s is known as %s at B", home[i], there[i])
		}
		if by := asks("away", there[i].String(), "home"); by != away[i] {
			t.Errorf("%s asks as %s", away[i], by)
		}
	}

	// shows waits until the ForeignCluster and the node of B say the same about the network.
	shows := func(status api.ConditionStatus, reason string) {
		t.Helper()
		a.eventually("the network is "+reason, func() error {
			fc, _, err := get[api.ForeignCluster](a, "/apis/discovery.liqo.io/v1alpha1/foreignclusters/"+p.bID)
			if err != nil {
				return err
			}
			if err := condition(&fc, api.ConditionNetworkReady, status, reason); err != nil {
				return err
			}
			if m := fc.Status.Modules.Networking; !m.Enabled || len(m.Conditions) != 1 || m.Conditions[0].Reason != reason {
				return fmt.Errorf("the module is %+v", m)
			}
			node, _, err := get[corev1.Node](a, "/api/v1/nodes/"+b.asNode())
			if err != nil {
				return err
			}
			for _, c := range node.Status.Conditions {
				if down := c.Status == corev1.ConditionTrue; c.Type == corev1.NodeNetworkUnavailable && (c.Reason != reason || down == (status == api.ConditionTrue)) {
					err = fmt.Errorf("the node has the condition %+v", c)
				}
			}
			return err
		})
	}
	shows(api.ConditionTrue, "Connected")
	a.eventually("probes are answered", func() error {
		// A machine that stands still for three seconds loses one.
		out, err := a.cli("network", "probe", p.bID, "--count", "3", "--interval", "100ms")
		if err == nil && !strings.Contains(out, "3 answered, 0% lost") {
			err = errors.New(out)
		}
		return err
	})

	var attempts sync.WaitGroup
	denied := func(x *box, what, script string) {
		attempts.Go(func() {
			if out, err := x.tryShell(script); err == nil {
				t.Errorf("%s: %s", what, out)
			}
		})
	}
	a.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: private}\n")
	b.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: private}\n")
	a.apply(strings.ReplaceAll(webPod("secret", a.host.Name), "namespace: shop", "namespace: private"))
	b.apply(strings.ReplaceAll(webPod("secret", b.host.Name), "namespace: shop", "namespace: private"))
	secrets := make(map[*box][]netip.Addr)
	for _, x := range []struct {
		own    *box
		known  []netip.Addr // addresses of its pods in the other cluster
		prober string
	}{{a, there, "away"}, {b, away, "home"}} {
		x.own.eventually("its own pod runs", func() error {
			pod, _, err := get[corev1.Pod](x.own, "/api/v1/namespaces/private/pods/secret")
			if secrets[x.own] = addressesOf(&pod); err == nil && len(secrets[x.own]) != len(blocks) {
				err = fmt.Errorf("it is %+v", pod.Status)
			}
			return err
		})
		for i, gateway := range []string{"10.42.0.1", "fd42::1"} {
			denied(a, x.prober+" reaches a pod that is not shared at "+x.own.host.Name,
				fmt.Sprintf("kubectl exec -n shop %s -- sh -c 'nc -w 2 %s 8080 </dev/null'", x.prober, counterpart(secrets[x.own][i], x.known)))
			denied(a, x.prober+" reaches the host "+x.own.host.Name,
				fmt.Sprintf("kubectl exec -n shop %s -- sh -c 'nc -w 2 %s 6447 </dev/null'", x.prober, counterpart(netip.MustParseAddr(gateway), x.known)))
		}
	}
	for _, pod := range there {
		denied(b, "a pod of B's own reaches one of A", fmt.Sprintf("kubectl exec -n private secret -- sh -c 'nc -w 2 %s 8080 </dev/null'", pod))
		denied(b, "B's host reaches a pod of A", fmt.Sprintf("nc -w 2 %s 8080 </dev/null", pod))
	}
	attempts.Wait()

	services := p.serve(proxy, bed.ProxyIPTables, away, there)
	services.work(home, secrets[a])

	// The agents' ends and starts keep what is connected: nothing of the path is gone meanwhile.
	for _, x := range []*box{a, b} {
		if err := x.agent.Kill(); err != nil {
			t.Fatal(err)
		}
		x.start()
	}
	both := func() {
		t.Helper()
		for i := range blocks {
			asks("home", away[i].String(), "away")
			asks("away", there[i].String(), "home")
		}
	}
	both()
	services.goesOn()

	b.host.Link("eth0").Unplug()
	out := time.Now()
	services.onlyHome(out)
	a.eventually("the pod is not ready while the cable is out", func() error {
		pod, _, err := get[corev1.Pod](a, "/api/v1/namespaces/shop/pods/away")
		if err == nil && podReady(pod) {
			err = errors.New("it is ready")
		}
		return err
	})
	shows(api.ConditionFalse, "NetworkDown")
	b.host.Link("eth0").Plug()
	in := time.Now()
	services.checkEndpoints("web")
	t.Logf("all pods were ready again %v after the cable was plugged in", time.Since(in).Round(100*time.Millisecond))
	if again := a.awaitAddresses("away"); !slices.Equal(again, away) {
		t.Errorf("the pod is known as %s now", again)
	}
	both()
	services.policies()
	services.work(home, secrets[a])
	services.otherMode(bed.ProxyNFTables)
	services.work(home, secrets[a])
	services.withdrawn("web-headless")
	shows(api.ConditionTrue, "Connected")
	a.eventually("there are events about the network", func() error {
		out, err := a.tryShell("kubectl get events -n default -o jsonpath='{.items[*].reason}'")
		if err == nil && (!strings.Contains(out, "NetworkConnected") || !strings.Contains(out, "NetworkDown")) {
			err = errors.New(out)
		}
		return err
	})

	a.mustCLI("peers", "disconnect", p.bID)
	b.eventually("no Service of A is left", func() error {
		found, err := list[corev1.Service](b, "/api/v1/services?labelSelector=liqo.io/origin-cluster-id")
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("there are %d", len(found))
		}
		return err
	})
	for _, x := range []*box{a, b} {
		x.eventually("nothing of the network is left", func() error {
			out, err := x.tryShell("ip -o link show; nft list tables")
			if err == nil && (strings.Contains(out, "liqo0") || strings.Contains(out, "liqo\n")) {
				err = errors.New(out)
			}
			return err
		})
	}
}
