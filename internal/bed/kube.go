//go:build linux

package bed

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
)

const (
	// Kubeconfig is where a host keeps the kubeconfig of its administrator: where K3s has it.
	Kubeconfig = "/etc/rancher/k3s/k3s.yaml"

	kubeDir      = "/var/lib/rancher/k3s/server" // the control plane's files
	kubePort     = "6443"
	serviceRange = "10.43.0.0/16"
	serviceIP    = "10.43.0.1" // of the API server, the first of the range
	podRange     = "10.42.0.0/16"

	// kubeDeadline is how long a control plane may take to become ready if the caller sets no
	// deadline.
	kubeDeadline = 2 * time.Minute
)

// Kube is the Kubernetes control plane of a host: an etcd and a kube-apiserver at the host's port
// 6443, set up as K3s does it: no anonymous requests, RBAC, one Node that is the host.
type Kube struct {
	// Host is where it runs.
	Host *Host

	kubebox string // path
	config  *rest.Config
	client  *http.Client
	flags   []string // of the kube-apiserver

	serverCA   []byte            // in PEM
	accountKey *ecdsa.PrivateKey // signs the tokens of service accounts

	mu        sync.Mutex
	apiserver *Process
	starts    []start
}

// start is one start of an API server. It answers some requests before it is ready.
type start struct{ begin, ready time.Time }

// StartKube starts the host's control plane and waits until it is ready. Without a deadline in ctx, it
// may take two minutes.
func (h *Host) StartKube(ctx context.Context) *Kube {
	h.bed.t.Helper()
	return h.bed.StartKubes(ctx, h)[0]
}

// StartKubes is [Host.StartKube] for several hosts at the same time.
func (b *Bed) StartKubes(ctx context.Context, hosts ...*Host) []*Kube {
	b.t.Helper()
	return b.StartKubesWith(ctx, nil, hosts...)
}

