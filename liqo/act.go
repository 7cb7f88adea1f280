package liqo

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/liqo/document"
	"liqo.io/agent/liqo/exchange"
)

// applied is the body of a server-side apply.
type applied struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   appliedMeta    `json:"metadata"`
	Data       map[string]any `json:"data,omitempty"`
	Spec       map[string]any `json:"spec,omitempty"`
}

type appliedMeta struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// act carries out actions in their order, up to the first that fails, and returns what that was about.
func (s *session) act(ctx context.Context, actions []exchange.Action) (failed exchange.Kind, err error) {
	for _, a := range actions {
		if err := s.do(ctx, a); err != nil {
			return a.Kind, fmt.Errorf("%s %s %s: %w", a.Verb, a.Kind, a.Name, err)
		}
		s.cfg.Logger.Info("took a step of the exchange with a peer's Liqo", "step", a.Verb, "object", a.Kind, "name", a.Name, "cluster", a.Cluster)
	}
	return "", nil
}

func (s *session) do(ctx context.Context, a exchange.Action) error {
	cache, path := s.place(a)
	switch a.Verb {
	case exchange.Create:
		var made object
		if err := s.client.CreateAs(ctx, strings.TrimSuffix(path, "/"+a.Name), manager, body(a, s.installedIn()), &made); err != nil {
			return err
		}
		cache.Wrote(&made)
		return nil
	case exchange.Apply:
		_, err := cache.Apply(ctx, s.client, path, manager, true, body(a, s.installedIn()))
		return err
	case exchange.Move:
		var server any // null takes it away
		if a.Server != "" {
			server = a.Server
		}
		return s.merge(ctx, cache, path, map[string]any{"spec": map[string]any{"authParams": map[string]any{"apiServer": server}}})
	case exchange.Drain:
		return s.merge(ctx, cache, path, map[string]any{"spec": map[string]any{"tenantCondition": conditionDrained}})
	case exchange.Note:
		note := map[string]any{"annotations": map[string]any{document.AnnotationAddress: a.Noted}}
		change := map[string]any{"metadata": note}
		if a.Restart {
			change["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": note}}}}
		}
		return s.merge(ctx, cache, path, change)
	case exchange.Abandon:
		return s.merge(ctx, nil, path, map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotationUnreachable: "true"}}})
	case exchange.Delete:
		err := s.client.Delete(ctx, path, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.UID}})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	return fmt.Errorf("there is no action %q", a.Verb)
}

// merge changes a few fields of an object, and no others: Liqo writes to it, too.
func (s *session) merge(ctx context.Context, cache *kube.Cache[*object], path string, change map[string]any) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return err
	}
	var changed object
	if err := s.client.Patch(ctx, path, manager, types.MergePatchType, patch, &changed); err != nil {
		return err
	}
	if cache != nil {
		cache.Wrote(&changed)
	}
	return nil
}

// place returns the path of the object that an action is about, and the cache that has it.
func (s *session) place(a exchange.Action) (*kube.Cache[*object], string) {
	inside := func(group, plural string) string {
		return group + "/namespaces/" + a.Namespace + "/" + plural + "/" + a.Name
	}
	authentication, networking := "/apis/"+document.Authentication.String(), "/apis/"+document.Networking.String()
	switch a.Kind {
	case exchange.TenantNamespace:
		return s.namespaces, namespacesPath + "/" + a.Name
	case exchange.TenantObject:
		return s.tenants, inside(authentication, document.PluralTenants)
	case exchange.IdentityObject:
		return s.identities, inside(authentication, document.PluralIdentities)
	case exchange.SliceObject:
		return s.slices, inside(authentication, document.PluralResourceSlices)
	case exchange.RenewObject:
		return s.renews, inside(authentication, pluralRenews)
	case exchange.VirtualNode:
		return s.nodes, inside("/apis/"+document.Offloading.String(), document.PluralVirtualNodes)
	case exchange.ConfigurationObject:
		return s.configurations, inside(networking, document.PluralConfigurations)
	case exchange.GatewayServer:
		return s.servers, inside(networking, document.PluralGatewayServers)
	case exchange.GatewayClient:
		return s.clients, inside(networking, document.PluralGatewayClients)
	case exchange.PublicKeyObject:
		return s.publicKeys, inside(networking, document.PluralPublicKeys)
	case exchange.ForeignCluster:
		return nil, api.Collection(document.Core, api.PluralForeignClusters) + "/" + a.Name
	}
	return s.secrets, inside("/api/v1", "secrets")
}

