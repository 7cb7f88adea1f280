package rbac

import (
	"fmt"
	"strings"

	"liqo.io/agent/api"
	"liqo.io/agent/liqo/document"
)

// liqoName is the name of the role with what it takes to drive Liqo, and of its binding.
const liqoName = Name + "-liqo"

// PartLiqo is the section of [LiqoRules].
const PartLiqo Part = "Liqo 1.x: peers that it peers, where it is installed (rbac --engine liqo)"

// connecting are the kinds by which the networks of two clusters are connected.
var connecting = []string{document.PluralConfigurations, document.PluralGatewayServers, document.PluralGatewayClients, document.PluralPublicKeys}

// LiqoRules returns what the agent needs besides [Rules] where Liqo is to peer this cluster. The
// policy lets it write what is Liqo's only while it has these rights.
func LiqoRules() []Rule {
	authentication, kinds := document.Authentication.Group, []string{document.PluralTenants, document.PluralIdentities, document.PluralResourceSlices}
	return []Rule{
		{
			Part: PartLiqo, Group: authentication, Resources: kinds,
			Verbs: []string{"list", "watch", "create", "patch", "delete"}, Reason: "carries out the exchange by which Liqo peers two clusters, and undoes it",
		}, {
			Part: PartLiqo, Group: authentication, Resources: []string{"renews"},
			Verbs: []string{"list", "watch", "delete"}, Reason: "follows what consumers have here, and removes what they leave",
		}, {
			Part: PartLiqo, Group: document.Offloading.Group, Resources: []string{document.PluralVirtualNodes},
			Verbs: []string{"list", "watch", "patch", "delete"}, Reason: "has Liqo start virtual kubelets again at another address, and drain and remove virtual nodes",
		}, {
			Part: PartLiqo, Group: document.Core.Group, Resources: []string{api.PluralForeignClusters},
			Verbs: []string{"list", "watch", "patch", "delete"}, Reason: "follows where Liqo looks for providers, and takes away what it shows of those that are parted",
		}, {
			Part: PartLiqo, Group: document.Networking.Group, Resources: connecting,
			Verbs: []string{"list", "watch", "create", "patch", "delete"}, Reason: "has Liqo connect the networks of two clusters, and undoes it",
		}, {
			Part: PartLiqo, Group: document.Networking.Group, Resources: []string{document.PluralServerTemplates, document.PluralClientTemplates},
			Verbs: []string{"list", "watch"}, Reason: "looks whether Liqo was installed with its networking",
		}, {
			Part: PartLiqo, Group: document.IPAM.Group, Resources: []string{document.PluralNetworks},
			Verbs: []string{"list", "watch"}, Reason: "tells peers which addresses Liqo's networking has here",
		}, {
			Part: PartLiqo, Group: "apps", Resources: []string{"deployments"},
			Verbs: []string{"list", "watch"}, Reason: "looks whether Liqo's controllers are ready",
		},
	}
}

// liqoObjects are the role with [LiqoRules] and its binding.
func liqoObjects(namespace string) []object {
	const version = groupRBAC + "/v1"
	return []object{
		{apiVersion: version, kind: "ClusterRole", plural: "clusterroles", name: liqoName, rules: LiqoRules()},
		{apiVersion: version, kind: "ClusterRoleBinding", plural: "clusterrolebindings", name: liqoName, role: "ClusterRole", subject: namespace},
	}
}

// drivesLiqo is whether the agent's user was given [LiqoRules].
var drivesLiqo = fmt.Sprintf(`variables.agent && authorizer.group(%q).resource(%q).check("create").allowed()`, document.Authentication.Group, document.PluralTenants)

// careOf is that labels are those of a namespace which stands for another cluster, and is in the
// agent's care.
func careOf(labels string) string {
	return fmt.Sprintf(`%[1]s[?%[2]q].orValue("") == "true" && %[1]s[?%[3]q].orValue("") != "" && %[1]s[?%[4]q].orValue("") != ""`,
		labels, document.LabelTenantNamespace, document.LabelRemoteCluster, api.LabelClusterID)
}

// tenantNamespace is that a request makes such a namespace, with no label that may mean something to
// somebody, or deletes one that the agent made. It cannot make one of others its own.
func tenantNamespace() string {
	labels := []string{document.LabelTenantNamespace, document.LabelRemoteCluster, api.LabelClusterID, api.LabelManagedBy, "kubernetes.io/metadata.name"}
	const of = `variables.now.metadata.?labels.orValue({})`
	return `variables.what == "namespaces" && variables.liqo && request.operation != "UPDATE" && variables.guest == "" && variables.guestBefore == "" && ` + careOf(of) +
		fmt.Sprintf(` && request.name == %q + `+of+`[%q] && `+of+`[?%q].orValue("") == %q && (variables.deleted || `,
			document.ClusterID("").TenantNamespace(), document.LabelRemoteCluster, api.LabelManagedBy, api.ManagedByAgent) +
		of + `.all(k, k in ["` + strings.Join(labels, `", "`) + `"]))`
}

// tenantSecret is that a request is about a Secret of the exchange, in such a namespace.
func tenantSecret() string {
	return fmt.Sprintf(`variables.liqo && %s && variables.now.?type.orValue("Opaque") == "Opaque" && `+
		`(request.name in [%q, %q] || variables.deleted && request.name == %q)`,
		careOf(`variables.labels`), document.NonceSecret, document.SignedNonceSecret, document.CertificateSecret)
}

// gateway is that one is made of Liqo's own template and nothing else: whatever a template says, Liqo makes
// with its own rights.
func gateway(field, kind, name, endpoint string) string {
	return fmt.Sprintf(`variables.deleted || object.spec.?%[1]s.?apiVersion.orValue("") == %[2]q && object.spec.?%[1]s.?kind.orValue("") == %[3]q && object.spec.?%[1]s.?name.orValue("") == %[4]q && `+
		`object.spec.?secretRef.?name.orValue("") == "" && `, field, document.Networking.String(), kind, name) + endpoint
}

// onlyNoted is that an update of a VirtualNode changes no more than the annotation that it shares with
// the template of its virtual kubelet's pod. The webhook of Liqo 1.0 puts a creationTimestamp of null into templates, which is
// not stored.
func onlyNoted() string {
	const created = "creationTimestamp"
	var all []string
	for _, c := range []struct {
		in  string
		but []string
	}{
		{"metadata.?annotations.orValue({})", []string{document.AnnotationAddress}},
		{"spec", []string{"template"}},
		{"spec.template", []string{"spec", "metadata"}},
		{"spec.template.?metadata.orValue({})", []string{created}},
		{"spec.template.spec", []string{"template"}},
		{"spec.template.spec.template", []string{"metadata"}},
		{"spec.template.spec.template.?metadata.orValue({})", []string{"annotations", created}},
		{"spec.template.spec.template.?metadata.?annotations.orValue({})", []string{document.AnnotationAddress}},
	} {
		but := `["` + strings.Join(c.but, `", "`) + `"]`
		for _, pair := range [][]any{{"object", "oldObject", c.in, but}, {"oldObject", "object", c.in, but}} {
			all = append(all, fmt.Sprintf(`%[1]s.%[3]s.all(k, k in %[4]s || %[2]s.%[3]s[?k] == optional.of(%[1]s.%[3]s[k]))`, pair...))
		}
	}
	return strings.Join(all, " && ")
}
