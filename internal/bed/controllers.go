//go:build linux

package bed

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
)

// StartControllers starts a kube-controller-manager and a kube-scheduler, for tests in which pods,
// quotas or garbage collection matter, and waits until both are healthy.
func (k *Kube) StartControllers(ctx context.Context) error {
	ctx, cancel := deadlineFrom(ctx, kubeDeadline)
	defer cancel()
	tlsDir := kubeDir + "/tls"
	programs := []struct {
		cmd  Cmd
		port string
	}{
		{k.program("kube-controller-manager",
			"--kubeconfig="+Kubeconfig,
			"--authentication-kubeconfig="+Kubeconfig, "--authorization-kubeconfig="+Kubeconfig,
			"--leader-elect=false",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file="+tlsDir+"/service.key",
			"--root-ca-file="+tlsDir+"/server-ca.crt",
			"--cluster-signing-cert-file="+tlsDir+"/client-ca.crt", "--cluster-signing-key-file="+tlsDir+"/client-ca.key",
			"--allocate-node-cidrs=true", "--cluster-cidr="+podRange, "--service-cluster-ip-range="+serviceRange,
			"--bind-address=127.0.0.1",
			// No kubelet renews the node's lease, so the node must not be taken for dead.
			"--controllers=*,-node-lifecycle-controller"), "10257"},
		{k.program("kube-scheduler",
			"--kubeconfig="+Kubeconfig,
			"--authentication-kubeconfig="+Kubeconfig, "--authorization-kubeconfig="+Kubeconfig,
			"--leader-elect=false",
			"--bind-address=127.0.0.1"), "10259"},
	}
	for _, program := range programs {
		if _, err := k.Host.start(program.cmd); err != nil {
			return err
		}
	}
	for _, program := range programs {
		// Their certificates are made by themselves, and /healthz is open to anyone on the host.
		transport := &http.Transport{DialContext: k.Host.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		client := &http.Client{Transport: transport}
		err := Poll(ctx, func() error {
			answer, err := get(ctx, client, "https://127.0.0.1:"+program.port+"/healthz")
			if err != nil {
				return err
			}
			if answer != http.StatusOK {
				return fmt.Errorf("/healthz answers %d", answer)
			}
			return nil
		})
		transport.CloseIdleConnections()
		if err != nil {
			return fmt.Errorf("%s on %s is not healthy: %w", program.cmd.Name, k.Host.Name, err)
		}
	}
	return nil
}

// get returns the status of an answer.
func get(ctx context.Context, client *http.Client, url string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}
