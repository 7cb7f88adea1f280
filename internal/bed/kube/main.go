package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
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
	"kubectl":                 kubectlCommand,
}

// k3sKubeconfig is what the kubectl of a K3s box uses when nothing else is asked for.
const k3sKubeconfig = "/etc/rancher/k3s/k3s.yaml"

func kubectlCommand() *cobra.Command {
	if os.Getenv("KUBECONFIG") == "" {
		if _, err := os.Stat(k3sKubeconfig); err == nil {
			os.Setenv("KUBECONFIG", k3sKubeconfig)
		}
	}
	return cmd.NewDefaultKubectlCommand()
}

const usage = `kubebox is a Kubernetes control plane in one file, for the test bed.

usage: kubebox PROGRAM [FLAGS]
       PROGRAM [FLAGS]            (as a link of that name to kubebox)

PROGRAM is one of etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl.
`

func main() {
	os.Exit(run())
}

// run picks the program by the name the binary was called by, or else by its first argument,
// and shifts os.Args so that the program sees itself as argument zero.
func run() int {
	build, ok := programs[filepath.Base(os.Args[0])]
	if !ok && len(os.Args) > 1 {
		if build, ok = programs[os.Args[1]]; ok {
			os.Args = os.Args[1:]
		}
	}
	if !ok {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	return cli.Run(build())
}
