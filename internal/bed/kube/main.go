package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// programs are built on demand: each Kubernetes component registers its flags and feature gates
// in process-wide registries, and two of them in one process would collide.
var programs = map[string]func() *cobra.Command{
	"etcd":                    etcdCommand,
	"kube-apiserver":          apiserverCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

const usage = `kubebox is a Kubernetes control plane in one file, for the test bed.

usage: kubebox PROGRAM [FLAGS]

PROGRAM is one of etcd, kube-apiserver, kube-controller-manager, kube-scheduler.
`

func main() {
	os.Exit(run())
}

// run shifts os.Args so that the program sees itself as argument zero.
func run() int {
	if len(os.Args) > 1 {
		if build, ok := programs[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			return cli.Run(build())
		}
	}
	fmt.Fprint(os.Stderr, usage)
	return 2
}
