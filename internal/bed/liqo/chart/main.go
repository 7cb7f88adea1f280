// Command chart renders the Helm chart of a copy of Liqo for the test bed, as `helm template` does. It writes three files into a
// directory, crds.json, chart.json, and networking.json with what the chart has besides with networking. In each there is one object
// after the other: JSON, because the bed reads the three megabytes of the custom resource definitions for each cluster. Left out is what could not run there.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"sigs.k8s.io/yaml"
)

// The bed replaces the cluster ID.
const (
	clusterID = "cluster-id"
	namespace = "liqo"
)

// leftOut are the kinds of which the bed has none: hooks and jobs that run containers, and the agents of nodes.
var leftOut = []string{"DaemonSet", "Job", "CronJob"}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: chart LIQO-DIRECTORY VERSION OUTPUT-DIRECTORY")
	}
	liqo, version, out := args[0], args[1], args[2]
	loaded, err := loader.Load(filepath.Join(liqo, "deployments", "liqo"))
	if err != nil {
		return err
	}
	var crds [][]byte
	for _, crd := range loaded.CRDObjects() {
		crds = append(crds, crd.File.Data)
	}
	manifests, err := render(loaded, version, false)
	if err != nil {
		return err
	}
	if loaded, err = loader.Load(filepath.Join(liqo, "deployments", "liqo")); err != nil { // rendering changes it
		return err
	}
	all, err := render(loaded, version, true)
	if err != nil {
		return err
	}
	networking := slices.DeleteFunc(all, func(o manifest) bool {
		return o.kind == "Deployment" || slices.ContainsFunc(manifests, func(b manifest) bool { return o.kind == b.kind && o.name == b.name })
	})
	return errors.Join(write(filepath.Join(out, "crds.json"), crds), write(filepath.Join(out, "chart.json"), contents(manifests)),
		write(filepath.Join(out, "networking.json"), contents(networking)))
}

// manifest is one object of the chart.
type manifest struct {
	kind, name string
	content    []byte
}

func contents(manifests []manifest) (out [][]byte) {
	for _, m := range manifests {
		out = append(out, m.content)
	}
	return out
}

// write writes objects as lines of JSON.
func write(path string, objects [][]byte) error {
	var out bytes.Buffer
	for _, o := range objects {
		text, err := yaml.YAMLToJSON(o)
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
		out.Write(text)
		out.WriteByte('\n')
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// values differ from the chart's own only where the bed has nothing that could run it: networking needs modules of the kernel,
// the metrics agent an aggregated API, telemetry the internet, and storage a provisioner.
func values(version string, networking bool) map[string]any {
	off := func() map[string]any { return map[string]any{"enabled": false} }
	return map[string]any{
		"tag":         version,
		"discovery":   map[string]any{"config": map[string]any{"clusterID": clusterID}},
		"ipam":        map[string]any{"podCIDR": "10.42.0.0/16", "serviceCIDR": "10.43.0.0/16"},
		"networking":  map[string]any{"enabled": networking},
		"telemetry":   off(),
		"storage":     off(),
		"proxy":       off(),
		"metricAgent": off(),
	}
}

// render returns the manifests of a chart in the order in which Helm installs them.
func render(c *chart.Chart, version string, networking bool) ([]manifest, error) {
	v := values(version, networking)
	if err := chartutil.ProcessDependencies(c, v); err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "liqo", Namespace: namespace, IsInstall: true, Revision: 1}
	all, err := chartutil.ToRenderValues(c, v, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	for name := range files {
		if filepath.Ext(name) == ".txt" {
			delete(files, name)
		}
	}
	// Its hooks are what an uninstallation runs.
	_, sorted, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, err
	}
	var out []manifest
	for _, m := range sorted {
		if !slices.Contains(leftOut, m.Head.Kind) {
			out = append(out, manifest{m.Head.Kind, m.Head.Metadata.Name, []byte(m.Content)})
		}
	}
	return out, nil
}
