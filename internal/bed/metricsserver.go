//go:build linux

package bed

import (
	"context"
	"fmt"
	"strconv"
)

const (
	// MetricsPort is where on a host the metrics API is that [Kube.RegisterMetrics] registers.
	MetricsPort = 4443

	metricsConfig = "/etc/metrics-server.kubeconfig"
	metricsDir    = "/var/lib/metrics-server"
)

// RegisterMetrics has the API server ask the host itself, at 127.0.0.1 and [MetricsPort], for the group metrics.k8s.io.
func (k *Kube) RegisterMetrics(ctx context.Context) error {
	return k.Apply(ctx, `apiVersion: v1
kind: Service
metadata: {name: metrics-server, namespace: kube-system}
spec: {type: ExternalName, externalName: localhost, ports: [{port: `+strconv.Itoa(MetricsPort)+`}]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  service: {name: metrics-server, namespace: kube-system, port: `+strconv.Itoa(MetricsPort)+`}
  group: metrics.k8s.io
  version: v1beta1
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
`)
}

// StartMetricsServer starts metrics-server with the options and the rights that it has in K3s: it asks every node's kubelet
// with the token of an account, verifies who answers, and remembers two answers. It is a process of the host, and returns when
// kubectl top could be asked; of what runs, there is something after two rounds of 15 seconds.
func (k *Kube) StartMetricsServer(ctx context.Context) (*Process, error) {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	h := k.Host
	binary := Binary(h.bed.t, "metrics-server")
	if err := k.Apply(ctx, metricsRights); err != nil {
		return nil, fmt.Errorf("host %s: metrics-server: %w", h.Name, err)
	}
	if err := k.accountConfig(ctx, "kube-system", "metrics-server", metricsConfig); err != nil {
		return nil, err
	}
	process, err := h.start(Cmd{Name: "metrics-server", Args: []string{binary,
		"--kubeconfig=" + metricsConfig, "--authentication-kubeconfig=" + metricsConfig, "--authorization-kubeconfig=" + metricsConfig,
		"--cert-dir=" + metricsDir, "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(MetricsPort),
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname", "--kubelet-use-node-status-port", "--metric-resolution=15s"}})
	if err != nil {
		return nil, err
	}
	if err := k.RegisterMetrics(ctx); err != nil {
		return nil, fmt.Errorf("host %s: metrics-server: %w", h.Name, err)
	}
	if err := process.poll(ctx, func() error {
		_, err := k.Request(ctx, "GET", "/apis/metrics.k8s.io/v1beta1/nodes", "", nil)
		return err
	}); err != nil {
		return nil, fmt.Errorf("metrics-server on %s: %w", h.Name, err)
	}
	return process, nil
}

// metricsRights are those of its own manifests, which K3s has, too.
const metricsRights = `apiVersion: v1
kind: ServiceAccount
metadata: {name: metrics-server, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: metrics-server-auth-reader, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics-server:system:auth-delegator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:auth-delegator}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: system:metrics-server}
rules:
- {apiGroups: [""], resources: [nodes/metrics], verbs: [get]}
- {apiGroups: [""], resources: [pods, nodes], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: system:metrics-server}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:metrics-server}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: kube-system}]
`
