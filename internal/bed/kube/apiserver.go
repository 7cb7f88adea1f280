package main

import (
	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/compatibility"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// apiserverCommand is the kube-apiserver with all its flags, but without version 2 of the OpenAPI documents: each time
// that custom resources come or go, it would merge and encode the whole of it anew, which is a good part of what it
// does in tests. Nothing here reads it: kubectl takes version 3.
func apiserverCommand() *cobra.Command {
	s := options.NewServerRunOptions()
	ctx := genericapiserver.SetupSignalContext()
	cmd := &cobra.Command{
		Use:          "kube-apiserver",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			registry := s.GenericServerRunOptions.ComponentGlobalsRegistry
			if err := registry.Set(); err != nil {
				return err
			}
			rest.SetDefaultWarningHandler(rest.NoWarnings{})
			if err := logsapi.ValidateAndApply(s.Logs, registry.FeatureGateFor(compatibility.DefaultKubeComponent)); err != nil {
				return err
			}
			completed, err := s.Complete(ctx)
			if err != nil {
				return err
			}
			if errs := completed.Validate(); len(errs) != 0 {
				return utilerrors.NewAggregate(errs)
			}
			config, err := apiserver.NewConfig(completed)
			if err != nil {
				return err
			}
			// The server of custom resources makes version 3 only if it has version 2, of those alone.
			config.KubeAPIs.ControlPlane.Generic.OpenAPIConfig = nil
			config.Aggregator.GenericConfig.OpenAPIConfig = nil
			ready, err := config.Complete()
			if err != nil {
				return err
			}
			server, err := apiserver.CreateServerChain(ready)
			if err != nil {
				return err
			}
			prepared, err := server.PrepareRun()
			if err != nil {
				return err
			}
			return prepared.Run(ctx)
		},
	}
	cmd.SetContext(ctx)
	for _, set := range s.Flags().FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	return cmd
}