// StartKubesWith is StartKubes with further options of the kube-apiserver.
func (b *Bed) StartKubesWith(ctx context.Context, flags []string, hosts ...*Host) []*Kube {
	b.t.Helper()
	kubebox := Binary(b.t, "kubebox")
	ctx, cancel := deadlineFrom(ctx, kubeDeadline)
	defer cancel()
	kubes, errs := make([]*Kube, len(hosts)), make([]error, len(hosts))
	var group sync.WaitGroup
	for i, h := range hosts {
		group.Go(func() { kubes[i], errs[i] = h.startKube(ctx, kubebox, flags) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.t.Fatalf("bed: %v", err)
	}
	return kubes
}

func (h *Host) startKube(ctx context.Context, kubebox string, flags []string) (*Kube, error) {
	k := &Kube{Host: h, kubebox: kubebox}
	if err := k.writeFiles(); err != nil {
		return nil, fmt.Errorf("host %s: control plane: %w", h.Name, err)
	}
	k.flags = append(k.flags, flags...)
	var err error
	if k.client, err = rest.HTTPClientFor(k.config); err != nil {
		return nil, fmt.Errorf("host %s: client: %w", h.Name, err)
	}
	if _, err = h.start(k.program("etcd", "--data-dir="+kubeDir+"/db")); err != nil {
		return nil, err
	}
	if err := k.start(ctx); err != nil {
		return nil, err
	}
	if err := k.createNode(ctx); err != nil {
		return nil, fmt.Errorf("host %s: create its node: %w", h.Name, err)
	}
	return k, nil
}

// program is the command for one of the control plane's programs.
func (k *Kube) program(name string, args ...string) Cmd {
	// Collecting garbage is a quarter of what a control plane does while it starts. There is memory enough.
	return Cmd{Name: name, Args: append([]string{k.kubebox, name}, args...), Env: []string{"GOGC=400", "GOMEMLIMIT=1GiB"}}
}

// writeFiles makes the control plane's keys and certificates, its flags and the kubeconfig.
func (k *Kube) writeFiles() error {
	serverCA, err := newAuthority("k3s-server-ca")
	if err != nil {
		return err
	}
	clientCA, err := newAuthority("k3s-client-ca")
	if err != nil {
		return err
	}
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.ParseIP(serviceIP)}
	addresses := k.Host.addresses()
	for _, a := range addresses {
		ips = append(ips, net.ParseIP(a))
	}
	proxyCA, err := newAuthority("k3s-request-header-ca")
	if err != nil {
		return err
	}
	proxy, err := proxyCA.issue(pkix.Name{CommonName: "system:auth-proxy"}, nil, nil)
	if err != nil {
		return err
	}
	server, err := serverCA.issue(pkix.Name{CommonName: "kube-apiserver"},
		[]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost", k.Host.Name}, ips)
	if err != nil {
		return err
	}
	admin, err := clientCA.issue(pkix.Name{CommonName: "system:admin", Organization: []string{"system:masters"}}, nil, nil)
	if err != nil {
		return err
	}
	kubelet, err := serverCA.issue(pkix.Name{CommonName: "system:node:" + k.Host.Name, Organization: []string{"system:nodes"}},
		[]string{"localhost", k.Host.Name}, ips)
	if err != nil {
		return err
	}
	kubeletClient, err := clientCA.issue(pkix.Name{CommonName: "system:apiserver", Organization: []string{"system:masters"}}, nil, nil)
	if err != nil {
		return err
	}
	serverCAKey, err := encodeKey(serverCA.key)
	if err != nil {
		return err
	}
	serviceAccounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serviceAccountKey, err := encodeKey(serviceAccounts)
	if err != nil {
		return err
	}
	clientCAKey, err := encodeKey(clientCA.key)
	if err != nil {
		return err
	}
	tlsDir := kubeDir + "/tls"
	if err := k.Host.Do(func() error {
		return errors.Join(
			writeFile(tlsDir+"/server-ca.crt", string(serverCA.pem)),
			writeFile(tlsDir+"/server-ca.key", string(serverCAKey)),
			writeFile(tlsDir+"/serving-kubelet.crt", string(kubelet.cert)),
			writeFile(tlsDir+"/serving-kubelet.key", string(kubelet.key)),
			writeFile(tlsDir+"/client-kube-apiserver.crt", string(kubeletClient.cert)),
			writeFile(tlsDir+"/client-kube-apiserver.key", string(kubeletClient.key)),
			writeFile(tlsDir+"/client-ca.crt", string(clientCA.pem)),
			writeFile(tlsDir+"/client-ca.key", string(clientCAKey)),
			writeFile(tlsDir+"/request-header-ca.crt", string(proxyCA.pem)),
			writeFile(tlsDir+"/client-auth-proxy.crt", string(proxy.cert)),
			writeFile(tlsDir+"/client-auth-proxy.key", string(proxy.key)),
			writeFile(tlsDir+"/server.crt", string(server.cert)),
			writeFile(tlsDir+"/server.key", string(server.key)),
			writeFile(tlsDir+"/service.key", string(serviceAccountKey)),
			writeFile(auditPolicyPath, auditPolicy),
			writeFile(Kubeconfig, kubeconfig(serverCA.pem, admin)),
		)
	}); err != nil {
		return err
	}
	k.serverCA, k.accountKey = serverCA.pem, serviceAccounts
	k.config = &rest.Config{
		Host:            "https://127.0.0.1:" + kubePort,
		TLSClientConfig: rest.TLSClientConfig{CAData: serverCA.pem, CertData: admin.cert, KeyData: admin.key},
		Dial:            k.Host.DialContext,
	}
	k.flags = []string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--secure-port=" + kubePort,
		"--advertise-address=" + addresses[0],
		"--anonymous-auth=false",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		// It would taint the node as not ready until a controller that most tests do without takes
		// that back.
		"--disable-admission-plugins=TaintNodesByCondition",
		"--allow-privileged=true",
		"--service-cluster-ip-range=" + serviceRange,
		"--client-ca-file=" + tlsDir + "/client-ca.crt",
		"--tls-cert-file=" + tlsDir + "/server.crt",
		"--tls-private-key-file=" + tlsDir + "/server.key",
		"--requestheader-client-ca-file=" + tlsDir + "/request-header-ca.crt",
		"--requestheader-allowed-names=system:auth-proxy",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + tlsDir + "/client-auth-proxy.crt",
		"--proxy-client-key-file=" + tlsDir + "/client-auth-proxy.key",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + tlsDir + "/service.key",
		"--service-account-signing-key-file=" + tlsDir + "/service.key",
		"--service-account-lookup=true",
		"--api-audiences=https://kubernetes.default.svc.cluster.local,k3s",
		"--kubelet-certificate-authority=" + tlsDir + "/server-ca.crt",
		"--kubelet-client-certificate=" + tlsDir + "/client-kube-apiserver.crt",
		"--kubelet-client-key=" + tlsDir + "/client-kube-apiserver.key",
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--audit-policy-file=" + auditPolicyPath,
		"--audit-log-path=" + auditLogPath,
		"--profiling=false",
	}
	return nil
}

// kubeconfig returns the administrator's kubeconfig as K3s writes it.
func kubeconfig(ca []byte, admin keyPair) string {
	b64 := base64.StdEncoding.EncodeToString
	return `apiVersion: v1
kind: Config
clusters:
- name: default
  cluster:
    server: https://127.0.0.1:` + kubePort + `
    certificate-authority-data: ` + b64(ca) + `
users:
- name: default
  user:
    client-certificate-data: ` + b64(admin.cert) + `
    client-key-data: ` + b64(admin.key) + `
contexts:
- name: default
  context:
    cluster: default
    user: default
current-context: default
`
}

// Start starts the kube-apiserver again after StopAPIServer or KillAPIServer and waits until it is
// ready.
func (k *Kube) Start(ctx context.Context) error {
	ctx, cancel := deadlineFrom(ctx, kubeDeadline)
	defer cancel()
	return k.start(ctx)
}

func (k *Kube) start(ctx context.Context) error {
	begin := time.Now()
	p, err := k.Host.start(k.program("kube-apiserver", k.flags...))
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.apiserver = p
	k.mu.Unlock()
	if err := k.WaitReady(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.starts = append(k.starts, start{begin: begin, ready: time.Now()})
	return nil
}

// starting reports whether the API server was not ready yet at a time.
func (k *Kube) starting(at time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.starts, func(s start) bool { return at.After(s.begin) && at.Before(s.ready) })
}

// WaitReady waits until the API server reports that it is ready.
func (k *Kube) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := k.APIServer()
	if err := Poll(ctx, func() error {
		select {
		case <-p.Done():
			cancel(errors.New("it has ended: " + p.state()))
		default:
		}
		_, err := k.Request(ctx, http.MethodGet, "/readyz", "", nil)
		return err
	}); err != nil {
		return fmt.Errorf("kube-apiserver on %s is not ready: %w", k.Host.Name, err)
	}
	return nil
}