// body returns what is applied, with templates of gateways in that namespace.
func body(a exchange.Action, templates string) applied {
	b := applied{
		APIVersion: document.Authentication.String(),
		Metadata: appliedMeta{Name: a.Name, Namespace: a.Namespace, Labels: map[string]string{
			document.LabelRemoteCluster: string(a.Cluster), api.LabelClusterID: string(a.Peer),
		}},
	}
	labels := b.Metadata.Labels
	switch a.Kind {
	case exchange.TenantNamespace:
		b.APIVersion, b.Kind = "v1", "Namespace"
		labels[document.LabelTenantNamespace] = "true"
		labels[api.LabelManagedBy] = api.ManagedByAgent
	case exchange.NonceSecret:
		b.APIVersion, b.Kind = "v1", "Secret"
		labels[document.LabelNonce] = "true"
	case exchange.SignedSecret:
		b.APIVersion, b.Kind = "v1", "Secret"
		labels[document.LabelSignedNonce] = "true"
		b.Data = map[string]any{document.FieldNonce: []byte(a.Nonce)}
	case exchange.TenantObject:
		b.Kind = document.KindTenant
		if a.Noted != "" {
			b.Metadata.Annotations = map[string]string{document.AnnotationAddress: a.Noted}
		}
		b.Spec = map[string]any{
			"clusterID": a.Tenant.ClusterID, "publicKey": a.Tenant.PublicKey, "csr": a.Tenant.CSR, "signature": a.Tenant.Signature, "tenantCondition": conditionActive,
		}
	case exchange.IdentityObject:
		b.Kind = document.KindIdentity
		b.Spec = map[string]any{
			"clusterID": a.Identity.ClusterID, "type": document.IdentityControlPlane, "namespace": a.Identity.Namespace,
			"authParams": authParams{CA: a.Identity.CA, SignedCRT: a.Identity.Certificate, APIServer: a.Identity.APIServer},
		}
	case exchange.SliceObject:
		b.Kind = document.KindResourceSlice
		labels[document.LabelReplication], labels[document.LabelReplicationTo] = "true", string(a.Cluster)
		b.Metadata.Annotations = map[string]string{document.AnnotationVirtualNode: "true"}
		b.Spec = map[string]any{"class": classDefault, "providerClusterID": a.Cluster}
		if a.Asks != nil {
			b.Spec["resources"] = a.Asks
		}
	case exchange.ConfigurationObject, exchange.GatewayServer, exchange.GatewayClient, exchange.PublicKeyObject:
		b.APIVersion = document.Networking.String()
		connects(&b, a, templates)
	}
	return b
}

// connects completes an object by which the networks of two clusters are connected, as liqoctl makes it.
func connects(b *applied, a exchange.Action, templates string) {
	template := func(kind, name string) map[string]string {
		return map[string]string{"apiVersion": document.Networking.String(), "kind": kind, "name": name, "namespace": templates}
	}
	switch a.Kind {
	case exchange.ConfigurationObject:
		b.Kind = document.KindConfiguration
		b.Spec = map[string]any{"remote": map[string]any{"cidr": map[string]any{"pod": a.Ranges.Pods, "external": a.Ranges.External}}}
	case exchange.GatewayServer:
		b.Kind = document.KindGatewayServer
		// A port of its own, on all nodes: the other cluster knows the address of one.
		b.Spec = map[string]any{
			"mtu": a.Endpoint.MTU, "endpoint": endpoint{Port: a.Endpoint.Port, ServiceType: serviceNodePort},
			"serverTemplateRef": template(document.KindServerTemplate, document.ServerTemplate),
		}
	case exchange.GatewayClient:
		b.Kind = document.KindGatewayClient
		b.Spec = map[string]any{
			"mtu": a.Endpoint.MTU, "endpoint": endpoint{Addresses: []string{a.Endpoint.Address}, Port: a.Endpoint.Port, Protocol: protocolUDP},
			"clientTemplateRef": template(document.KindClientTemplate, document.ClientTemplate),
		}
	case exchange.PublicKeyObject:
		b.Kind = document.KindPublicKey
		b.Metadata.Labels[document.LabelGateway] = "true"
		b.Spec = map[string]any{"publicKey": a.Key}
	}
}
