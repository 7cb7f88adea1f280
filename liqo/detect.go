package liqo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/liqo/document"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/peer/text"
)

// Of the chart (deployments/liqo/templates).
const (
	nameLabel      = "app.kubernetes.io/name"
	versionLabel   = "app.kubernetes.io/version"
	clusterIDs     = nameLabel + "=clusterid-configmap"
	parts          = "app.kubernetes.io/part-of=liqo"
	fieldClusterID = "CLUSTER_ID"
	controllers    = "controller-manager"
	maxVersion     = 64

	configMapsPath  = "/api/v1/configmaps"
	deploymentsPath = "/apis/apps/v1/deployments"
)

// needed are the Deployments without which nothing of an exchange comes to its end.
var needed = []string{controllers, "crd-replicator", "webhook"}

// Find looks for the Liqo of a cluster, once; nil for none.
func Find(ctx context.Context, c *kube.Client) (*engine.Installation, error) {
	found, err := detect(ctx, c)
	switch {
	case err != nil || found == nil:
		return nil, err
	case found.problem != "":
		return &engine.Installation{Problem: found.problem}, nil
	}
	var maps struct{ Items []*configMap }
	var deployments struct{ Items []*deployment }
	if err := errors.Join(c.Get(ctx, configMapsPath+"?labelSelector="+url.QueryEscape(clusterIDs), &maps), c.Get(ctx, deploymentsPath+"?labelSelector="+url.QueryEscape(parts), &deployments)); err != nil {
		return nil, err
	}
	here, _ := installation(maps.Items, deployments.Items)
	return &here, nil
}

// served says what of Liqo an API server serves.
type served struct {
	problem string // why it cannot be used, a clause; "" if it can
	renews  bool
	// unconnected is why Liqo connects no networks here, a sentence; "" if it may.
	unconnected string
}

// detect asks what of Liqo the API server serves; nil for nothing.
func detect(ctx context.Context, c *kube.Client) (*served, error) {
	resources, err := resourcesOf(ctx, c, document.Authentication)
	if err != nil || resources == nil {
		return nil, err
	}
	found := &served{renews: slices.Contains(resources, pluralRenews)}
	for _, kind := range []string{document.PluralTenants, document.PluralIdentities, document.PluralResourceSlices} {
		if !slices.Contains(resources, kind) {
			found.problem = fmt.Sprintf("the API server does not serve %s of %s", kind, document.Authentication)
		}
	}
	for _, gv := range []schema.GroupVersion{document.Core, document.Offloading} {
		resources, err := resourcesOf(ctx, c, gv)
		if err != nil {
			return nil, err
		}
		if resources == nil {
			found.problem = fmt.Sprintf("the API server does not serve %s", gv)
		}
	}
	if found.problem != "" {
		return found, nil
	}
	// Without one of the rights, a list would be refused again and again, and nothing would be known.
	for _, right := range []kube.Access{
		{Group: document.Authentication.Group, Resource: document.PluralTenants}, {Group: document.Authentication.Group, Resource: document.PluralIdentities},
		{Group: document.Authentication.Group, Resource: document.PluralResourceSlices}, {Group: document.Authentication.Group, Resource: pluralRenews},
		{Group: document.Offloading.Group, Resource: document.PluralVirtualNodes}, {Group: document.Core.Group, Resource: api.PluralForeignClusters},
		{Group: "apps", Resource: "deployments"}, {Resource: "configmaps"}, {Resource: "secrets"}, {Resource: "namespaces"}, {Resource: "nodes"},
	} {
		right.Verb = "list"
		may, err := c.May(ctx, right)
		if err != nil {
			return nil, err
		}
		if !may {
			found.problem = "the agent's account may not list " + right.Resource + ": run sudo liqo-agent rbac --apply --engine liqo"
			return found, nil
		}
	}
	if found.unconnected, err = unconnected(ctx, c); err != nil {
		return nil, err
	}
	return found, nil
}

// unconnected returns why the agent can connect no networks by Liqo, a sentence; "" if it can.
func unconnected(ctx context.Context, c *kube.Client) (string, error) {
	for _, of := range []struct {
		gv    schema.GroupVersion
		kinds []string
	}{
		{document.IPAM, []string{document.PluralNetworks}},
		{document.Networking, []string{document.PluralConfigurations, document.PluralGatewayServers, document.PluralGatewayClients, document.PluralPublicKeys,
			document.PluralServerTemplates, document.PluralClientTemplates}},
	} {
		resources, err := resourcesOf(ctx, c, of.gv)
		if err != nil {
			return "", err
		}
		for _, kind := range of.kinds {
			if !slices.Contains(resources, kind) {
				return fmt.Sprintf("The API server does not serve %s of %s.", kind, of.gv), nil
			}
			// An account that was made before the agent did this has no right to. Nothing would go on without one of the lists.
			may, err := c.May(ctx, kube.Access{Verb: "list", Group: of.gv.Group, Resource: kind})
			if err != nil {
				return "", err
			}
			if !may {
				return "The agent's account may not list " + kind + " of Liqo's networking: run sudo liqo-agent rbac --apply --engine liqo.", nil
			}
		}
	}
	return "", nil
}

// resourcesOf returns the plural names of what a version of a group has; nil if it is not served.
func resourcesOf(ctx context.Context, c *kube.Client, gv schema.GroupVersion) ([]string, error) {
	var list struct {
		Resources []struct {
			Name string `json:"name"`
		} `json:"resources"`
	}
	if err := c.Get(ctx, "/apis/"+gv.String(), &list); err != nil {
		// Who may not even ask has no use for it.
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return nil, nil
		}
		return nil, err
	}
	names := []string{}
	for _, r := range list.Resources {
		names = append(names, r.Name)
	}
	return names, nil
}

// installation describes the Liqo of this cluster by its ConfigMaps and Deployments, and returns
// its namespace.
func installation(maps []*configMap, deployments []*deployment) (engine.Installation, string) {
	var found engine.Installation
	// Others may have such ConfigMaps, and some reach a cluster from others.
	maps = slices.DeleteFunc(slices.Clone(maps), func(m *configMap) bool {
		return !slices.ContainsFunc(deployments, func(d *deployment) bool { return d.Namespace == m.Namespace && d.Labels[nameLabel] == controllers })
	})
	if len(maps) != 1 {
		found.Problem = fmt.Sprintf("%d ConfigMaps with label %s beside Liqo's controllers say what Liqo calls this cluster", len(maps), clusterIDs)
		return found, ""
	}
	namespace := maps[0].Namespace
	id, err := document.ParseClusterID(maps[0].Data[fieldClusterID])
	if err != nil {
		found.Problem = fmt.Sprintf("ConfigMap %s/%s does not say what Liqo calls this cluster", namespace, maps[0].Name)
		return found, namespace
	}
	found.ID = id
	ready := make(map[string]bool)
	for _, d := range deployments {
		if d.Namespace != namespace {
			continue
		}
		name := d.Labels[nameLabel]
		ready[name] = ready[name] || d.Status.ReadyReplicas > 0
		if name == controllers {
			found.Version = text.Line(d.Labels[versionLabel], maxVersion)
		}
	}
	var missing []string
	for _, name := range needed {
		if !ready[name] {
			missing = append(missing, "liqo-"+name)
		}
	}
	if len(missing) > 0 {
		found.Problem = "not ready: " + strings.Join(missing, ", ")
	}
	return found, namespace
}
