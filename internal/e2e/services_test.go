package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"liqo.io/agent/internal/bed"
)

const (
	webService = "10.43.7.1"
	echoPort   = 7000 // of pods: who they are, and then everything again
	// moment is after how long a request that was lost is made again.
	moment = 3 * time.Second

	webManifests = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 4
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 0
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: shop}}}
      containers:
      - name: web
        image: ` + bed.Image + `
        imagePullPolicy: Never
        command: [sh, -c, 'mkdir -p /tmp/w/cgi-bin; echo "#!/bin/sh" > /tmp/w/cgi-bin/who; echo "echo; echo $(hostname) asked by \$REMOTE_ADDR" >> /tmp/w/cgi-bin/who; chmod 755 /tmp/w/cgi-bin/who; exec httpd -f -p 8080 -h /tmp/w']
        resources: {requests: {cpu: 10m, memory: 8Mi}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  type: NodePort
  clusterIP: ` + webService + `
  selector: {app: shop}
  ports:
  - {name: http, port: 80, targetPort: 8080, nodePort: 30080}
  - {name: echo, port: 7, targetPort: 7000}
  - {name: echo-udp, port: 7, targetPort: 7000, protocol: UDP, nodePort: 30007}
---
apiVersion: v1
kind: Service
metadata: {name: web-local, namespace: shop}
spec:
  type: NodePort
  externalTrafficPolicy: Local
  selector: {app: shop}
  ports: [{port: 80, targetPort: 8080, nodePort: 30081}]
---
apiVersion: v1
kind: Service
metadata: {name: web-headless, namespace: shop}
spec:
  clusterIP: None
  selector: {app: shop}
  ports: [{port: 80, targetPort: 8080}]
`
)

// services are those of A, whose pods run in both clusters, beside all that changes packets on a box with K3s.
type services struct {
	*pair
	proxy *bed.Process // of A
	mode  bed.ProxyMode
	desk  *bed.Host             // another machine on the LAN
	at    netip.Addr            // its address
	home  []string              // pods at A
	pods  map[string]netip.Addr // of all pods their addresses as A knows them
	away  netip.Addr            // pod away, as A knows it
	there netip.Prefix          // A's pods, as B knows them
	// From A's host by the Service to a pod at B: a TCP connection, and a UDP socket, which kube-proxy leads elsewhere
	// when that pod is not ready.
	session, datagrams net.Conn
}

// place is where a client is: it runs a function there.
type place func(fn func() error) error

// likeK3s gives a box kube-proxy, flannel's rules and firewalls.
func (x *box) likeK3s(mode bed.ProxyMode) *bed.Process {
	x.t.Helper()
	proxy, err := x.kube.StartKubeProxy(x.t.Context(), mode)
	if err != nil {
		x.t.Fatal(err)
	}
	x.shell("iptables -w -P FORWARD DROP\n" + bed.FlannelRules("iptables -w", netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("10.42.0.0/24")) +
		"nft -f - <<'end'\n" + bed.FirewalldRules + "end\n")
	return proxy
}

// serve starts a Deployment with pods in both clusters, with Services.
func (p *pair) serve(proxy *bed.Process, mode bed.ProxyMode, away netip.Addr, there netip.Prefix) *services {
	a, t := p.a, p.a.t
	t.Helper()
	s := &services{pair: p, proxy: proxy, mode: mode, away: away, there: there, pods: make(map[string]netip.Addr)}
	s.at = nextAddr(p.bed, 0)
	s.desk = p.bed.AddHost("desk", s.at.String()+"/24")
	a.apply(webManifests)
	p.b.apply("apiVersion: v1\nkind: Service\nmetadata: {name: secret, namespace: private}\n" +
		"spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30090}]}\n")
	a.eventually("the pods of the Deployment run in both clusters", func() error {
		clear(s.pods)
		s.home = nil
		pods, err := list[corev1.Pod](a, "/api/v1/namespaces/shop/pods?labelSelector=app%3Dshop")
		for _, pod := range pods {
			if !podReady(pod) || pod.Status.PodIP == "" {
				return fmt.Errorf("%s on %s is %s: %+v", pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.Status.Conditions)
			}
			if pod.Spec.NodeName == a.host.Name {
				s.home = append(s.home, pod.Name)
			}
			s.pods[pod.Name] = netip.MustParseAddr(pod.Status.PodIP)
		}
		if err == nil && (len(s.pods) != 4 || len(s.home) != 2) {
			err = fmt.Errorf("%d pods, %d of them at home", len(s.pods), len(s.home))
		}
		return err
	})
	for name := range s.pods {
		x := p.b
		if slices.Contains(s.home, name) {
			x = a
		}
		s.listen(x, name)
	}
	s.checkEndpoints("web-headless")
	s.policies()

	for network, to := range map[string]*net.Conn{"tcp": &s.session, "udp": &s.datagrams} {
		a.eventually("the Service leads to a pod of the other cluster by "+network, func() error {
			c, name, err := s.connect(a.host.Do, network, webService+":7")
			if err != nil || !slices.Contains(s.home, name) {
				*to = c
				return err
			}
			_ = c.Close()
			return errors.New(name + " answered")
		})
		t.Cleanup(func() { _ = (*to).Close() })
	}
	return s
}

// listen answers in a pod, by TCP and UDP: first who it is, and then everything again.
func (s *services) listen(x *box, pod string) {
	t := s.a.t
	t.Helper()
	var packets net.PacketConn
	var streams net.Listener
	if err := x.host.InPod(pod, func() (err error) {
		if packets, err = net.ListenPacket("udp4", fmt.Sprintf(":%d", echoPort)); err == nil {
			streams, err = net.Listen("tcp4", fmt.Sprintf(":%d", echoPort))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = packets.Close(), streams.Close() })
	go func() {
		buffer := make([]byte, 1500)
		for {
			_, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo([]byte(pod+"\n"), from)
		}
	}()
	go func() {
		for {
			c, err := streams.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(c, pod+"\n")
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
}

// policies is a round of kube-router in both clusters. In A, a policy of shop admits the cluster's pods and the machine on
// the LAN, and in B, the agent's own admits whom it says.
func (s *services) policies() {
	t := s.a.t
	t.Helper()
	for _, x := range []*box{s.a, s.b} {
		pods, err := list[corev1.Pod](x, "/api/v1/pods")
		if err != nil {
			t.Fatal(err)
		}
		policies, err := list[networkingv1.NetworkPolicy](x, "/apis/networking.k8s.io/v1/networkpolicies")
		if err != nil {
			t.Fatal(err)
		}
		var local []bed.PolicedPod
		for _, pod := range pods {
			// That is how it knows which pods are on its node.
			if pod.Status.HostIP != x.addr.String() || pod.Status.PodIP == "" {
				continue
			}
			policed := bed.PolicedPod{Addr: netip.MustParseAddr(pod.Status.PodIP)}
			if x == s.a && pod.Namespace == "shop" {
				policed.From = append(policed.From, netip.PrefixFrom(s.at, 32))
			}
			for _, other := range pods {
				guests := x == s.b && pod.Namespace != "private" && other.Namespace == pod.Namespace // that is what liqo-guests says
				if addr, err := netip.ParseAddr(other.Status.PodIP); err == nil && (guests || x == s.a && pod.Namespace == "shop") {
					policed.From = append(policed.From, netip.PrefixFrom(addr, 32))
				}
			}
			for _, policy := range policies {
				for _, rule := range policy.Spec.Ingress {
					for _, from := range rule.From {
						if from.IPBlock != nil && policy.Namespace == pod.Namespace {
							policed.From = append(policed.From, netip.MustParsePrefix(from.IPBlock.CIDR))
						}
					}
				}
			}
			if (x == s.b || slices.Contains(s.home, pod.Name)) && pod.Namespace != "private" && len(policed.From) == 0 {
				t.Errorf("no policy is about %s/%s in %s", pod.Namespace, pod.Name, x.host.Name)
			}
			local = append(local, policed)
		}
		if want := 3; len(local) < want {
			t.Errorf("%d pods run in %s, want %d or more", len(local), x.host.Name, want)
		}
		if err := x.host.SyncKubeRouter(t.Context(), local...); err != nil {
			t.Fatal(err)
		}
	}
}

// endpoints are the addresses that a Service has, and whether they are ready.
func (s *services) endpoints(service string) (map[netip.Addr]bool, error) {
	slices, err := list[discoveryv1.EndpointSlice](s.a, "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=kubernetes.io/service-name%3D"+service)
	out := make(map[netip.Addr]bool)
	for _, slice := range slices {
		for _, e := range slice.Endpoints {
			for _, addr := range e.Addresses {
				out[netip.MustParseAddr(addr)] = e.Conditions.Ready != nil && *e.Conditions.Ready
			}
		}
	}
	return out, err
}

// checkEndpoints waits until a Service has all pods, by the addresses that they have in A, and all are ready.
func (s *services) checkEndpoints(service string) {
	s.a.t.Helper()
	want := make(map[netip.Addr]bool)
	for _, addr := range s.pods {
		want[addr] = true
	}
	s.a.eventually("Service "+service+" has all pods", func() error {
		got, err := s.endpoints(service)
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("it has %v, want %v", got, want)
		}
		return err
	})
}

// connect opens a connection, or sends a datagram, and returns the name of the pod that answers.
func (s *services) connect(from place, network, address string) (net.Conn, string, error) {
	var c net.Conn
	if err := from(func() (err error) {
		c, err = (&net.Dialer{Timeout: moment}).Dial(network, address)
		return err
	}); err != nil {
		return nil, "", err
	}
	name, err := who(c, network)
	if err != nil {
		_ = c.Close()
		return nil, "", err
	}
	return c, name, nil
}

// who returns the name of the pod that answers.
func who(c net.Conn, network string) (string, error) {
	err := c.SetDeadline(time.Now().Add(moment))
	if err == nil && network == "udp" {
		_, err = io.WriteString(c, "who?")
	}
	if err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// ask asks a pod by HTTP who it is, and by which address it knows who asks.
func (s *services) ask(from place, address string) (name string, by netip.Addr, err error) {
	var c net.Conn
	if err := from(func() (err error) {
		c, err = (&net.Dialer{Timeout: moment}).Dial("tcp", address)
		return err
	}); err != nil {
		return "", by, err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(moment)); err != nil {
		return "", by, err
	}
	if _, err := io.WriteString(c, "GET /cgi-bin/who HTTP/1.0\r\n\r\n"); err != nil {
		return "", by, err
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		return "", by, err
	}
	lines := strings.Split(strings.TrimSpace(string(answer)), "\n")
	name, text, ok := strings.Cut(lines[len(lines)-1], " asked by ")
	if !ok {
		return "", by, fmt.Errorf("it answers %q", answer)
	}
	by, err = netip.ParseAddr(strings.Trim(text, "[]"))
	return name, by.Unmap(), err
}

// answered waits until each of the pods has answered, and fails if another one did. source is the address by which
// a pod has to know who asks; the zero Addr is any.
func (s *services) answered(what string, pods []string, source func(home bool) netip.Addr, ask func() (string, netip.Addr, error)) {
	s.a.t.Helper()
	seen := make(map[string]bool)
	s.a.eventually(what+": all pods of the Service answer", func() error {
		name, by, err := ask()
		if err != nil {
			return err
		}
		if !slices.Contains(pods, name) {
			s.a.t.Errorf("%s: %s answered, want one of %v", what, name, pods)
		}
		if want := source(slices.Contains(s.home, name)); want.IsValid() && by != want {
			s.a.t.Errorf("%s: %s was asked by %s, want %s", what, name, by, want)
		}
		seen[name] = true
		if len(seen) < len(pods) {
			return fmt.Errorf("%v have answered so far, of %v", slices.Collect(maps.Keys(seen)), pods)
		}
		return nil
	})
}

// work fails unless clients in A and on the LAN reach the pods of both clusters by the Services.
func (s *services) work(home netip.Addr) {
	s.a.t.Helper()
	a := s.a
	all := slices.Sorted(maps.Keys(s.pods))
	inPod := place(func(fn func() error) error { return a.host.InPod("home", fn) })
	other := place(func(fn func() error) error { return a.host.InPod("secret", fn) })
	known := func(addr netip.Addr) netip.Addr { // A's address, as B knows it
		out := s.there.Addr().As4()
		out[3] = addr.As4()[3]
		return netip.AddrFrom4(out)
	}
	gateway := known(netip.MustParseAddr("10.42.0.1"))
	exactly := func(local, remote netip.Addr) func(bool) netip.Addr {
		return func(home bool) netip.Addr {
			if home {
				return local
			}
			return remote
		}
	}
	var any netip.Addr // one of the host's, whichever kube-proxy takes
	node := a.addr.String()
	type client struct {
		name    string
		from    place
		address string
		pods    []string
		source  func(home bool) netip.Addr
	}
	clients := []client{
		{"a pod, cluster IP", inPod, webService + ":80", all, exactly(home, known(home))},
		{"a pod, NodePort", inPod, node + ":30080", all, exactly(any, known(home))},
		{"a pod of a namespace that is not shared, cluster IP", other, webService + ":80", all, exactly(any, any)},
		{"the host, cluster IP", a.host.Do, webService + ":80", all, exactly(any, gateway)},
		{"the host, NodePort", a.host.Do, node + ":30080", all, exactly(any, gateway)},
		{"the LAN, NodePort", s.desk.Do, node + ":30080", all, exactly(any, gateway)},
		{"the LAN, NodePort for local pods", s.desk.Do, node + ":30081", s.home, exactly(s.at, any)},
	}
	if s.mode == bed.ProxyIPTables {
		clients = append(clients, client{"the host, NodePort at localhost", a.host.Do, "127.0.0.1:30080", all, exactly(any, gateway)})
	}
	for _, c := range clients {
		s.answered(c.name, c.pods, c.source, func() (string, netip.Addr, error) { return s.ask(c.from, c.address) })
	}
	for _, c := range []client{
		{"a pod, cluster IP, UDP", inPod, webService + ":7", all, exactly(any, any)},
		{"the host, cluster IP, UDP", a.host.Do, webService + ":7", all, exactly(any, any)},
		{"the LAN, NodePort, UDP", s.desk.Do, node + ":30007", all, exactly(any, any)},
	} {
		s.answered(c.name, c.pods, c.source, func() (string, netip.Addr, error) {
			session, name, err := s.connect(c.from, "udp", c.address)
			if err == nil {
				_ = session.Close()
			}
			return name, any, err
		})
	}
	s.closed()
	s.reflected(all, true)
	s.goesOn()
}

// closed fails if pods of one cluster reach a NodePort of the other one by the address of its host, where kube-proxy
// would lead them to pods that they may not reach. B's is that of a Service of its own, and works.
func (s *services) closed() {
	t := s.a.t
	t.Helper()
	s.answered("the LAN, NodePort of the other cluster", []string{"secret"}, func(bool) netip.Addr { return netip.Addr{} },
		func() (string, netip.Addr, error) { return s.ask(s.desk.Do, s.b.addr.String()+":30090") })
	host := func(known netip.Addr) string {
		out := known.As4()
		out[3] = 1
		return netip.AddrFrom4(out).String()
	}
	var group sync.WaitGroup
	for _, attempt := range []struct {
		x        *box
		pod, url string
	}{
		{s.a, "home", host(s.away) + ":30090"},
		{s.b, "away", host(s.there.Addr()) + ":30080"},
	} {
		group.Go(func() {
			name, _, err := s.ask(func(fn func() error) error { return attempt.x.host.InPod(attempt.pod, fn) }, attempt.url)
			if err == nil {
				t.Errorf("pod %s reaches %s by NodePort %s", attempt.pod, name, attempt.url)
			}
		})
	}
	group.Wait()
}

// reflected waits until a pod at B reaches these pods, and no others, by the Service that B has for it. It fails if
// there is anything else of A's Services.
func (s *services) reflected(pods []string, ready bool) {
	b := s.b
	b.t.Helper()
	var web string // its address
	b.eventually("the Services are reflected", func() error {
		found, err := list[corev1.Service](b, "/api/v1/services?labelSelector=liqo.io/origin-cluster-id")
		var names []string
		for _, svc := range found {
			if names = append(names, svc.Name); svc.Name == "web" {
				web = svc.Spec.ClusterIP
			}
			if svc.Spec.Type != corev1.ServiceTypeClusterIP || len(svc.Spec.Ports) == 0 || svc.Spec.Ports[0].NodePort != 0 {
				b.t.Errorf("%s is %+v", svc.Name, svc.Spec)
			}
		}
		if slices.Sort(names); err == nil && !slices.Equal(names, []string{"web", "web-headless", "web-local"}) {
			err = fmt.Errorf("B has %v", names)
		}
		return err
	})
	b.eventually("the endpoints at B follow", func() error {
		found, err := list[discoveryv1.EndpointSlice](b, "/apis/discovery.k8s.io/v1/endpointslices?labelSelector=endpointslice.kubernetes.io/managed-by%3Dliqo-agent")
		count := 0
		for _, slice := range found {
			for _, e := range slice.Endpoints {
				if count++; *e.Conditions.Ready != ready {
					return fmt.Errorf("%v of %s is ready: %t", e.Addresses, slice.Name, !ready)
				}
			}
		}
		if want := 3 * len(s.home); err == nil && count != want {
			err = fmt.Errorf("there are %d endpoints of A, want %d", count, want)
		}
		return err
	})
	s.answered("a pod at B, cluster IP", pods, func(bool) netip.Addr { return netip.Addr{} }, func() (string, netip.Addr, error) {
		return s.ask(func(fn func() error) error { return b.host.InPod("away", fn) }, web+":80")
	})
}

// withdrawn waits until B has no Service and no endpoints of one that A has deleted.
func (s *services) withdrawn(name string) {
	a, b := s.a, s.b
	b.t.Helper()
	if _, err := a.kube.Kubectl(a.t.Context(), "delete", "service", "-n", "shop", name); err != nil {
		a.t.Fatal(err)
	}
	b.eventually(name+" is withdrawn", func() error {
		found, err := list[corev1.Service](b, "/api/v1/services?labelSelector=liqo.io/origin-cluster-id")
		for _, svc := range found {
			if svc.Name == name {
				return errors.New("the Service is there")
			}
		}
		slices, sliceErr := list[discoveryv1.EndpointSlice](b, "/apis/discovery.k8s.io/v1/endpointslices?labelSelector=kubernetes.io/service-name%3D"+name)
		if err = errors.Join(err, sliceErr); err == nil && len(slices) > 0 {
			err = fmt.Errorf("%s is there", slices[0].Name)
		}
		return err
	})
}

// goesOn fails unless the session that began first is still there.
func (s *services) goesOn() {
	s.a.t.Helper()
	if err := s.session.SetDeadline(time.Now().Add(soon)); err != nil {
		s.a.t.Fatal(err)
	}
	what := time.Now().String()
	if _, err := io.WriteString(s.session, what); err != nil {
		s.a.t.Fatalf("the session: %v", err)
	}
	answer := make([]byte, len(what))
	if _, err := io.ReadFull(s.session, answer); err != nil || string(answer) != what {
		s.a.t.Fatalf("the session answers %q: %v", answer, err)
	}
}

// otherMode has A's kube-proxy replaced by one of another mode, which accepts nothing that others drop: a person does, as
// docs/network.md says.
func (s *services) otherMode(mode bed.ProxyMode) {
	t := s.a.t
	t.Helper()
	err := s.a.kube.EndKubeProxy(t.Context(), s.proxy, s.mode)
	if err == nil {
		s.proxy, err = s.a.kube.StartKubeProxy(t.Context(), mode)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.mode = mode
	s.a.shell("iptables -I FORWARD -o liqo0 -j ACCEPT && iptables -I FORWARD -i liqo0 -j ACCEPT")
}

// onlyHome waits until the Service is without the pods of B, and fails if a request does not get an answer from then on.
func (s *services) onlyHome(since time.Time) {
	t := s.a.t
	t.Helper()
	s.a.eventually("the pods of the other cluster are not ready in EndpointSlices", func() error {
		got, err := s.endpoints("web")
		for name, addr := range s.pods {
			if err == nil && got[addr] != slices.Contains(s.home, name) {
				err = fmt.Errorf("they are %v", got)
			}
		}
		return err
	})
	t.Logf("the Service was without the pods of the other cluster after %v", time.Since(since).Round(100*time.Millisecond))
	inPod := place(func(fn func() error) error { return s.a.host.InPod("home", fn) })
	batch := func() error {
		for range 20 {
			for _, from := range []place{inPod, s.a.host.Do} {
				name, _, err := s.ask(from, webService+":80")
				if err == nil && !slices.Contains(s.home, name) {
					err = errors.New(name + " answered")
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	}
	s.a.eventually("kube-proxy knows", batch)
	t.Logf("all requests were answered after %v", time.Since(since).Round(100*time.Millisecond))
	if err := batch(); err != nil {
		t.Errorf("a request is not answered, although pods at home are ready: %v", err)
	}
	s.a.eventually("who goes on by UDP is led home", func() error {
		name, err := who(s.datagrams, "udp")
		if err == nil && !slices.Contains(s.home, name) {
			err = errors.New(name + " answered")
		}
		return err
	})
	var there []string
	for name := range s.pods {
		if !slices.Contains(s.home, name) {
			there = append(there, name)
		}
	}
	s.reflected(there, false)
}