// APIServer returns the process of the kube-apiserver that was started last.
func (k *Kube) APIServer() *Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.apiserver
}

// Stop ends the kube-apiserver in an orderly way. What it stored stays, for [Kube.Start].
func (k *Kube) Stop() error { return k.APIServer().Stop() }

// Kill ends the kube-apiserver as a crash does. What it stored stays, for [Kube.Start].
func (k *Kube) Kill() error { return k.APIServer().Kill() }

// Freeze makes the kube-apiserver hang: connections are accepted by the kernel and nothing is
// answered.
func (k *Kube) Freeze() error { return k.APIServer().Signal(unix.SIGSTOP) }

// Thaw ends a Freeze.
func (k *Kube) Thaw() error { return k.APIServer().Signal(unix.SIGCONT) }

// RESTConfig returns an administrator's configuration for client-go, which works in the test's own
// process although that is not on the host.
func (k *Kube) RESTConfig() *rest.Config { return rest.CopyConfig(k.config) }

// Request sends one request to the API server as administrator and returns the body of an answer with
// status 2xx; any other status is an error.
func (k *Kube) Request(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, k.config.Host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := k.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if answer.StatusCode/100 != 2 {
		return b, fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, bytes.TrimSpace(b))
	}
	return b, nil
}

// Kubectl runs kubectl on the host as administrator and returns its output.
func (k *Kube) Kubectl(ctx context.Context, args ...string) (string, error) {
	return k.Host.Run(ctx, append([]string{"kubectl", "--kubeconfig", Kubeconfig}, args...)...)
}

// Apply applies manifests, as `kubectl apply -f` does.
func (k *Kube) Apply(ctx context.Context, yaml string) error {
	_, err := k.Host.RunInput(ctx, yaml, "kubectl", "--kubeconfig", Kubeconfig, "apply", "-f", "-")
	return err
}
