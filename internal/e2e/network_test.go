package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
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

// awaitAddress waits until a pod is ready and has an address, and returns that.
func (x *box) awaitAddress(pod string) netip.Addr {
	x.t.Helper()
	var addr netip.Addr
	x.eventually("pod "+pod+" is ready and has an address", func() error {
		p, _, err := get[corev1.Pod](x, "/api/v1/namespaces/shop/pods/"+pod)
		if err == nil && (!podReady(p) || p.Status.PodIP == "") {
			err = fmt.Errorf("it is %s, its address is %q: %+v", p.Status.Phase, p.Status.PodIP, p.Status.Conditions)
		}
		if err == nil {
			addr, err = netip.ParseAddr(p.Status.PodIP)
		}
		return err
	})
	return addr
}

// TestNetwork: pods reach each other from one cluster to the other, by addresses that each
// cluster has chosen for itself, although both have the same range.
func TestNetwork(t *testing.T) {
	t.Parallel()
	if !bed.RealRoot() {
		t.Skip("containers need root on the machine; run the tests as root to have this one")
	}
	p := newPair(t, "[sharing]\nregistries = [\"bed.example.com\"]\nlocal_images = true\n")
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
	home, away := a.awaitAddress("home"), a.awaitAddress("away")
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
	same := func(a, b netip.Addr) bool { return a.As4()[3] == b.As4()[3] }
	blocks := netip.MustParsePrefix("241.0.0.0/8")
	if !blocks.Contains(away) {
		t.Errorf("the pod at B is known as %s here", away)
	}
	there := asks("home", away.String(), "away")
	if !blocks.Contains(there) || !same(there, home) {
		t.Errorf("%s is known as %s at B", home, there)
	}
	if by := asks("away", there.String(), "home"); by != away {
		t.Errorf("%s asks as %s", away, by)
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
	if out := a.mustCLI("network", "probe", p.bID, "--count", "3", "--interval", "100ms"); !strings.Contains(out, "3 answered, 0% lost") {
		t.Error(out)
	}

	denied := func(x *box, what, script string) {
		t.Helper()
		if out, err := x.tryShell(script); err == nil {
			t.Errorf("%s: %s", what, out)
		}
	}
	a.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: private}\n")
	b.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: private}\n")
	a.apply(strings.ReplaceAll(webPod("secret", a.host.Name), "namespace: shop", "namespace: private"))
	b.apply(strings.ReplaceAll(webPod("secret", b.host.Name), "namespace: shop", "namespace: private"))
	block := func(known netip.Addr) func(netip.Addr) string { // the other cluster's name of an address
		return func(own netip.Addr) string {
			out := known.As4()
			out[3] = own.As4()[3]
			return netip.AddrFrom4(out).String()
		}
	}
	for _, x := range []struct {
		own    *box
		knows  func(netip.Addr) string
		prober string
	}{{a, block(there), "away"}, {b, block(away), "home"}} {
		var secret netip.Addr
		x.own.eventually("its own pod runs", func() error {
			pod, _, err := get[corev1.Pod](x.own, "/api/v1/namespaces/private/pods/secret")
			if err == nil {
				secret, err = netip.ParseAddr(pod.Status.PodIP)
			}
			return err
		})
		denied(a, x.prober+" reaches a pod that is not shared at "+x.own.host.Name,
			fmt.Sprintf("kubectl exec -n shop %s -- sh -c 'nc -w 2 %s 8080 </dev/null'", x.prober, x.knows(secret)))
		denied(a, x.prober+" reaches the host "+x.own.host.Name,
			fmt.Sprintf("kubectl exec -n shop %s -- sh -c 'nc -w 2 %s 6447 </dev/null'", x.prober, x.knows(netip.MustParseAddr("10.42.0.1"))))
	}

	services := p.serve(proxy, bed.ProxyIPTables, away, netip.PrefixFrom(there, 24).Masked())
	services.work(home)

	// The agents' ends and starts keep what is connected: nothing of the path is gone meanwhile.
	for _, x := range []*box{a, b} {
		if err := x.agent.Kill(); err != nil {
			t.Fatal(err)
		}
		x.start()
	}
	asks("home", away.String(), "away")
	asks("away", there.String(), "home")
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
	if again := a.awaitAddress("away"); again != away {
		t.Errorf("the pod is known as %s now", again)
	}
	asks("home", away.String(), "away")
	services.policies()
	services.work(home)
	services.otherMode(bed.ProxyNFTables)
	services.work(home)
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
