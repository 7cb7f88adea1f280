package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"liqo.io/agent/internal/bed"
)

const (
	webService  = "10.43.7.1"
	webService6 = "fd43::701"
	proxyPort   = 8090 // of the pod that leads requests to others
	echoPort    = 7000 // of pods: who they are, and then everything again
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
  ipFamilyPolicy: PreferDualStack
  clusterIP: ` + webService + `
  clusterIPs: [` + webService + `, "` + webService6 + `"]
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
  ipFamilyPolicy: PreferDualStack
  externalTrafficPolicy: Local
  selector: {app: shop}
  ports: [{port: 80, targetPort: 8080, nodePort: 30081}]
---
apiVersion: v1
kind: Service
metadata: {name: web-headless, namespace: shop}
spec:
  ipFamilyPolicy: PreferDualStack
  clusterIP: None
  selector: {app: shop}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: ingress, namespace: private}
spec:
  type: NodePort
  externalTrafficPolicy: Local
  selector: {app: web}
  ports: [{port: 80, targetPort: 8090, nodePort: 30082}]
`
)

// services are those of A, whose pods run in both clusters, beside all that changes packets on a box with K3s. Both
// clusters are dual-stack.
type services struct {
	*pair
	proxy *bed.Process // of A
	mode  bed.ProxyMode
	desk  *bed.Host               // another machine on the LAN
	at    []netip.Addr            // its addresses
	home  []string                // pods at A
	pods  map[string][]netip.Addr // of all pods their addresses as A knows them
	away  []netip.Addr            // pod away, as A knows it
	there []netip.Addr            // pod home, as B knows it
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
	pods := x.host.Pods
	for i, program := range []string{"iptables -w", "ip6tables -w"}[:len(pods)] {
		x.shell(program + " -P FORWARD DROP\n" + bed.FlannelRules(program, pods[i], pods.Node()[i]))
	}
	x.shell("nft -f - <<'end'\n" + bed.FirewalldRules(pods) + "end\n")
	return proxy
}

// serve starts a Deployment with pods in both clusters, with Services.
func (p *pair) serve(proxy *bed.Process, mode bed.ProxyMode, away, there []netip.Addr) *services {
	a, t := p.a, p.a.t
	t.Helper()
	s := &services{pair: p, proxy: proxy, mode: mode, away: away, there: there, pods: make(map[string][]netip.Addr)}
	s.at = []netip.Addr{nextAddr(p.bed, 0), netip.MustParseAddr("fd77::de5c")}
	s.desk = p.bed.AddHost("desk", s.at[0].String()+"/24")
	s.desk.Link("eth0").AddAddress(s.at[1].String() + "/64")
	a.apply(webManifests)
	p.b.apply("apiVersion: v1\nkind: Service\nmetadata: {name: secret, namespace: private}\n" +
		"spec: {type: NodePort, ipFamilyPolicy: PreferDualStack, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30090}]}\n")
	a.eventually("the pods of the Deployment run in both clusters", func() error {
		clear(s.pods)
		s.home = nil
		pods, err := list[corev1.Pod](a, "/api/v1/namespaces/shop/pods?labelSelector=app%3Dshop")
		for _, pod := range pods {
			if !podReady(pod) || len(pod.Status.PodIPs) != 2 {
				return fmt.Errorf("%s on %s is %s: %v, %+v", pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.Status.PodIPs, pod.Status.Conditions)
			}
			if pod.Spec.NodeName == a.host.Name {
				s.home = append(s.home, pod.Name)
			}
			s.pods[pod.Name] = addressesOf(&pod)
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
	s.lead()
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
		if packets, err = net.ListenPacket("udp", fmt.Sprintf(":%d", echoPort)); err == nil {
			streams, err = net.Listen("tcp", fmt.Sprintf(":%d", echoPort))
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

// lead has pod secret, of a namespace that is not shared, be what an Ingress controller is: it leads each request to a pod
// behind Service web by the addresses in EndpointSlices, in turn, if that is ready. Service ingress leads to it, and it
// has to know who asks.
func (s *services) lead() {
	t := s.a.t
	t.Helper()
	in := place(func(fn func() error) error { return s.a.host.InPod("secret", fn) })
	var listener net.Listener
	if err := in(func() (err error) { listener, err = net.Listen("tcp", fmt.Sprintf(":%d", proxyPort)); return err }); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, network, address string) (c net.Conn, err error) {
		err = in(func() (err error) { c, err = (&net.Dialer{Timeout: moment}).Dial(network, address); return err })
		return c, err
	}}
	var turn atomic.Uint32
	server := &http.Server{ReadHeaderTimeout: soon, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || from.Addr().Unmap() != s.at[0] {
			t.Errorf("the pod behind the NodePort for local pods was asked by %s, want %s", r.RemoteAddr, s.at[0])
		}
		known, err := s.endpoints("web")
		var ready []netip.Addr
		for addr, is := range known {
			if is {
				ready = append(ready, addr)
			}
		}
		if err != nil || len(ready) == 0 {
			http.Error(w, fmt.Sprint("no pod is ready: ", known, err), http.StatusBadGateway)
			return
		}
		slices.SortFunc(ready, netip.Addr.Compare)
		to := ready[int(turn.Add(1))%len(ready)]
		(&httputil.ReverseProxy{Transport: transport, Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: netip.AddrPortFrom(to, 8080).String()})
		}}).ServeHTTP(w, r)
	})}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
}

// addr6 is the box's own IPv6 address.
func (x *box) addr6() (out netip.Addr) {
	for _, p := range x.host.Link("eth0").Addresses() {
		if p.Addr().Is6() && !p.Addr().IsLinkLocalUnicast() {
			out = p.Addr()
		}
	}
	return out
}

// addressesOf returns the addresses that a pod shows.
func addressesOf(pod *corev1.Pod) []netip.Addr {
	var out []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		out = append(out, netip.MustParseAddr(ip.IP))
	}
	return out
}

// counterpart returns what an address is among others, by one of them of its family: the range of a node is as large everywhere.
func counterpart(addr netip.Addr, others []netip.Addr) netip.Addr {
	for _, other := range others {
		if other.Is6() == addr.Is6() {
			last := 1
			if addr.Is6() {
				last = 8
			}
			out, own := other.AsSlice(), addr.AsSlice()
			copy(out[len(out)-last:], own[len(own)-last:])
			addr, _ = netip.AddrFromSlice(out)
		}
	}
	return addr
}

// policies is a round of kube-router in both clusters. In A, a policy of shop admits the cluster's pods and the machine on
// the LAN, and in B, the agent's own admits whom it says.
func (s *services) policies() {
	t := s.a.t
	t.Helper()
	s.b.eventually("the policies of the agent admit the pods of A", func() error {
		policies, err := list[networkingv1.NetworkPolicy](s.b, "/apis/networking.k8s.io/v1/networkpolicies")
		for _, addr := range s.there {
			if err == nil && !slices.ContainsFunc(policies, func(p networkingv1.NetworkPolicy) bool {
				return slices.ContainsFunc(admitted(p), func(p netip.Prefix) bool { return p.Contains(addr) })
			}) {
				err = fmt.Errorf("none of %d admits %s", len(policies), addr)
			}
		}
		return err
	})
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
			var policed bed.PolicedPod
			admit := func(addrs []netip.Addr) {
				for _, addr := range addrs {
					policed.From = append(policed.From, netip.PrefixFrom(addr, addr.BitLen()))
				}
			}
			if x == s.a && pod.Namespace == "shop" {
				admit(s.at)
			}
			for _, other := range pods {
				guests := x == s.b && pod.Namespace != "private" && other.Namespace == pod.Namespace // that is what liqo-guests says
				if guests || x == s.a && pod.Namespace == "shop" {
					admit(addressesOf(&other))
				}
			}
			for _, policy := range policies {
				if policy.Namespace == pod.Namespace {
					policed.From = append(policed.From, admitted(policy)...)
				}
			}
			if (x == s.b || slices.Contains(s.home, pod.Name)) && pod.Namespace != "private" && len(policed.From) == 0 {
				t.Errorf("no policy is about %s/%s in %s", pod.Namespace, pod.Name, x.host.Name)
			}
			for _, policed.Addr = range addressesOf(&pod) {
				local = append(local, policed)
			}
		}
		if want := 2 * 3; len(local) < want {
			t.Errorf("pods have %d addresses in %s, want %d or more", len(local), x.host.Name, want)
		}
		if err := x.host.SyncKubeRouter(t.Context(), local...); err != nil {
			t.Fatal(err)
		}
	}
}

// admitted are the addresses that a policy lets in.
func admitted(policy networkingv1.NetworkPolicy) (out []netip.Prefix) {
	for _, rule := range policy.Spec.Ingress {
		for _, from := range rule.From {
			if from.IPBlock != nil {
				out = append(out, netip.MustParsePrefix(from.IPBlock.CIDR))
			}
		}
	}
	return out
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
	for _, addrs := range s.pods {
		for _, addr := range addrs {
			want[addr] = true
		}
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
func (s *services) ask(from place, address string, patience time.Duration) (name string, by netip.Addr, err error) {
	var c net.Conn
	if err := from(func() (err error) {
		c, err = (&net.Dialer{Timeout: patience}).Dial("tcp", address)
		return err
	}); err != nil {
		return "", by, err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
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

// answered waits until each of the pods has answered, and fails if another one did. source is by which of these addresses
// a pod has to know who asks; nil is by any.
func (s *services) answered(what string, pods []string, source func(home bool) []netip.Addr, ask func() (string, netip.Addr, error)) {
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
		if want := source(slices.Contains(s.home, name)); want != nil && !slices.Contains(want, by) {
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
func (s *services) work(home, secret []netip.Addr) {
	s.a.t.Helper()
	a := s.a
	all := slices.Sorted(maps.Keys(s.pods))
	inPod := place(func(fn func() error) error { return a.host.InPod("home", fn) })
	other := place(func(fn func() error) error { return a.host.InPod("secret", fn) })
	known := func(addrs []netip.Addr) (out []netip.Addr) { // A's addresses, as B knows them
		for _, addr := range addrs {
			out = append(out, counterpart(addr, s.there))
		}
		return out
	}
	gateway := known([]netip.Addr{netip.MustParseAddr("10.50.0.1"), netip.MustParseAddr("fd50::1")})
	exactly := func(local, remote []netip.Addr) func(bool) []netip.Addr {
		return func(home bool) []netip.Addr {
			if home {
				return local
			}
			return remote
		}
	}
	var any []netip.Addr // one of the host's, whichever kube-proxy takes
	node, node6 := a.addr.String(), "["+a.addr6().String()+"]"
	type client struct {
		name    string
		from    place
		address string
		pods    []string
		source  func(home bool) []netip.Addr
	}
	clients := []client{
		{"a pod, cluster IP", inPod, webService + ":80", all, exactly(home, known(home))},
		{"a pod, NodePort", inPod, node + ":30080", all, exactly(any, known(home))},
		{"a pod of a namespace that is not shared, cluster IP", other, webService + ":80", all, exactly(any, any)},
		{"the host, cluster IP", a.host.Do, webService + ":80", all, exactly(any, gateway)},
		{"the host, NodePort", a.host.Do, node + ":30080", all, exactly(any, gateway)},
		{"the LAN, NodePort", s.desk.Do, node + ":30080", all, exactly(any, gateway)},
		{"the LAN, NodePort for local pods", s.desk.Do, node + ":30081", s.home, exactly(s.at[:1], any)},
		{"a pod, cluster IP, IPv6", inPod, "[" + webService6 + "]:80", all, exactly(home[1:], known(home[1:]))},
		{"a pod of a namespace that is not shared, cluster IP, IPv6", other, "[" + webService6 + "]:80", all, exactly(secret[1:], known(secret[1:]))},
		{"the host, cluster IP, IPv6", a.host.Do, "[" + webService6 + "]:80", all, exactly(any, gateway[1:])},
		{"the LAN, NodePort, IPv6", s.desk.Do, node6 + ":30080", all, exactly(any, gateway[1:])},
		{"the LAN, NodePort for local pods, IPv6", s.desk.Do, node6 + ":30081", s.home, exactly(s.at[1:], any)},
		{"the LAN, by a pod that leads to others", s.desk.Do, node + ":30082", all, exactly(secret, known(secret))},
	}
	if s.mode == bed.ProxyIPTables {
		clients = append(clients, client{"the host, NodePort at localhost", a.host.Do, "127.0.0.1:30080", all, exactly(any, gateway)})
	}
	for _, c := range clients {
		s.answered(c.name, c.pods, c.source, func() (string, netip.Addr, error) { return s.ask(c.from, c.address, moment) })
	}
	for _, c := range []client{
		{"a pod, cluster IP, UDP", inPod, webService + ":7", all, exactly(any, any)},
		{"a pod, cluster IP, UDP, IPv6", inPod, "[" + webService6 + "]:7", all, exactly(any, any)},
		{"the host, cluster IP, UDP", a.host.Do, webService + ":7", all, exactly(any, any)},
		{"the LAN, NodePort, UDP", s.desk.Do, node + ":30007", all, exactly(any, any)},
	} {
		s.answered(c.name, c.pods, c.source, func() (string, netip.Addr, error) {
			session, name, err := s.connect(c.from, "udp", c.address)
			if err == nil {
				_ = session.Close()
			}
			return name, netip.Addr{}, err
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
	s.answered("the LAN, NodePort of the other cluster", []string{"secret"}, func(bool) []netip.Addr { return nil },
		func() (string, netip.Addr, error) { return s.ask(s.desk.Do, s.b.addr.String()+":30090", moment) })
	var group sync.WaitGroup
	for _, attempt := range []struct {
		x    *box
		pod  string
		at   []netip.Addr
		port uint16
	}{
		{s.a, "home", s.away, 30090},
		{s.b, "away", s.there, 30080},
	} {
		for _, gateway := range []string{"10.42.0.1", "fd42::1"} {
			url := netip.AddrPortFrom(counterpart(netip.MustParseAddr(gateway), attempt.at), attempt.port).String()
			group.Go(func() {
				name, _, err := s.ask(func(fn func() error) error { return attempt.x.host.InPod(attempt.pod, fn) }, url, moment)
				if err == nil {
					t.Errorf("pod %s reaches %s by NodePort %s", attempt.pod, name, url)
				}
			})
		}
	}
	group.Wait()
}

// reflected waits until a pod at B reaches these pods, and no others, by the Service that B has for it. It fails if
// there is anything else of A's Services.
func (s *services) reflected(pods []string, ready bool) {
	b := s.b
	b.t.Helper()
	var web []string // its addresses
	b.eventually("the Services are reflected", func() error {
		found, err := list[corev1.Service](b, "/api/v1/services?labelSelector=liqo.io/origin-cluster-id")
		var names []string
		for _, svc := range found {
			if names = append(names, svc.Name); svc.Name == "web" {
				web = svc.Spec.ClusterIPs
			}
			if svc.Spec.Type != corev1.ServiceTypeClusterIP || len(svc.Spec.Ports) == 0 || svc.Spec.Ports[0].NodePort != 0 {
				b.t.Errorf("%s is %+v", svc.Name, svc.Spec)
			}
		}
		if slices.Sort(names); err == nil && (!slices.Equal(names, []string{"web", "web-headless", "web-local"}) || len(web) != 2) {
			err = fmt.Errorf("B has %v, with %v", names, web)
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
		if want := 2 * 3 * len(s.home); err == nil && count != want {
			err = fmt.Errorf("there are %d endpoints of A, want %d", count, want)
		}
		return err
	})
	for _, at := range web {
		s.answered("a pod at B, cluster IP "+at, pods, func(bool) []netip.Addr { return nil }, func() (string, netip.Addr, error) {
			return s.ask(func(fn func() error) error { return b.host.InPod("away", fn) }, net.JoinHostPort(at, "80"), moment)
		})
	}
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
	s.a.shell("for program in iptables ip6tables; do $program -I FORWARD -o liqo0 -j ACCEPT && $program -I FORWARD -i liqo0 -j ACCEPT; done")
}

// onlyHome waits until the Service is without the pods of B, and fails if a request does not get an answer from then on.
func (s *services) onlyHome(since time.Time) {
	t := s.a.t
	t.Helper()
	s.a.eventually("the pods of the other cluster are not ready in EndpointSlices", func() error {
		got, err := s.endpoints("web")
		for name, addrs := range s.pods {
			for _, addr := range addrs {
				if err == nil && got[addr] != slices.Contains(s.home, name) {
					err = fmt.Errorf("they are %v", got)
				}
			}
		}
		return err
	})
	t.Logf("the Service was without the pods of the other cluster after %v", time.Since(since).Round(100*time.Millisecond))
	inPod := place(func(fn func() error) error { return s.a.host.InPod("home", fn) })
	batch := func(patience time.Duration) error {
		for range 20 {
			for _, client := range []struct {
				from place
				to   string
			}{{inPod, webService + ":80"}, {s.a.host.Do, webService + ":80"}, {inPod, "[" + webService6 + "]:80"}, {s.desk.Do, s.a.addr.String() + ":30082"}} {
				name, _, err := s.ask(client.from, client.to, patience)
				if err == nil && !slices.Contains(s.home, name) {
					err = errors.New(name + " answered")
				}
				if err != nil {
					return fmt.Errorf("%s: %w", client.to, err)
				}
			}
		}
		return nil
	}
	s.a.eventually("kube-proxy knows", func() error { return batch(moment) })
	t.Logf("all requests were answered after %v", time.Since(since).Round(100*time.Millisecond))
	// What is lost is lost for a minute, too, and a machine that stands still is so for less.
	if err := batch(time.Minute); err != nil {
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
