// Command kubelet is the node agent of the test bed for pods that run in real containers. It is a
// program of its own because only few tests need it: the demo and everything else do without what it
// brings along.
package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	os.Exit(cli.Run(app.NewKubeletCommand(context.Background())))
}
