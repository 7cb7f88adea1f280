// Command metrics-server is what kubectl top and autoscalers ask in the test bed's clusters. It is metrics-server but for what it
// says of its types: this version has that for an older Kubernetes than it is built with here, and newer ones need newer
// modules than Kubernetes.
package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	types "k8s.io/kubernetes/pkg/generated/openapi"
	"sigs.k8s.io/metrics-server/cmd/metrics-server/app/options"
	"sigs.k8s.io/metrics-server/pkg/api"
)

func main() {
	o := options.NewOptions()
	cmd := &cobra.Command{Use: "metrics-server", RunE: func(*cobra.Command, []string) error { return run(o) }}
	for _, flags := range o.Flags().FlagSets {
		cmd.Flags().AddFlagSet(flags)
	}
	os.Exit(cli.Run(cmd))
}

func run(o *options.Options) error {
	if err := errors.Join(o.Validate()...); err != nil {
		return err
	}
	config, err := o.ServerConfig()
	if err != nil {
		return err
	}
	v2, v3 := config.Apiserver.OpenAPIConfig.Info, config.Apiserver.OpenAPIV3Config.Info
	config.Apiserver.OpenAPIConfig = server.DefaultOpenAPIConfig(types.GetOpenAPIDefinitions, openapi.NewDefinitionNamer(api.Scheme))
	config.Apiserver.OpenAPIV3Config = server.DefaultOpenAPIV3Config(types.GetOpenAPIDefinitions, openapi.NewDefinitionNamer(api.Scheme))
	config.Apiserver.OpenAPIConfig.Info, config.Apiserver.OpenAPIV3Config.Info = v2, v3
	s, err := config.Complete()
	if err != nil {
		return err
	}
	return s.RunUntil(server.SetupSignalHandler())
}
