package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/names"
	"liqo.io/agent/sharing/workload"
)

// shopPod is the spec of a pod that tells over HTTP who it is.
const shopPod = `
      terminationGracePeriodSeconds: 0
      containers:
      - name: web
        image: ` + bed.Image + `
        imagePullPolicy: Never
        command: [shop, web]
        resources: {requests: {cpu: 10m, memory: 8Mi}}
`

// namesManifests are a Service with a pod in each cluster, and a StatefulSet that has one in each.
func namesManifests(home, away string) string {
	pod := func(name, node string) string {
		return `apiVersion: v1
kind: Pod
metadata: {name: ` + name + `, namespace: shop, labels: {app: web}}
spec:
      nodeSelector: {kubernetes.io/hostname: ` + node + `}` + shopPod + "---\n"
	}
	return pod("home", home) + pod("away", away) + `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: ` + webService + `
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec:
  clusterIP: None
  selector: {app: db}
  ports: [{name: http, port: 8080}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  serviceName: db
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: db}}}` + shopPod
}

// TestNames: a pod at a provider finds the Services of its own cluster by all of their names, as a pod at home does, and none
// of the provider's. Both clusters have CoreDNS. What pods do with tokens is tested before, on the same clusters.
func TestNames(t *testing.T) {
	t.Parallel()
	if !bed.RealRoot() {
		t.Skip("containers need root on the machine; run the tests as root to have this one")
	}
	const sharing = "[sharing]\nregistries = [\"bed.example.com\"]\nlocal_images = true\n"
	p := newPair(t, sharing)
	a, b := p.a, p.b
	// The DNS server of the LAN, which knows all names that there are.
	lan := nextAddr(p.bed, 0)
	p.bed.AddHost("router", lan.String()+"/24").StartBIND(t.Context(), bed.Zone{Name: ".", Text: "@ SOA ns. hostmaster. 1 60 60 3600 5\n@ NS ns.\nns. A 192.0.2.53\nwww.example.com. A 192.0.2.1\n"})
	for _, x := range []*box{a, b} {
		if err := errors.Join(x.kube.StartControllers(t.Context()), x.kube.StartKubelet(t.Context())); err != nil {
			t.Fatal(err)
		}
		x.likeK3s(bed.ProxyNFTables)
		if err := x.kube.StartCoreDNS(t.Context(), lan); err != nil {
			t.Fatal(err)
		}
	}
	const (
		secret, others = "10.43.0.66", "10.43.0.67"
		cluster        = ".svc.cluster.local"
	)
	guests := workload.Namespace("liqo", peer.ClusterID(p.aID), "shop")
	another := workload.Namespace("liqo", "5f4dcc3b-0000-4000-8000-000000000001", "shop")
	for namespace, service := range map[string]string{"private": "secret, namespace: private}\nspec: {clusterIP: " + secret, another: "web, namespace: " + another + "}\nspec: {clusterIP: " + others} {
		b.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + namespace + "}\n---\n" +
			"apiVersion: v1\nkind: Service\nmetadata: {name: " + service + ", ports: [{name: http, port: 80}]}\n")
	}
	b.eventually("the namespace has its service account", func() error {
		return b.kube.Apply(t.Context(), "apiVersion: v1\nkind: Pod\nmetadata: {name: own, namespace: private}\nspec:"+shopPod)
	})
	p.join()
	a.awaitNode(b.asNode(), true)
	b.eventually("guests can ask for names", func() error {
		known, err := b.asks.Network(t.Context())
		if at := known.Names.Addresses; err == nil && (len(at) != 1 || at[0] != names.Addresses[0].String()) {
			err = fmt.Errorf("at %v: %s", at, known.Names.Message)
		}
		return err
	})
	t.Run("tokens", p.tokens)
	a.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {liqo.io/enabled: \"true\"}}\n")
	a.tolerates()
	a.apply(namesManifests(a.host.Name, b.asNode()))
	for _, pod := range []string{"home", "away", "db-0", "db-1"} {
		a.awaitAddress(pod)
	}
	var web string // the address of the Service at B
	b.eventually("the Service is reflected", func() error {
		svc, found, err := get[corev1.Service](b, "/api/v1/namespaces/"+guests+"/services/web")
		if web = svc.Spec.ClusterIP; err == nil && !found {
			err = errors.New("there is none")
		}
		return err
	})
	resolv, err := a.tryShell("kubectl exec -n shop away -- cat /etc/resolv.conf")
	if err != nil || !strings.Contains(resolv, "nameserver 169.254.241.53\n") || !strings.Contains(resolv, "search shop.svc.cluster.local svc.cluster.local cluster.local\n") || !strings.Contains(resolv, "ndots:5") {
		t.Fatalf("%v: %s", err, resolv)
	}

	// What a pod is told of names, as internal/bed/cmd/shop prints it.
	finds := func(x *box, namespace, pod string, want map[string]string) {
		t.Helper()
		var args []string
		for name := range want {
			args = append(args, name)
		}
		x.eventually("pod "+pod+" resolves names", func() error {
			out, err := x.tryShell("kubectl exec -n " + namespace + " " + pod + " -- shop look " + strings.Join(args, " "))
			if err != nil {
				return err
			}
			var wrong []error
			for line := range strings.Lines(out) {
				name, got, _ := strings.Cut(strings.TrimSpace(line), "\t")
				if got != want[name] {
					wrong = append(wrong, fmt.Errorf("%s: %q, want %q", name, got, want[name]))
				}
			}
			if n := strings.Count(out, "\n"); n != len(want) {
				wrong = append(wrong, fmt.Errorf("%d lines of %d: %s", n, len(want), out))
			}
			return errors.Join(wrong...)
		})
	}
	// answers waits until requests from a pod are answered by these pods, each by one at least, and by no others.
	answers := func(x *box, namespace, pod, options string, want ...string) {
		t.Helper()
		x.eventually("pod "+pod+" asks "+options, func() error {
			out, err := x.tryShell("kubectl exec -n " + namespace + " " + pod + " -- shop ask " + options)
			if err != nil {
				return err
			}
			got := strings.Split(strings.TrimSpace(out), "\n")
			for i := range got {
				got[i] = got[i][strings.LastIndex(got[i], " ")+1:]
			}
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, want) {
				err = fmt.Errorf("%v answered: %s", got, out)
			}
			return err
		})
	}
	// All that both pods are told alike. The addresses of db are other ones, and HTTP requests say what they are worth.
	told := func(web string, more map[string]string) map[string]string {
		out := map[string]string{
			"web": web, "web.shop": web, "web.shop.svc": web, "web.shop" + cluster: web, "WEB.shop" + cluster + ".": web,
			web:                             "web.shop" + cluster + ".",
			"_http._tcp.web.shop" + cluster: "web.shop" + cluster + ".:80",
			"_http._tcp.db.shop" + cluster:  "db-0.db.shop" + cluster + ".:8080 db-1.db.shop" + cluster + ".:8080",
			"www.example.com":               "192.0.2.1",
		}
		for _, name := range []string{
			"nothing", "nothing.shop", "nothing.shop" + cluster, "_https._tcp.web.shop" + cluster, "db-2.db.shop", "nothing.example.com",
			"secret.private", "secret.private" + cluster, "web." + guests, "web." + guests + cluster, "web." + another + cluster, secret, others, b.host.Name, b.addr.String(),
		} {
			out[name] = "none"
		}
		for name, records := range more {
			out[name] = records
		}
		return out
	}
	finds(a, "shop", "home", told(webService, nil))
	finds(a, "shop", "away", told(web, map[string]string{"kubernetes.default": "none", "kube-dns.kube-system" + cluster: "none", bed.DNS: "none", a.host.Name: "none"}))
	// The provider's own pods are told all that is its own.
	finds(b, "private", "own", map[string]string{
		"secret": secret, "secret.private" + cluster: secret, "web." + another: others, b.host.Name: b.addr.String(), b.addr.String(): b.host.Name + ".",
		secret: "secret.private" + cluster + ".", "web.shop": "none", "web.shop" + cluster: "none",
	})
	for _, pod := range []string{"home", "away"} {
		answers(a, "shop", pod, "-count 10 http://web http://web.shop http://web.shop.svc http://web.shop"+cluster, "away", "home")
		answers(a, "shop", pod, "http://db-0.db:8080 http://db-0.db.shop:8080 http://db-0.db.shop"+cluster+":8080", "db-0")
		answers(a, "shop", pod, "http://db-1.db:8080 http://db-1.db.shop.svc:8080", "db-1")
		answers(a, "shop", pod, "-count 20 http://db.shop:8080", "db-0", "db-1")
	}
	if out, err := b.tryShell("kubectl exec -n private own -- nc -w 2 169.254.241.53 53 </dev/null 2>&1"); err == nil {
		t.Errorf("a pod of B reaches the address: %s", out)
	}

	// A pod at another provider is one more behind the Services.
	third := p.third(sharing)
	all := func() {
		t.Helper()
		answers(a, "shop", "away", "-count 30 http://web.shop", "away", "home", "third")
		answers(a, "shop", "away", "-count 30 http://all.shop:8080", "away", "home", "third")
		answers(a, "shop", "away", "http://"+third.at.String()+":8080", "third")
		answers(a, "shop", "third", "http://"+third.away.String()+":8080", "away")
		third.datagrams()
		third.deny()
	}
	all()
	third.cut()
	if err := a.agent.Kill(); err != nil {
		t.Fatal(err)
	}
	a.start()
	all()
	third.leave()

	// B's agent ends and starts: names are answered again, at the same address.
	if err := b.agent.Kill(); err != nil {
		t.Fatal(err)
	}
	b.start()
	answers(a, "shop", "away", "-count 20 http://web.shop", "away", "home")

	// B's agent starts before its cluster DNS, as after a start of the machine: a pod waits for that, since it keeps whom it was told to ask.
	if err := b.agent.Kill(); err != nil {
		t.Fatal(err)
	}
	coreDNS := func(changes string) {
		t.Helper()
		b.shell("kubectl patch deployment -n kube-system coredns --patch '{\"spec\": " + changes + "}'")
	}
	coreDNS(`{"replicas": 0}`)
	b.shell("kubectl wait -n kube-system --for=delete pod -l k8s-app=kube-dns --timeout=2m")
	coreDNS(`{"replicas": 1, "template": {"spec": {"nodeSelector": {"starts": "later"}}}}`)
	b.start()
	a.apply("apiVersion: v1\nkind: Pod\nmetadata: {name: late, namespace: shop}\nspec:\n      nodeSelector: {kubernetes.io/hostname: " + b.asNode() + "}" + shopPod)
	a.eventually("the late pod waits", func() error {
		if !strings.Contains(a.agent.Log(), "name=late") {
			return errors.New("nothing is logged of it")
		}
		return nil
	})
	coreDNS(`{"template": {"spec": {"nodeSelector": null}}}`)
	a.awaitAddress("late")
	if resolv, err = a.tryShell("kubectl exec -n shop late -- cat /etc/resolv.conf"); err != nil || !strings.Contains(resolv, "nameserver 169.254.241.53\n") {
		t.Errorf("%v: %s", err, resolv)
	}
	a.shell("kubectl delete pod -n shop late")

	// While the path is down, names are answered, and requests by the pods that are there.
	a.host.Link("eth0").Unplug()
	answers(b, guests, "away", "-count 20 http://web.shop", "away")
	finds(b, guests, "away", map[string]string{"web.shop": web})
	a.host.Link("eth0").Plug()
	answers(a, "shop", "away", "-count 20 http://web.shop", "away", "home")

	a.mustCLI("peers", "disconnect", p.bID)
	b.eventually("nothing of the network is left", func() error {
		out, err := b.tryShell("ip -o addr show; nft list tables")
		if err == nil && (strings.Contains(out, "169.254.241.53") || strings.Contains(out, "liqo\n")) {
			err = errors.New(out)
		}
		return err
	})
}
