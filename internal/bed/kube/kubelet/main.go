// Command kubelet is what runs on the nodes of the test bed whose pods have real containers: the kubelet, and
// kube-proxy if its first argument says so. It is a program of its own because only few tests need it: the demo
// and everything else do without what it brings along.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	os.Exit(cli.Run(command()))
}

// command builds one of the two: each registers its flags and feature gates in process-wide registries.
func command() *cobra.Command {
	if len(os.Args) > 1 && os.Args[1] == "kube-proxy" {
		os.Args = os.Args[1:]
		return proxy.NewProxyCommand()
	}
	return kubelet.NewKubeletCommand(context.Background())
}
