package rbac

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/vnode"
)

const (
	// Name is the name of the ServiceAccount, and of the roles and bindings that give
	// it its rights.
	Name = "liqo-agent"
	// TokenName is the name of the Secret that holds its token.
	TokenName = "liqo-agent-token"
	// DefaultNamespace is where the ServiceAccount is unless said otherwise: the
	// default of the setting cluster.namespace.
	DefaultNamespace = "liqo"

	// Manager is the field manager of the objects.
	Manager = "liqo-agent-rbac"
)

// ServiceAccount returns the name by which the API server knows the agent's user.
func ServiceAccount(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + Name
}

// Manifest returns everything that makes a user of the agent, as YAML with a comment
// on each rule: the namespace, a ServiceAccount in it with a Secret that gets its
// token, a ClusterRole and Roles with [Rules], their bindings, and the policies with
// what roles cannot say; with liqo also the role with [LiqoRules]. The same arguments give the
// same bytes. The error says that namespace is no name of one.
func Manifest(namespace string, liqo bool) ([]byte, error) {
	return manifest(namespace, wanted(namespace, liqo))
}

// ManifestInCluster is [Manifest] without the Secret, for an agent that runs as a pod
// of the ServiceAccount: its token is mounted into it, and ends with it.
func ManifestInCluster(namespace string) ([]byte, error) {
	return manifest(namespace, objects(namespace, false))
}

// ManifestJSON is [Manifest] as a List in JSON, without comments.
func ManifestJSON(namespace string, liqo bool) ([]byte, error) {
	if err := checkNamespace(namespace); err != nil {
		return nil, err
	}
	var items []map[string]any
	for _, o := range wanted(namespace, liqo) {
		items = append(items, o.body())
	}
	text, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": items}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return append(text, '\n'), nil
}

// RolesText and PolicyText are the parts of [Manifest] with the roles, and with the
// policy that confines them: what documents show.
func RolesText() []byte { return part(func(o object) bool { return o.rules != nil }) }

// PolicyText is described at [RolesText].
func PolicyText() []byte { return part(func(o object) bool { return o.kind == validatingPolicy }) }

func part(shown func(object) bool) []byte {
	var out strings.Builder
	for _, o := range append(objects(DefaultNamespace, false), liqoObjects(DefaultNamespace)...) {
		if shown(o) {
			o.text(&out)
		}
	}
	return []byte(strings.TrimPrefix(out.String(), "---\n"))
}

func checkNamespace(namespace string) error {
	if _, err := peer.ParseClusterID(namespace); err != nil { // the same rules, RFC 1123
		return fmt.Errorf("namespace %q: lower-case letters, digits and inner hyphens are wanted, at most 63", namespace)
	}
	return nil
}

// wanted are the objects for an agent that is no pod, with or without the role for Liqo.
func wanted(namespace string, liqo bool) []object {
	out := objects(namespace, true)
	if liqo {
		out = append(out, liqoObjects(namespace)...)
	}
	return out
}

func manifest(namespace string, objects []object) ([]byte, error) {
	if err := checkNamespace(namespace); err != nil {
		return nil, err
	}
	var out strings.Builder
	out.WriteString(`# What liqo-agent may do in the API server of its own cluster: what it uses, and no more.
# Printed by "liqo-agent rbac"; "liqo-agent rbac --apply" installs it, and writes a kubeconfig.
`)
	for _, o := range objects {
		o.text(&out)
	}
	return []byte(out.String()), nil
}

// object is one object of the manifest.
type object struct {
	apiVersion, kind, plural string
	namespace, name          string
	comment                  string
	annotations              map[string]string
	bare                     bool           // without our label: it is not ours alone
	optional                 bool           // not every API server has its kind
	elder                    []string       // older versions of that, for API servers that lack apiVersion
	spec                     map[string]any // of a policy
	secretType               string         // of a Secret
	rules                    []Rule         // of a role
	role                     string         // what a binding gives: the kind of the role
	subject                  string         // the namespace of the ServiceAccount a binding gives it to
}

// objects returns the objects of the manifest, in the order in which they are made.
func objects(namespace string, token bool) []object {
	const rbacVersion = groupRBAC + "/v1"
	out := []object{{
		apiVersion: "v1", kind: "Namespace", plural: "namespaces", name: namespace, bare: true,
	}, {
		apiVersion: "v1", kind: "ServiceAccount", plural: "serviceaccounts", namespace: namespace, name: Name,
		comment: "The agent's user.",
	}}
	if token {
		out = append(out, object{
			apiVersion: "v1", kind: "Secret", plural: "secrets", namespace: namespace, name: TokenName,
			comment:     "The cluster fills in its token, which is valid for as long as this Secret exists.",
			annotations: map[string]string{"kubernetes.io/service-account.name": Name}, secretType: "kubernetes.io/service-account-token",
		})
	}
	// Before the rights: at no time is the user not confined.
	const admissionVersion = groupAdmission + "/v1"
	offloading, offloadingBinding := vnode.OffloadingSpecs()
	out = append(out, object{
		apiVersion: admissionVersion, kind: validatingPolicy, plural: validatingPlural, name: Name, optional: true,
		comment: "What the agent may write, where a role cannot say it. Nobody else is concerned.", spec: Confinement(namespace),
	}, object{
		apiVersion: admissionVersion, kind: validatingBinding, plural: bindingsPlural, name: Name, optional: true,
		spec: map[string]any{"policyName": Name, "validationActions": values("Deny")},
	}, object{
		apiVersion: admissionVersion, kind: "MutatingAdmissionPolicy", plural: "mutatingadmissionpolicies", name: vnode.OffloadingName,
		optional: true, elder: []string{groupAdmission + "/v1beta1"},
		comment: "Lets pods tolerate virtual nodes where a namespace says so. API servers without such policies have a webhook instead.", spec: offloading,
	}, object{
		apiVersion: admissionVersion, kind: "MutatingAdmissionPolicyBinding", plural: "mutatingadmissionpolicybindings", name: vnode.OffloadingName,
		optional: true, elder: []string{groupAdmission + "/v1beta1"}, spec: offloadingBinding,
	})
	everywhere, byNamespace := split(Rules(namespace))
	out = append(out, object{
		apiVersion: rbacVersion, kind: "ClusterRole", plural: "clusterroles", name: Name, rules: everywhere,
	})
	for _, rules := range byNamespace {
		out = append(out, object{
			apiVersion: rbacVersion, kind: "Role", plural: "roles", namespace: rules[0].Namespace, name: Name, rules: rules,
		})
	}
	out = append(out, object{
		apiVersion: rbacVersion, kind: "ClusterRoleBinding", plural: "clusterrolebindings", name: Name, role: "ClusterRole", subject: namespace,
	})
	for _, rules := range byNamespace {
		out = append(out, object{
			apiVersion: rbacVersion, kind: "RoleBinding", plural: "rolebindings", namespace: rules[0].Namespace, name: Name, role: "Role", subject: namespace,
		})
	}
	return out
}

