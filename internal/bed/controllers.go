//go:build linux

package bed

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// ControllerConfig says what the controllers of a control plane do.
type ControllerConfig struct {
	// NodeLifecycle has nodes of which nobody renews the Lease taken for dead. The host's own node is
	// one of them: it has no kubelet.
	NodeLifecycle bool
	// GracePeriod is after how long, the controller's own default if zero.
	GracePeriod time.Duration
	// AutoscalerPeriod is how often HorizontalPodAutoscalers are looked at, the controller's own default if zero.
	AutoscalerPeriod time.Duration
	// NoScheduler leaves out the scheduler, for tests whose pods stay where they are made for, or nowhere.
	NoScheduler bool
}

// StartControllers starts a kube-controller-manager and a kube-scheduler, for tests in which pods,
// quotas or garbage collection matter, and waits until both are healthy. Nodes are never taken for
// dead.
func (k *Kube) StartControllers(ctx context.Context) error {
	return k.StartControllersWith(ctx, ControllerConfig{})
}

// StartControllersWith is StartControllers with other settings.
func (k *Kube) StartControllersWith(ctx context.Context, config ControllerConfig) error {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	tlsDir := kubeDir + "/tls"
	// Without a kubelet that renews its node's lease, that node must not be taken for dead.
	options := []string{"--controllers=*,-node-lifecycle-controller"}
	if config.NodeLifecycle {
		options = nil
	}
	if config.NodeLifecycle && config.GracePeriod != 0 {
		options = []string{"--node-monitor-period=1s",
			"--node-monitor-grace-period=" + config.GracePeriod.String(), "--node-startup-grace-period=" + config.GracePeriod.String()}
	}
	if config.AutoscalerPeriod != 0 {
		options = append(options, "--horizontal-pod-autoscaler-sync-period="+config.AutoscalerPeriod.String())
	}
	// As K3s has it. Without, each makes an RSA key of its own at every start.
	serving := []string{"--tls-cert-file=" + tlsDir + "/server.crt", "--tls-private-key-file=" + tlsDir + "/server.key"}
	programs := []struct {
		cmd  Cmd
		port string
	}{
		{k.program("kube-controller-manager", append([]string{
			"--kubeconfig=" + Kubeconfig,
			"--authentication-kubeconfig=" + Kubeconfig, "--authorization-kubeconfig=" + Kubeconfig,
			"--leader-elect=false",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + tlsDir + "/service.key",
			"--root-ca-file=" + tlsDir + "/server-ca.crt",
			// As K3s has it: servers of kubelets by one authority, clients by the other.
			"--cluster-signing-kubelet-serving-cert-file=" + tlsDir + "/server-ca.crt", "--cluster-signing-kubelet-serving-key-file=" + tlsDir + "/server-ca.key",
			"--cluster-signing-kubelet-client-cert-file=" + tlsDir + "/client-ca.crt", "--cluster-signing-kubelet-client-key-file=" + tlsDir + "/client-ca.key",
			"--cluster-signing-kube-apiserver-client-cert-file=" + tlsDir + "/client-ca.crt", "--cluster-signing-kube-apiserver-client-key-file=" + tlsDir + "/client-ca.key",
			"--cluster-signing-legacy-unknown-cert-file=" + tlsDir + "/server-ca.crt", "--cluster-signing-legacy-unknown-key-file=" + tlsDir + "/server-ca.key",
			"--allocate-node-cidrs=true", "--cluster-cidr=" + k.Host.Pods.String(), "--service-cluster-ip-range=" + k.Host.Pods.Services().String(),
			"--bind-address=127.0.0.1",
		}, slices.Concat(options, serving)...)...), "10257"},
		{k.program("kube-scheduler", append([]string{
			"--kubeconfig=" + Kubeconfig,
			"--authentication-kubeconfig=" + Kubeconfig, "--authorization-kubeconfig=" + Kubeconfig,
			"--leader-elect=false",
			"--bind-address=127.0.0.1",
		}, serving...)...), "10259"},
	}
	if config.NoScheduler {
		programs = programs[:1]
	}
	var started []*Process
	for _, program := range programs {
		p, err := k.Host.start(program.cmd)
		if err != nil {
			return err
		}
		started = append(started, p)
	}
	for i, program := range programs {
		err := started[i].poll(ctx, func() error {
			answer, err := k.status(ctx, "https://127.0.0.1:"+program.port+"/healthz")
			if err != nil {
				return err
			}
			if answer != http.StatusOK {
				return fmt.Errorf("/healthz answers %d", answer)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s on %s is not healthy: %w", program.cmd.Name, k.Host.Name, err)
		}
	}
	return nil
}

// status returns the status of the answer of a program of the control plane.
func (k *Kube) status(ctx context.Context, url string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	answer, err := k.client.Do(r)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}
