package packagetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/generated"
	"liqo.io/agent/rbac"
)

const (
	manifestFile = repository + "/packaging/kubernetes/daemonset.yaml"
	// ours begins the part of the manifest that is written by hand.
	ours = "---\n# From here on: the agent.\n"
	// mounted is where a pod finds its service account.
	mounted = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// The rights in the manifest are those that the agent uses.
func TestManifestHasTheRights(t *testing.T) {
	rights, err := rbac.ManifestInCluster(rbac.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	generated.Section(t, manifestFile, "", ours, string(rights))
}

// A real API server takes the manifest, every field of it, and an agent that is started as the pod would be reaches the
// API server with the pod's token.
func TestDaemonSet(t *testing.T) {
	t.Parallel()
	kube := bed.New(t).AddCluster(t.Context(), "box", "10.77.0.1/24")
	host := kube.Host
	ctx, cancel := context.WithTimeout(t.Context(), bed.Hang)
	defer cancel()
	manifest, err := os.ReadFile(manifestFile)
	if err != nil {
		t.Fatal(err)
	}
	kubectl := func(input string, args ...string) string {
		t.Helper()
		out, err := host.RunInput(ctx, input, append([]string{"kubectl"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	kubectl(string(manifest), "apply", "--server-side", "--validate=strict", "-f", "-")
	kubectl(string(manifest), "apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", "-")

	// What the pod gets, put in place by hand: its volumes and its token.
	var config struct{ Data map[string]string }
	if err := json.Unmarshal([]byte(kubectl("", "-n", "liqo", "get", "configmap", "liqo-agent", "-o", "json")), &config); err != nil {
		t.Fatal(err)
	}
	// There is no kube-proxy here, which would bring port 443 of the service to the API server.
	const service = "https://kubernetes.default.svc"
	kubeconfig := strings.Replace(config.Data["kubeconfig"], service, service+":6443", 1)
	if kubeconfig == config.Data["kubeconfig"] {
		t.Fatalf("the kubeconfig does not name the service:\n%s", kubeconfig)
	}
	token := kubectl("", "-n", "liqo", "create", "token", "liqo-agent")
	if err := host.Do(func() error {
		hosts, err := os.ReadFile("/etc/hosts")
		if err != nil {
			return err
		}
		ca, err := os.ReadFile("/var/lib/rancher/k3s/server/tls/server-ca.crt")
		if err != nil {
			return err
		}
		for path, text := range map[string]string{
			"/etc/hosts":                       string(hosts) + "10.77.0.1 kubernetes.default.svc\n",
			"/etc/liqo-agent/kubeconfig":       kubeconfig,
			"/etc/liqo-agent/liqo-agent.toml":  config.Data["liqo-agent.toml"],
			mounted + "/token":                 strings.TrimSpace(token),
			mounted + "/ca.crt":                string(ca),
			"/var/lib/liqo-agent/.from-before": "",
		} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				return err
			}
		}
		return os.Remove(bed.Kubeconfig) // a pod has none
	}); err != nil {
		t.Fatal(err)
	}
	var set struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Args          []string
						LivenessProbe struct {
							Exec struct{ Command []string }
						}
					}
				}
			}
		}
	}
	for _, doc := range strings.Split(string(manifest), "\n---\n") {
		if strings.Contains(doc, "\nkind: DaemonSet\n") {
			if err := yaml.Unmarshal([]byte(doc), &set); err != nil {
				t.Fatal(err)
			}
		}
	}
	pod := set.Spec.Template.Spec.Containers[0]
	host.Start(bed.Cmd{Args: append([]string{bed.Binary(t, "liqo-agent")}, pod.Args...)})
	if err := bed.Poll(ctx, func() error {
		if _, err := host.Run(ctx, pod.LivenessProbe.Exec.Command...); err != nil {
			return err
		}
		out, err := host.Run(ctx, "liqo-agent", "status", "-o", "json")
		if err != nil {
			return err
		}
		var status struct {
			Identity   struct{ ClusterID string }
			Kubernetes struct {
				Connected bool
				LastError string
			}
		}
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			return err
		}
		if !status.Kubernetes.Connected {
			return fmt.Errorf("not connected: %s", status.Kubernetes.LastError)
		}
		// Written with the token.
		body, err := kube.Request(ctx, "GET", "/api/v1/namespaces/liqo/configmaps/cluster-id", "", nil)
		if err == nil && !bytes.Contains(body, []byte(status.Identity.ClusterID)) {
			err = fmt.Errorf("the ConfigMap does not have %s: %s", status.Identity.ClusterID, body)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
