package integration

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/kubelet"
	"liqo.io/agent/sharing/usage"
)

const (
	guest   = "liqo-11111111-shop" // the namespace of the provider that stands for shop
	tlsDir  = "/var/lib/rancher/k3s/server/tls"
	logFile = "/var/lib/web.log" // of the provider's host
)

// kwokConfig says what kwok's kubelet does about every pod.
const kwokConfig = `apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: run}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.status.phase', operator: In, values: [Pending]}
  next:
    statusTemplate: "phase: Running"
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: all}
spec: {logs: [{containers: [main], logsFile: ` + logFile + `, follow: true}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata: {name: all}
spec: {execs: [{containers: [main], local: {workDir: /}}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterAttach
metadata: {name: all}
spec: {attaches: [{containers: [main], logsFile: ` + logFile + `}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterPortForward
metadata: {name: all}
spec: {forwards: [{ports: [80], command: [cat]}]}
`

// clusters are a consumer with the server under test and a provider.
type clusters struct {
	consumer, provider *bed.Kube
	server             *kubelet.Server
	dir                string
	stop               func() // ends the run of the server and waits for it
}

// startClusters starts both clusters. The consumer has a virtual node with pod web in
// namespace shop, which is pod web-there at the provider.
func startClusters(t *testing.T) *clusters {
	t.Helper()
	kubes := bed.New(t).AddClusters(t.Context(), bed.HostSpec{Name: "consumer", Prefix: "10.77.0.1/24"}, bed.HostSpec{Name: "provider", Prefix: "10.77.0.2/24"})
	c, p := &clusters{consumer: kubes[0], provider: kubes[1], dir: t.TempDir()}, kubes[1].Host
	must(t, c.consumer.StartControllersWith(t.Context(), bed.ControllerConfig{NoScheduler: true}))
	p.WriteFile("/var/lib/kwok.yaml", kwokConfig)
	p.WriteFile(logFile, "")
	// kwok does not pass on the end of the input, which tar waits for: the archive of
	// a small file has four blocks.
	p.WriteFile("/usr/local/bin/tar", "#!/bin/sh\ncase $1 in -x*) head -c 2048 | /usr/bin/tar \"$@\" ;; *) exec /usr/bin/tar \"$@\" ;; esac\n")
	_, err := p.Run(t.Context(), "chmod", "755", "/usr/local/bin/tar")
	must(t, err)
	p.Start(bed.Cmd{Name: "kwok", Args: []string{bed.Binary(t, "kwok"), "--kubeconfig=" + bed.Kubeconfig, "--config=/var/lib/kwok.yaml",
		"--manage-single-node=provider", "--server-address=0.0.0.0:10250", "--node-ip=10.77.0.2",
		"--tls-cert-file=" + tlsDir + "/serving-kubelet.crt", "--tls-private-key-file=" + tlsDir + "/serving-kubelet.key"}})
	request(t, c.provider, http.MethodPatch, "/api/v1/nodes/provider/status", merge,
		`{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":10250}}}}`)
	c.pod(t, c.provider, guest, "web-there", "provider")
	c.serve(t, "")
	c.node(t)
	c.pod(t, c.consumer, "shop", "web", barnNode)
	request(t, c.consumer, http.MethodPatch, "/api/v1/namespaces/shop/pods/web/status", merge,
		`{"status":{"phase":"Running","containerStatuses":[{"name":"main","ready":true,"restartCount":0,"image":"example.com/web","imageID":"","state":{"running":{}}}]}}`)
	bedtest.Within(t, "a command in the provider's pod", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := c.provider.Kubectl(ctx, "-n", guest, "exec", "web-there", "--", "true")
		return err
	})
	return c
}

