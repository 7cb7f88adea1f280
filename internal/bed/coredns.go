//go:build linux

package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
)

const (
	// DNS is the address of the Service by which pods of a cluster ask for names.
	DNS = "10.43.0.10"

	clusterDomain = "cluster.local"
)

// StartCoreDNS starts CoreDNS as K3s does: a pod in kube-system with its own account, behind the Service kube-dns, that also
// knows the name of the node. It returns when that pod is ready, for which kube-proxy ([Kube.StartKubeProxy]) has to lead it to
// the API server. Names outside of the cluster are asked for at upstream, the address of a DNS server.
func (k *Kube) StartCoreDNS(ctx context.Context, upstream netip.Addr) error {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	h := k.Host
	// The program lies on the host: it is as large as all of an image.
	dir := filepath.Dir(Binary(h.bed.t, "coredns"))
	manifests := strings.NewReplacer("DIR", dir, "NODE", h.Name, "ADDRESS", h.addresses()[0], "IMAGE", Image, "CLUSTER-IP", DNS, "UPSTREAM", upstream.String(), "DOMAIN", clusterDomain).Replace(coreManifests)
	if err := k.Apply(ctx, manifests); err != nil {
		return fmt.Errorf("host %s: CoreDNS: %w", h.Name, err)
	}
	if err := Poll(ctx, func() error {
		text, err := k.Request(ctx, "GET", "/api/v1/namespaces/kube-system/pods?labelSelector=k8s-app%3Dkube-dns", "", nil)
		if err != nil {
			return err
		}
		var pods struct {
			Items []struct {
				Status struct {
					Phase      string
					Conditions []struct{ Type, Status, Message string }
				}
			}
		}
		if err := json.Unmarshal(text, &pods); err != nil {
			return err
		}
		for _, pod := range pods.Items {
			for _, c := range pod.Status.Conditions {
				if c.Type == "Ready" && c.Status == "True" {
					return nil
				}
			}
			err = fmt.Errorf("its pod is %+v", pod.Status)
		}
		if err == nil {
			err = errors.New("there is no pod")
		}
		return err
	}); err != nil {
		return fmt.Errorf("coredns on %s is not ready: %w", h.Name, err)
	}
	return nil
}

// coreManifests are those of K3s, without what measures and what reloads, and with the program from the host.
const coreManifests = `apiVersion: v1
kind: ServiceAccount
metadata: {name: coredns, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: system:coredns}
rules:
- {apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: system:coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:coredns}
subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  NodeHosts: |
    ADDRESS NODE
  Corefile: |
    .:53 {
      errors
      ready
      kubernetes DOMAIN in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
      }
      hosts /etc/coredns/NodeHosts {
        ttl 60
        reload 15s
        fallthrough
      }
      cache 30
      loadbalance
      forward . UPSTREAM
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      serviceAccountName: coredns
      dnsPolicy: Default
      terminationGracePeriodSeconds: 0
      containers:
      - name: coredns
        image: IMAGE
        imagePullPolicy: Never
        command: [/programs/coredns, -conf, /etc/coredns/Corefile]
        ports:
        - {name: dns, containerPort: 53, protocol: UDP}
        - {name: dns-tcp, containerPort: 53, protocol: TCP}
        readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [NET_BIND_SERVICE], drop: [ALL]}, readOnlyRootFilesystem: true}
        volumeMounts:
        - {name: config, mountPath: /etc/coredns, readOnly: true}
        - {name: programs, mountPath: /programs, readOnly: true}
      volumes:
      - {name: config, configMap: {name: coredns}}
      - {name: programs, hostPath: {path: DIR}}
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  clusterIP: CLUSTER-IP
  selector: {k8s-app: kube-dns}
  ports:
  - {name: dns, port: 53, protocol: UDP}
  - {name: dns-tcp, port: 53, protocol: TCP}
`
