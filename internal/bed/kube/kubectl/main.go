// Command kubectl is the kubectl of the test bed, which uses the kubeconfig of K3s as that of K3s does.
//
// It is a program of its own because tests call it hundreds of times: within kubebox, each call would begin with
// what the packages of an API server and of an etcd do before main, and take twice the processor time.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
)

// k3sKubeconfig is what is used when nothing else is asked for.
const k3sKubeconfig = "/etc/rancher/k3s/k3s.yaml"

func main() {
	if os.Getenv("KUBECONFIG") == "" {
		if _, err := os.Stat(k3sKubeconfig); err == nil {
			os.Setenv("KUBECONFIG", k3sKubeconfig)
		}
	}
	os.Exit(cli.Run(cmd.NewDefaultKubectlCommand()))
}
