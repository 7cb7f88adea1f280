package e2e

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/sharing/names"
)

// TestNames: a pod at a provider finds a Service of its own cluster by all of its names, and
// none of the provider's.
func TestNames(t *testing.T) {
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
	b.likeK3s(bed.ProxyNFTables)
	// The cluster DNS of B: BIND on its host, of which the API server knows as a pod.
	bind := b.host.StartBIND(t.Context(), bed.Zone{Name: "cluster.local", Dynamic: true, Text: "kubernetes.default.svc A 10.43.0.1\nsecret.private.svc A 10.43.0.66\n"},
		bed.Zone{Name: "example.com", Dynamic: true, Text: "@ A 192.0.2.1\n"})
	b.eventually("the pod of the cluster DNS is there", func() error { // with the ServiceAccount that controllers make
		return b.kube.Apply(t.Context(), `apiVersion: v1
kind: Pod
metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  nodeSelector: {kubernetes.io/hostname: `+b.host.Name+`}
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers: [{name: dns, image: `+bed.Image+`, imagePullPolicy: Never, command: [sleep, "100000"]}]
`)
	})
	p.join()
	a.awaitNode(b.asNode(), true)
	b.eventually("guests can ask for names", func() error {
		known, err := cliJSON[control.Network](b, "network", "list")
		if at := known.Names.Addresses; err == nil && (len(at) != 1 || at[0] != names.Addresses[0].String()) {
			err = fmt.Errorf("at %v: %s", at, known.Names.Message)
		}
		return err
	})
	a.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {liqo.io/enabled: \"true\"}}\n")
	a.tolerates()
	a.apply(webPod("home", a.host.Name) + "---\n" + webPod("away", b.asNode()))
	home := a.awaitAddress("home")
	a.awaitAddress("away")

	inAway := func(script string) (string, error) {
		return a.tryShell("kubectl exec -n shop away -- sh -c '" + script + "'")
	}
	resolv, err := inAway("cat /etc/resolv.conf")
	if err != nil || !strings.Contains(resolv, "nameserver 169.254.241.53\n") || !strings.Contains(resolv, "search shop.svc.cluster.local svc.cluster.local cluster.local\n") || !strings.Contains(resolv, "ndots:5") {
		t.Fatalf("%v: %s", err, resolv)
	}
	// The Service web of shop, as it would be reflected.
	guests, err := list[corev1.Namespace](b, "/api/v1/namespaces?labelSelector=liqo.io%2Forigin-namespace%3Dshop")
	if err != nil || len(guests) != 1 {
		t.Fatalf("%d namespaces of guests: %v", len(guests), err)
	}
	var there string
	b.eventually("B knows the pods of A", func() error {
		known, err := cliJSON[control.Network](b, "network", "list")
		if err == nil && (len(known.Peers) != 1 || len(known.Peers[0].Theirs) != 1) {
			return fmt.Errorf("%+v", known)
		}
		if err == nil {
			there = strings.TrimSuffix(known.Peers[0].Theirs[0], "0/24") + fmt.Sprint(home.As4()[3])
		}
		return err
	})
	update := func(commands string) {
		t.Helper()
		if err := bind.Update(t.Context(), commands); err != nil {
			t.Fatal(err)
		}
	}
	update("update add web." + guests[0].Name + ".svc.cluster.local 60 A " + there)
	update("update add www.example.com 60 A " + there)
	resolver, err := dns.ClientConfigFromReader(strings.NewReader(resolv))
	if err != nil {
		t.Fatal(err)
	}
	// lookUp does what a resolver in the pod does, which the static programs of the image cannot.
	lookUp := func(name string) (string, error) {
		for _, full := range resolver.NameList(name) {
			client := dns.Client{Timeout: moment}
			var conn *dns.Conn
			if err := b.host.InPod("away", func() (err error) {
				conn, err = client.Dial(net.JoinHostPort(resolver.Servers[0], resolver.Port))
				return err
			}); err != nil {
				return "", err
			}
			got, _, err := client.ExchangeWithConn(new(dns.Msg).SetQuestion(full, dns.TypeA), conn)
			_ = conn.Close()
			if err != nil {
				return "", fmt.Errorf("%s: %w", full, err)
			}
			if len(got.Answer) > 0 {
				return got.Answer[0].(*dns.A).A.String(), nil
			}
			if got.Rcode != dns.RcodeSuccess && got.Rcode != dns.RcodeNameError {
				return "", fmt.Errorf("%s: %s", full, dns.RcodeToString[got.Rcode])
			}
		}
		return "", nil
	}
	finds := func(name string) {
		t.Helper()
		a.eventually("the pod finds "+name, func() error {
			address, err := lookUp(name)
			if err != nil || address != there {
				return fmt.Errorf("it is %q and not %q: %v", address, there, err)
			}
			out, err := inAway(`printf "GET /cgi-bin/who HTTP/1.0\r\n\r\n" | nc -w 5 ` + address + " 8080")
			if err == nil && !strings.Contains(out, "home asked by ") {
				err = fmt.Errorf("it finds %q", out)
			}
			return err
		})
	}
	for _, name := range []string{"web", "web.shop", "web.shop.svc", "web.shop.svc.cluster.local", "www.example.com"} {
		finds(name)
	}
	for _, name := range []string{"kubernetes.default", "secret.private", "secret.private.svc.cluster.local", "web." + guests[0].Name + ".svc.cluster.local"} {
		// As it is asked for outside in the end, BIND refuses names of zones that it does not have.
		if address, err := lookUp(name); address != "" || err != nil && !strings.HasSuffix(err.Error(), name+".: REFUSED") {
			t.Errorf("the pod finds %s: %q %v", name, address, err)
		}
	}
	// Other pods of B, and B's host by a name, are refused.
	b.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: private}\n")
	b.apply(strings.ReplaceAll(webPod("own", b.host.Name), "namespace: shop", "namespace: private"))
	b.eventually("a pod of B runs", func() error {
		pod, _, err := get[corev1.Pod](b, "/api/v1/namespaces/private/pods/own")
		if err == nil && !podReady(pod) {
			err = errors.New("not yet")
		}
		return err
	})
	if out, err := b.tryShell("kubectl exec -n private own -- nc -w 2 169.254.241.53 53 </dev/null 2>&1"); err == nil {
		t.Errorf("a pod of B reaches the address: %s", out)
	}

	// B's agent ends and starts: names are answered again, at the same address.
	if err := b.agent.Kill(); err != nil {
		t.Fatal(err)
	}
	b.start()
	finds("web.shop")

	// While the path is down, names are answered.
	a.host.Link("eth0").Unplug()
	b.eventually("the name is known without the path", func() error {
		known, err := cliJSON[control.Network](b, "network", "list")
		if err == nil && known.Peers[0].State == control.NetworkConnected {
			return errors.New("the path is not down yet")
		}
		address, err := lookUp("web.shop")
		if err == nil && address != there {
			err = fmt.Errorf("it is %q", address)
		}
		return err
	})
	a.host.Link("eth0").Plug()
	finds("web")

	a.mustCLI("peers", "disconnect", p.bID)
	b.eventually("nothing of the network is left", func() error {
		out, err := b.tryShell("ip -o addr show; nft list tables")
		if err == nil && (strings.Contains(out, "169.254.241.53") || strings.Contains(out, "liqo\n")) {
			err = errors.New(out)
		}
		return err
	})
}