// pod makes a pod with all that it needs.
func (c *clusters) pod(t *testing.T, k *bed.Kube, namespace, name, node string) {
	t.Helper()
	request(t, k, http.MethodPost, "/api/v1/namespaces", jsonMIME, `{"metadata":{"name":"`+namespace+`"}}`)
	account := "/api/v1/namespaces/" + namespace + "/serviceaccounts"
	_, err := k.Request(t.Context(), http.MethodPost, account, jsonMIME, []byte(`{"metadata":{"name":"default"}}`))
	if err != nil && !strings.Contains(err.Error(), "AlreadyExists") {
		t.Fatal(err)
	}
	request(t, k, http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods", jsonMIME, `{"metadata":{"name":"`+name+`"},"spec":{"nodeName":"`+node+
		`","automountServiceAccountToken":false,"tolerations":[{"operator":"Exists"}],"containers":[{"name":"main","image":"example.com/web"}]}}`)
}

// serve runs the server under test on the consumer's host.
func (c *clusters) serve(t *testing.T, listen string) {
	t.Helper()
	up := newUpstream(t, c.provider)
	log := &bedtest.Log{}
	c.server = kubelet.New(kubelet.Config{
		Listen: func() string { return listen },
		Find: func(namespace, pod string) (kubelet.Place, bool) {
			return kubelet.Place{ID: providerID, Node: barnNode, Namespace: guest, Name: pod + "-there", Upstream: up}, namespace == "shop"
		},
		// The provider has no metrics API.
		Usage: usage.New(usage.Config{
			Node: func(name string) (usage.Node, bool) {
				return usage.Node{Remote: up, Guests: map[string][]*corev1.Pod{guest: nil}}, name == barnNode
			},
			Names:  func() []string { return []string{barnNode} },
			Logger: log.Logger(),
		}),
		Dir: c.dir, Self: func() peer.ClusterID { return consumerID },
		Logger: log.Logger(),
	})
	c.stop = bedtest.Run(t, log, context.Canceled, func(ctx context.Context) error {
		return c.consumer.Host.Do(func() error { return c.server.Run(ctx, c.consumer.RESTConfig()) })
	})
	c.wait(t, func(s kubelet.State) error {
		if !s.Address.IsValid() || s.NotAfter.IsZero() {
			return fmt.Errorf("it is not ready: %+v", s)
		}
		return nil
	})
}

// wait waits for a state of the server.
func (c *clusters) wait(t *testing.T, good func(kubelet.State) error) {
	t.Helper()
	bedtest.Within(t, "the server", func() error { return good(c.server.State()) })
}

// node makes the virtual node with the address and the port of the server.
func (c *clusters) node(t *testing.T) {
	t.Helper()
	addr, port, ok := c.server.Where()
	if !ok || addr != netip.MustParseAddr("127.0.0.1") {
		t.Fatalf("the server is at %v, %t", addr, ok)
	}
	request(t, c.consumer, http.MethodPost, "/api/v1/nodes", jsonMIME, `{"metadata":{"name":"`+barnNode+`"}}`)
	status := marshal(t, map[string]any{"status": map[string]any{
		"addresses":       []map[string]string{{"type": "Hostname", "address": addr.String()}},
		"daemonEndpoints": map[string]any{"kubeletEndpoint": map[string]any{"Port": port}}}})
	request(t, c.consumer, http.MethodPatch, nodesPath+barnNode+"/status", merge, string(status))
}

// kubectl runs kubectl on the consumer with something on standard input.
func (c *clusters) kubectl(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return c.consumer.Host.RunInput(ctx, input, append([]string{"env"}, args...)...)
}

// upstream leads straight to the provider's API server.
type upstream struct {
	http.RoundTripper
	kube   *bed.Kube
	config *tls.Config
}

func newUpstream(t *testing.T, k *bed.Kube) *upstream {
	t.Helper()
	config := k.RESTConfig()
	client, err := rest.HTTPClientFor(config)
	must(t, err)
	settings, err := rest.TLSConfigFor(config)
	must(t, err)
	settings.ServerName, settings.NextProtos = "127.0.0.1", []string{"http/1.1"}
	return &upstream{RoundTripper: client.Transport, kube: k, config: settings}
}

// RoundTrip implements http.RoundTripper.
func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = "127.0.0.1:6443", ""
	return u.RoundTripper.RoundTrip(r)
}

// Upgrade implements kubelet.Upstream.
func (u *upstream) Upgrade(ctx context.Context, r *http.Request) (net.Conn, *http.Response, error) {
	raw, err := u.kube.Host.DialContext(ctx, "tcp", "127.0.0.1:6443")
	if err != nil {
		return nil, nil, err
	}
	conn := tls.Client(raw, u.config)
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	if err := r.Write(conn); err != nil {
		stop()
		_ = raw.Close()
		return nil, nil, err
	}
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, r)
	if err != nil {
		stop()
		_ = raw.Close()
		return nil, nil, err
	}
	stop()
	if answer.StatusCode != http.StatusSwitchingProtocols {
		return nil, answer, nil
	}
	return &begun{Conn: conn, reader: reader}, answer, nil
}

// begun is a connection whose first bytes are in a reader.
type begun struct {
	*tls.Conn
	reader *bufio.Reader
}

func (r *begun) Read(p []byte) (int, error) { return r.reader.Read(p) }