// split parts the rules for the whole cluster from those for single namespaces.
func split(rules []Rule) (everywhere []Rule, byNamespace [][]Rule) {
	for _, r := range rules {
		if r.Namespace == "" {
			everywhere = append(everywhere, r)
			continue
		}
		i := slices.IndexFunc(byNamespace, func(have []Rule) bool { return have[0].Namespace == r.Namespace })
		if i < 0 {
			byNamespace = append(byNamespace, []Rule{r})
		} else {
			byNamespace[i] = append(byNamespace[i], r)
		}
	}
	return everywhere, byNamespace
}

// collection is the path of the objects of its kind.
func (o object) collection() string {
	path := "/apis/" + o.apiVersion
	if o.apiVersion == "v1" {
		path = "/api/v1"
	}
	if o.namespace != "" {
		path += "/namespaces/" + o.namespace
	}
	return path + "/" + o.plural
}

func (o object) path() string { return o.collection() + "/" + o.name }

// body is the object as it is applied.
func (o object) body() map[string]any {
	metadata := map[string]any{"name": o.name}
	if o.namespace != "" {
		metadata["namespace"] = o.namespace
	}
	if !o.bare {
		metadata["labels"] = map[string]any{api.LabelManagedBy: api.ManagedByAdministrator}
	}
	if len(o.annotations) > 0 {
		metadata["annotations"] = o.annotations
	}
	body := map[string]any{"apiVersion": o.apiVersion, "kind": o.kind, "metadata": metadata}
	if o.secretType != "" {
		body["type"] = o.secretType
	}
	if o.spec != nil {
		body["spec"] = o.spec
	}
	if o.rules != nil {
		var rules []any
		for _, r := range o.rules {
			rule := map[string]any{"apiGroups": []string{r.Group}, "resources": r.Resources, "verbs": r.Verbs}
			if len(r.Names) > 0 {
				rule["resourceNames"] = r.Names
			}
			rules = append(rules, rule)
		}
		body["rules"] = rules
	}
	if o.role != "" {
		body["roleRef"] = map[string]any{"apiGroup": groupRBAC, "kind": o.role, "name": o.name}
		body["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "name": Name, "namespace": o.subject}}
	}
	return body
}

// text writes the object as YAML for people.
func (o object) text(out *strings.Builder) {
	line := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	line("---")
	if o.comment != "" {
		line("# %s", o.comment)
	}
	line("apiVersion: %s\nkind: %s\nmetadata:\n  name: %s", o.apiVersion, o.kind, quoted(o.name))
	if o.namespace != "" {
		line("  namespace: %s", quoted(o.namespace))
	}
	if !o.bare {
		line("  labels: {%s: %s}", api.LabelManagedBy, api.ManagedByAdministrator)
	}
	for key, value := range o.annotations { // there is one at most
		line("  annotations: {%s: %s}", key, value)
	}
	if o.secretType != "" {
		line("type: %s", o.secretType)
	}
	if o.role != "" {
		line("roleRef: {apiGroup: %s, kind: %s, name: %s}", groupRBAC, o.role, o.name)
		line("subjects: [{kind: ServiceAccount, name: %s, namespace: %s}]", Name, quoted(o.subject))
	}
	if o.spec != nil {
		writeYAML(out, "spec", o.spec)
	}
	if o.rules == nil {
		return
	}
	line("rules:")
	part := Part("")
	for _, r := range o.rules {
		if r.Part != part {
			part = r.Part
			line("# %s", part)
		}
		line("- apiGroups: [%s]   # %s", quoted(r.Group), r.Reason)
		line("  resources: [%s]", strings.Join(r.Resources, ", "))
		if len(r.Names) > 0 {
			var names []string
			for _, name := range r.Names {
				names = append(names, quoted(name))
			}
			line("  resourceNames: [%s]", strings.Join(names, ", "))
		}
		line("  verbs: [%s]", strings.Join(r.Verbs, ", "))
	}
}

// writeYAML writes a field whose value is made of maps, lists and strings.
func writeYAML(out *strings.Builder, name string, value any) {
	text, err := yaml.Marshal(map[string]any{name: value})
	if err != nil { // it is made of what YAML can say
		panic(err)
	}
	out.Write(text)
}

// quoted puts into quotation marks what YAML might take for something else.
func quoted(s string) string {
	var read any
	if err := yaml.Unmarshal([]byte(s), &read); err != nil || read != any(s) || strings.ContainsAny(s, ":#") {
		return `"` + s + `"`
	}
	return s
}
