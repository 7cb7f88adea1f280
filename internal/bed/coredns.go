//go:build linux

package bed

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
)

const (
	// DNS is the address of the Service by which pods of a cluster ask for names.
	DNS = "10.43.0.10"

	clusterDomain = "cluster.local"
	corePort      = "1053" // of CoreDNS on the host; 53 is everybody's
)

// StartCoreDNS starts CoreDNS, configured as K3s does, and waits until it has read the cluster's Services. It runs on
// the host itself, not in a pod; the Service kube-dns leads to it, if there is kube-proxy ([Kube.StartKubeProxy]). Names outside
// of the cluster are asked for at the host's port 53.
func (k *Kube) StartCoreDNS(ctx context.Context) error {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	h := k.Host
	binary := Binary(h.bed.t, "coredns")
	corefile := filepath.Join(h.dir, "Corefile")
	if err := h.Do(func() error {
		return writeFile(corefile, `.:`+corePort+` {
	errors
	ready 127.0.0.1:8181
	kubernetes `+clusterDomain+` in-addr.arpa ip6.arpa {
		kubeconfig `+Kubeconfig+`
		pods insecure
		fallthrough in-addr.arpa ip6.arpa
	}
	cache 30
	forward . 127.0.0.1
}
`)
	}); err != nil {
		return err
	}
	if _, err := h.start(Cmd{Name: "coredns", Args: []string{binary, "-conf", corefile}}); err != nil {
		return err
	}
	if err := k.Apply(ctx, `apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  clusterIP: `+DNS+`
  ports:
  - {name: dns, port: 53, protocol: UDP}
  - {name: dns-tcp, port: 53, protocol: TCP}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns, endpointslice.kubernetes.io/managed-by: bed}}
addressType: IPv4
endpoints: [{addresses: [`+h.addresses()[0]+`], conditions: {ready: true}}]
ports:
- {name: dns, port: `+corePort+`, protocol: UDP}
- {name: dns-tcp, port: `+corePort+`, protocol: TCP}
`); err != nil {
		return fmt.Errorf("host %s: Service kube-dns: %w", h.Name, err)
	}
	transport := &http.Transport{DialContext: h.DialContext}
	defer transport.CloseIdleConnections()
	if err := Poll(ctx, func() error {
		answer, err := get(ctx, &http.Client{Transport: transport}, "http://127.0.0.1:8181/ready")
		if err == nil && answer != http.StatusOK {
			err = fmt.Errorf("/ready answers %d", answer)
		}
		return err
	}); err != nil {
		return fmt.Errorf("coredns on %s is not ready: %w", h.Name, err)
	}
	return nil
}
