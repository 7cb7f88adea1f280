package rbac

import (
	"fmt"
	"strings"

	"liqo.io/agent/api"
	"liqo.io/agent/liqo/document"
	"liqo.io/agent/sharing/kubelet"
	"liqo.io/agent/sharing/vnode"
	"liqo.io/agent/sharing/volumes"
	"liqo.io/agent/sharing/workload"
)

// What the API server has for policies about what somebody may write. Rules say which
// kinds, policies what may be in them.
const (
	validatingPolicy  = "ValidatingAdmissionPolicy"
	validatingBinding = "ValidatingAdmissionPolicyBinding"
	validatingPlural  = "validatingadmissionpolicies"
	bindingsPlural    = "validatingadmissionpolicybindings"
)

// confined is one kind of requests that the policy is asked about.
type confined struct {
	group      string
	resources  []string
	operations []string
}

// confinement is what the policy is asked about: all that the agent may write of which
// the name or the content matters to others. [TestConfinementIsComplete] knows the rest.
var confinement = []confined{
	{groupCore, []string{"namespaces", "nodes", "nodes/status", "configmaps", "secrets"}, []string{"CREATE", "UPDATE", "DELETE"}},
	{groupCore, []string{"pods", "pods/status", "resourcequotas"}, []string{"CREATE", "UPDATE"}},
	{groupCore, []string{"pods/ephemeralcontainers"}, []string{"UPDATE"}},
	{groupCore, []string{"persistentvolumes"}, []string{"CREATE", "UPDATE", "DELETE"}},
	{groupCore, []string{"persistentvolumeclaims/status"}, []string{"UPDATE"}},
	{groupStorage, []string{"storageclasses"}, []string{"CREATE", "UPDATE", "DELETE"}},
	{groupCore, []string{"services", "persistentvolumeclaims"}, []string{"CREATE", "UPDATE", "DELETE"}},
	{groupSlices, []string{"endpointslices"}, []string{"CREATE", "UPDATE", "DELETE"}},
	{groupCore, []string{tokens}, []string{"CREATE"}},
	{groupCore, []string{"pods/exec", "pods/attach", "pods/portforward"}, []string{"CONNECT"}},
	{"networking.k8s.io", []string{"networkpolicies"}, []string{"CREATE", "UPDATE"}},
	{groupRBAC, []string{"clusterroles", "clusterrolebindings"}, []string{"CREATE", "UPDATE", "DELETE"}},
	{groupRBAC, []string{"roles", "rolebindings"}, []string{"CREATE", "UPDATE"}},
	{groupAdmission, []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"}, []string{"CREATE", "UPDATE"}},
	{"apiextensions.k8s.io", []string{"customresourcedefinitions"}, []string{"CREATE", "UPDATE"}},
	{groupCSR, []string{"certificatesigningrequests"}, []string{"CREATE"}},
	{document.Authentication.Group, []string{document.PluralTenants, document.PluralIdentities, document.PluralResourceSlices}, []string{"CREATE", "UPDATE", "DELETE"}},
	{document.Authentication.Group, []string{"renews"}, []string{"DELETE"}},
	{document.Offloading.Group, []string{document.PluralVirtualNodes}, []string{"UPDATE", "DELETE"}},
	{document.Networking.Group, connecting, []string{"CREATE", "UPDATE", "DELETE"}},
}

// guestPrefix begins the names of guest namespaces, unless sharing.namespace_prefix says
// otherwise.
const guestPrefix = "liqo-"

// demand is one thing that the policy demands.
type demand struct {
	message    string // what is demanded, for whoever is refused
	expression string // CEL
}

// Confinement returns the spec of the ValidatingAdmissionPolicy that confines the
// agent's user, with its own things in namespace, to what the agent does. It is about
// that user and the peers whom it may impersonate alone, and refuses nobody else
// anything.
//
// It keeps those who have the agent's credential, and nothing else of it, from making
// themselves administrators. That is why it is about the peers as well: as one of them
// they could change what they may not change as the agent.
func Confinement(namespace string) map[string]any {
	agent, peers := ServiceAccount(namespace), api.PeerUserPrefix(namespace)
	var rules []any
	for _, c := range confinement {
		rules = append(rules, map[string]any{
			"apiGroups": values(c.group), "apiVersions": values("*"), "resources": values(c.resources...), "operations": values(c.operations...), "scope": "*",
		})
	}
	var validations []any
	for _, d := range demands(namespace) {
		validations = append(validations, map[string]any{"message": d.message, "expression": d.expression, "reason": "Forbidden"})
	}
	variable := func(name, expression string) any { return map[string]any{"name": name, "expression": expression} }
	return map[string]any{
		"failurePolicy": "Fail",
		// With all that an API server would fill in: it compares this as a whole.
		"matchConstraints": map[string]any{
			"matchPolicy": "Equivalent", "namespaceSelector": map[string]any{}, "objectSelector": map[string]any{}, "resourceRules": rules,
		},
		"matchConditions": []any{map[string]any{"name": "agent-or-peer", "expression": fmt.Sprintf(
			`request.userInfo.username == %q || request.userInfo.username.startsWith(%q) || request.userInfo.username.startsWith(%q)`,
			agent, peers, api.FormerPeerUserPrefix)}},
		"variables": []any{
			variable("agent", fmt.Sprintf(`request.userInfo.username == %q`, agent)),
			variable("peer", fmt.Sprintf(`request.userInfo.username.replace(%q, "").replace(%q, "")`, peers, api.FormerPeerUserPrefix)),
			variable("what", `request.resource.resource + (has(request.subResource) && request.subResource != "" ? "/" + request.subResource : "")`),
			variable("deleted", `request.operation == "DELETE"`),
			variable("now", `variables.deleted ? oldObject : object`),
			variable("liqo", drivesLiqo),
			variable("labels", `namespaceObject == null ? {} : namespaceObject.metadata.?labels.orValue({})`),
			// Whose guest namespace a request is about something in, and which one it is about.
			variable("home", guestOf(`variables.labels`)),
			variable("guest", `variables.what != "namespaces" ? "" : `+guestOf(`variables.now.metadata.?labels.orValue({})`)),
			variable("guestBefore", `variables.what != "namespaces" || oldObject == null ? "" : `+guestOf(`oldObject.metadata.?labels.orValue({})`)),
			// Whether it is about a namespace for a peer of Liqo's.
			variable("tenant", tenantNamespace()),
		},
		"validations": validations,
	}
}

// Confinements returns the paths of the policy and of its binding, each with the spec
// that it is to have.
func Confinements(namespace string) map[string]map[string]any {
	out := make(map[string]map[string]any)
	for _, o := range objects(namespace, false) {
		if o.kind == validatingPolicy || o.kind == validatingBinding {
			out[o.path()] = o.spec
		}
	}
	return out
}

// guestOf is the cluster that a namespace with those labels is for, "" for none.
func guestOf(labels string) string {
	return fmt.Sprintf(`%[1]s[?%[2]q].orValue("") == %[3]q ? %[1]s[?%[4]q].orValue("") : ""`, labels, api.LabelManagedBy, api.ManagedByAgent, api.LabelOriginCluster)
}

// demands are what every request has to fulfil.
func demands(namespace string) []demand {
	const (
		tainted = `%s.spec.?taints.orValue([]).exists(t, t.key == "` + workload.TaintNotAllowed + `" && t.effect == "NoExecute")`
		before  = `(oldObject == null ? %[2]s : oldObject.%[1]s.orValue(%[2]s))`
		near    = `variables.now.?webhooks.orValue([]).all(w, w.clientConfig.?url.orValue("").matches("^https://(127[.][0-9.]+|\\[::1\\]):[0-9]+/"))`
		is      = `variables.what != %q || `
		secure  = `object.metadata.labels[?"pod-security.kubernetes.io/enforce"].orValue("") in ["baseline", "restricted"] && ` +
			`object.metadata.labels[?"pod-security.kubernetes.io/enforce-version"].orValue("latest") == "latest"`
	)
	of := func(what, expression string) string { return fmt.Sprintf(is, what) + expression }
	oneOf := func(expression string, whats ...string) string {
		return fmt.Sprintf(`!(variables.what in ["%s"]) || `, strings.Join(whats, `", "`)) + expression
	}
	// What a new object has is compared with nothing.
	same := func(field, empty string) string {
		return fmt.Sprintf(`object.%[1]s.orValue(%[2]s) == `+before, field, empty)
	}
	kept := func(of, in string) string {
		return fmt.Sprintf(`%[1]s.metadata.?annotations.orValue({}).all(k, k.startsWith(%[3]q) || %[2]s.metadata.?annotations[?k] == optional.of(%[1]s.metadata.annotations[k]))`, of, in, workload.AnnotationPlacePrefix)
	}
	users := func(id string) string {
		return fmt.Sprintf(`object.?subjects.orValue([]).all(s, s.kind == "User" && s.name in [%q + %s, %q + %s])`,
			api.PeerUserPrefix(namespace), id, api.FormerPeerUserPrefix, id)
	}
	peer := fmt.Sprintf("request.name.substring(%d)", len(api.PeerRolePrefix))
	behind := fmt.Sprintf(`variables.now.metadata.name.matches(%q) && variables.now.metadata.?labels[?%q].orValue("") == %q && `+
		`variables.now.metadata.?ownerReferences.orValue([]).map(r, r.kind + "/" + %q + r.uid) == ["PersistentVolumeClaim/" + variables.now.metadata.name]`,
		volumes.BehindPattern, api.LabelManagedBy, api.ManagedByAgent, volumes.BehindPrefix)
	// What the agent takes away of guests whose claims are all that is kept.
	const ended = `variables.deleted && variables.home != "" || `
	own := fmt.Sprintf(`request.?namespace.orValue("") == %q && `, namespace)
	return []demand{
		{"a peer's user may change things in its own guest namespaces only",
			`variables.agent || variables.home != "" && variables.home == variables.peer`},
		{"the agent makes no pods, and reaches into none: guests do that in their own namespaces",
			oneOf(`!variables.agent`, "pods", "pods/ephemeralcontainers", "pods/exec", "pods/attach", "pods/portforward")},
		// Where sharing.network_range and IPv6 blocks are: nobody else's pods have these.
		{"the agent gives pods no addresses but those for pods of peers, in 240.0.0.0/4 and fd00::/8",
			of("pods/status", `object.?status.?podIPs.orValue([]).all(p, p.ip.matches("^(24[0-9]|25[0-4])[.]|^fd")) || object.?status.?podIPs.orValue([]) == oldObject.?status.?podIPs.orValue([])`)},
		{"the agent changes nothing but the status of pods",
			of("pods/status", same("metadata.?labels", "{}")+` && `+same("metadata.?annotations", "{}")+` && `+same("metadata.?finalizers", "[]"))},
		{"the agent makes namespaces for guests, held to Pod Security baseline or restricted, its own, and those of Liqo's peers",
			of("namespaces", fmt.Sprintf(`request.operation != "CREATE" || variables.tenant || request.name == %q && variables.guest == "" || variables.guest != "" && `+
				secure, namespace))},
		{"the agent changes namespaces of guests, held to Pod Security baseline or restricted, and of others only its own notes",
			// What lost its labels was a guest's if it is called like one.
			of("namespaces", `request.operation != "UPDATE" || variables.guest != "" && (variables.guest == variables.guestBefore || `+
				`variables.guestBefore == "" && request.name.startsWith("`+guestPrefix+`")) && `+
				secure+` || `+
				same("metadata.?labels", "{}")+` && `+same("metadata.?ownerReferences", "[]")+` && `+same("metadata.?finalizers", "[]")+` && `+kept("object", "oldObject")+` && `+kept("oldObject", "object"))},
		{"the agent deletes namespaces of guests, and those that it made of Liqo's peers",
			of("namespaces", `!variables.deleted || variables.tenant || variables.guestBefore != ""`)},
		{"the agent writes virtual nodes only",
			oneOf(fmt.Sprintf(`(oldObject == null ? object : oldObject).spec.?providerID.orValue("").startsWith(%q)`, vnode.ProviderPrefix), "nodes", "nodes/status")},
		{"a virtual node keeps its taint",
			of("nodes", `variables.deleted || `+fmt.Sprintf(tainted, "object")+` || oldObject != null && !`+fmt.Sprintf(tainted, "oldObject"))},
		{"the agent gives a virtual node no range of addresses, no annotations but where it says what its pods use, and only labels of its own",
			oneOf(`variables.deleted || `+same("spec.?podCIDR", `""`)+` && `+same("spec.?podCIDRs", "[]")+` && `+
				// Where metrics-server asks at the agent's own port.
				fmt.Sprintf(`[object, oldObject].all(o, o == null || o.metadata.?annotations.orValue({}).all(k, k == %[1]q || oldObject != null && object.metadata.?annotations[?k] == oldObject.metadata.?annotations[?k])) && `+
					`object.metadata.?annotations[?%[1]q].orValue(%[2]q + request.name) == %[2]q + request.name`, vnode.AnnotationMetricsPath, kubelet.ResourcePath(""))+
				` && object.metadata.?labels.orValue({}).all(k, k in ["`+strings.Join(vnode.NodeLabels(), `", "`)+`"] || k.startsWith("liqo.io/") || k.startsWith("`+vnode.LabelOffered+`") || `+
				`oldObject != null && oldObject.metadata.?labels[?k] == optional.of(object.metadata.labels[k]))`, "nodes", "nodes/status")},
		{"the agent writes one ConfigMap, " + api.ClusterIDConfigMap + " in its own namespace",
			of("configmaps", fmt.Sprintf(`!variables.agent || `+ended+own+`request.name == %q`, api.ClusterIDConfigMap))},
		{"the agent writes Secrets of peers, in its own namespace and without a token, and those of Liqo's exchange with a peer",
			of("secrets", fmt.Sprintf(`!variables.agent || `+ended+tenantSecret()+` || `+own+`request.name.startsWith(%q) && variables.now.?type.orValue("Opaque") == "Opaque"`, api.PeerAccountPrefix))},
		// Whether the pod is on a virtual node cannot be seen here, nor whose account it has: the API server
		// itself gives a token that is bound to a pod for the account of that pod only.
		{"the agent asks for tokens of pods in namespaces with the label " + workload.LabelTokens + "=true, for a day at most, and never in kube-system, its own namespace and those of guests",
			of(tokens, fmt.Sprintf(`variables.agent && variables.labels[?%q].orValue("") == "true" && variables.labels[?%q].orValue("") == "true" && variables.home == "" && !(request.?namespace.orValue("") in ["kube-system", %q]) && `+
				`has(object.spec.boundObjectRef) && object.spec.boundObjectRef.?kind.orValue("") == "Pod" && object.spec.boundObjectRef.?uid.orValue("") != "" && `+
				`object.spec.?expirationSeconds.orValue(%[4]d) <= %[4]d`, workload.LabelTokens, workload.LabelEnabled, namespace, int(workload.LongestToken.Seconds())))},
		{"quotas, network policies, roles and bindings of the agent are in the namespaces of guests",
			oneOf(`variables.home != ""`, "resourcequotas", "networkpolicies", "roles", "rolebindings")},
		{"the agent writes no Services, and deletes those of guests: guests write them in their own namespaces",
			of("services", `!variables.agent || `+ended+`false`)},
		{"Services of guests are reached inside the cluster only, and select their own pods",
			of("services", `variables.deleted || object.spec.?type.orValue("ClusterIP") == "ClusterIP" && object.spec.?externalIPs.orValue([]) == [] && object.spec.?externalName.orValue("") == "" && `+
				`object.spec.?ports.orValue([]).all(p, p.?nodePort.orValue(0) == 0) && `+
				fmt.Sprintf(`(object.spec.?selector.orValue({}) == {} || object.spec.selector[?%q].orValue("") == variables.home)`, api.LabelOriginCluster))},
		{"what is written there has the label of the guest, and had it",
			oneOf(fmt.Sprintf(`[object, oldObject].all(o, o == null || o.metadata.?labels[?%q].orValue("") == variables.home)`, api.LabelOriginCluster), "services", "endpointslices", "persistentvolumeclaims")},
		{"the agent changes EndpointSlices in the namespaces of guests, and makes none",
			of("endpointslices", `!variables.agent || request.operation in ["UPDATE", "DELETE"] && variables.home != ""`)},
		{"the agent makes claims that stand behind others, empty and not for guests, and deletes those only",
			of("persistentvolumeclaims", `!variables.agent || request.operation == "UPDATE" || variables.home == "" && `+behind+
				` && (variables.deleted || !has(object.spec.dataSource) && !has(object.spec.dataSourceRef) && !has(object.spec.selector) && object.spec.?volumeName.orValue("") == "")`)},
		{"the agent changes nothing in claims but its own notes and finalizer",
			of("persistentvolumeclaims", `!variables.agent || request.operation != "UPDATE" || object.spec == oldObject.spec && `+same("metadata.?labels", "{}")+` && `+same("metadata.?ownerReferences", "[]")+
				fmt.Sprintf(` && [object, oldObject].all(o, o.metadata.?finalizers.orValue([]).all(f, f == %q || f in object.metadata.?finalizers.orValue([]) && f in oldObject.metadata.?finalizers.orValue([])))`, volumes.Finalizer))},
		{"the agent changes the size that is shown of claims at providers, and nothing else in the status of claims",
			of("persistentvolumeclaims/status", `object.spec == oldObject.spec && object.spec.?volumeName.orValue("") == "liqo-" + object.metadata.uid && object.status.?phase == oldObject.status.?phase && `+
				same("metadata.?labels", "{}")+` && `+same("metadata.?annotations", "{}")+` && `+same("metadata.?ownerReferences", "[]")+` && `+same("metadata.?finalizers", "[]"))},
		{"the agent's storage class is one of its own",
			of("storageclasses", fmt.Sprintf(`(oldObject == null ? object : oldObject).provisioner == %q`, workload.Provisioner))},
		{"the agent's volumes stand for claims at providers, and are on virtual nodes only; of others it hands over those of its claims",
			of("persistentvolumes", fmt.Sprintf(`(oldObject == null ? object : oldObject).metadata.?annotations[?"pv.kubernetes.io/provisioned-by"].orValue("") == %q && (variables.deleted || has(object.spec.local) && object.spec.local.path.startsWith("/liqo/") && `+
				`object.spec.nodeAffinity.required.nodeSelectorTerms.all(t, t.?matchExpressions.orValue([]).exists(e, e.key == %q && e.operator == "In" && e.values == [%q]))) || `,
				workload.Provisioner, workload.LabelType, workload.VirtualNode)+handsOver())},
		{"claims of guests are empty when they are made, have no volume of their choice, and the label of the guest",
			of("persistentvolumeclaims", `variables.agent || variables.deleted || !has(object.spec.dataSource) && !has(object.spec.dataSourceRef) && !has(object.spec.selector) && `+same("spec.?volumeName", `""`))},
		{"EndpointSlices are those of the agent",
			of("endpointslices", fmt.Sprintf(`[object, oldObject].all(o, o == null || o.metadata.?labels[?%q].orValue("") == %q)`, api.LabelSliceManager, api.ManagedByAgent))},
		// Where sharing.network_range and IPv6 blocks are, as for the addresses of pods.
		{"EndpointSlices have addresses of peers, in 240.0.0.0/4 and fd00::/8, and refer to nothing in this cluster",
			of("endpointslices", `variables.deleted || object.addressType != "FQDN" && object.?endpoints.orValue([]).all(e, e.addresses.all(a, a.matches("^(24[0-9]|25[0-4])[.]|^fd")) && !has(e.targetRef) && !has(e.nodeName))`)},
		{"the agent's roles are for pods and what they use, ConfigMaps, Secrets, Services, EndpointSlices, PersistentVolumeClaims and events",
			of("roles", `object.?rules.orValue([]).all(r, r.?apiGroups.orValue([]) == [""] && r.?resources.orValue([]).all(x, `+
				`x in ["pods", "pods/ephemeralcontainers", "pods/log", "pods/exec", "pods/attach", "pods/portforward", "configmaps", "secrets", "services", "persistentvolumeclaims", "events"]) || `+
				`r.?apiGroups.orValue([]) == ["discovery.k8s.io"] && r.?resources.orValue([]) == ["endpointslices"] || `+
				`r.?apiGroups.orValue([]) == ["metrics.k8s.io"] && r.?resources.orValue([]) == ["pods"] && r.?verbs.orValue([]) == ["list"])`)},
		{"the agent gives such a role to the peer of the namespace",
			of("rolebindings", `object.roleRef.kind == "Role" && `+users(`variables.home`))},
		{"the agent's cluster roles are called " + api.PeerRolePrefix + "<ID>",
			oneOf(fmt.Sprintf(`request.name.startsWith(%q)`, api.PeerRolePrefix), "clusterroles", "clusterrolebindings")},
		{"the agent's cluster roles are for the PeeringRequest and the Advertisement of one peer",
			of("clusterroles", `variables.deleted || !has(object.aggregationRule) && object.?rules.orValue([]).all(r, r.?resourceNames.orValue([]) == [`+peer+`] && `+
				fmt.Sprintf(`(r.?apiGroups.orValue([]) == [%q] && r.?resources.orValue([]) == [%q] || r.?apiGroups.orValue([]) == [%q] && r.?resources.orValue([]) == [%q]))`,
					api.GroupVersion.Group, api.PluralPeeringRequests, api.SharingGroupVersion.Group, api.PluralAdvertisements))},
		{"the agent gives such a cluster role to that peer",
			of("clusterrolebindings", `variables.deleted || object.roleRef.kind == "ClusterRole" && object.roleRef.name == request.name && `+users(peer))},
		{"the agent's webhooks are the agent, beside the API server",
			oneOf(near, "validatingwebhookconfigurations", "mutatingwebhookconfigurations")},
		{"the agent's webhook decides about PeeringRequests",
			of("validatingwebhookconfigurations", fmt.Sprintf(`object.?webhooks.orValue([]).all(w, w.?rules.orValue([]).all(r, r.apiGroups == [%q] && r.resources == [%q]))`,
				api.GroupVersion.Group, api.PluralPeeringRequests))},
		{"the agent's other webhook is about new pods where a namespace wants it",
			of("mutatingwebhookconfigurations", fmt.Sprintf(`request.name == %q && object.?webhooks.orValue([]).all(w, w.?namespaceSelector.?matchLabels[?%q].orValue("") == "true" && `+
				`w.?rules.orValue([]).all(r, r.apiGroups == [""] && r.resources == ["pods"] && r.operations == ["CREATE"]))`, vnode.OffloadingName, workload.LabelEnabled))},
		{"the agent's definitions are not converted by a webhook",
			of("customresourcedefinitions", `object.spec.?conversion.?strategy.orValue("None") == "None"`)},
		{"the agent asks for certificates of kubelets' servers only",
			of("certificatesigningrequests", `object.spec.signerName == "kubernetes.io/kubelet-serving"`)},
		{"the agent has Liqo peer clusters in namespaces that are in its care, and no consumer without proof of its key",
			oneOf(careOf(`variables.labels`)+` && (variables.deleted || object.spec.?authzPolicy.orValue("KeysExchange") == "KeysExchange")`,
				document.PluralTenants, document.PluralIdentities, document.PluralResourceSlices, "renews")},
		{"the agent notes the provider's address on Liqo's virtual nodes and the pods of their virtual kubelets, and changes nothing else in them; it deletes those in its care",
			of(document.PluralVirtualNodes, careOf(`variables.labels`)+` && (variables.deleted || `+same("metadata.?labels", "{}")+` && `+same("metadata.?ownerReferences", "[]")+` && `+same("metadata.?finalizers", "[]")+` && `+onlyNoted()+`)`)},
		{"the agent has Liqo connect networks in namespaces that are in its care, and writes and deletes only what it made there",
			oneOf(careOf(`variables.labels`)+fmt.Sprintf(` && [object, oldObject].all(o, o == null || o.metadata.?labels[?%q].orValue("") != "")`, api.LabelClusterID), connecting...)},
		{"networks of peers have private IPv4 addresses, and those of this cluster are up to Liqo",
			of(document.PluralConfigurations, fmt.Sprintf(`variables.deleted || [object.spec.?remote.?cidr.?pod, object.spec.?remote.?cidr.?external].all(c, c.orValue([]).all(r, r.matches(%q)))`, document.RangePattern)+
				` && (oldObject == null ? !object.spec.?local.hasValue() : object.spec.?local == oldObject.spec.?local)`)},
		{"keys of gateways have 32 bytes: with fewer, Liqo's gateway ends",
			of(document.PluralPublicKeys, `variables.deleted || object.spec.?publicKey.orValue("").matches("^[A-Za-z0-9+/]{43}=$")`)},
		{"the agent's GatewayServers are Liqo's own, with a port of their own on the nodes",
			of(document.PluralGatewayServers, gateway("serverTemplateRef", document.KindServerTemplate, document.ServerTemplate,
				`object.spec.?endpoint.?serviceType.orValue("") == "NodePort" && object.spec.?endpoint.?nodePort.orValue(0) == 0 && object.spec.?endpoint.?loadBalancerIP.orValue("") == "" && `+
					`object.spec.?serviceAnnotations.orValue({}) == {} && object.spec.?serviceLabels.orValue({}) == {}`))},
		{"the agent's GatewayClients are Liqo's own, and call by UDP",
			of(document.PluralGatewayClients, gateway("clientTemplateRef", document.KindClientTemplate, document.ClientTemplate, `object.spec.?endpoint.?protocol.orValue("") == "UDP"`))},
	}
}

// handsOver is that an update of a volume is one of the three of its hand-over, from a claim that stands
// behind another one to that: it is protected from deletion, then refers to the other claim, and then has
// its reclaim policy back. Nothing else in it changes. A volume that people use is never in the first of
// these states, so nobody's data is taken by them.
func handsOver() string {
	const unchanged = `object.%[1]s == oldObject.%[1]s`
	var all []string
	for _, field := range []string{
		"metadata.?labels", "metadata.?ownerReferences", "metadata.?finalizers", "spec.?accessModes", "spec.?capacity", "spec.?csi", "spec.?hostPath", "spec.?local", "spec.?mountOptions",
		"spec.?nodeAffinity", "spec.?storageClassName", "spec.?volumeAttributesClassName", "spec.?volumeMode",
	} {
		all = append(all, fmt.Sprintf(unchanged, field))
	}
	note := func(of, key string) string { return fmt.Sprintf(`%s.metadata.?annotations[?%q]`, of, key) }
	before, after := note("oldObject", volumes.AnnotationPolicy), note("object", volumes.AnnotationPolicy)
	const policy, claim = `.spec.?persistentVolumeReclaimPolicy`, `.spec.?claimRef`
	const sameClaim = `object` + claim + ` == oldObject` + claim
	protects := sameClaim + fmt.Sprintf(` && object.spec.?claimRef.?name.orValue("").matches(%q)`, volumes.BehindPattern) +
		` && !` + before + `.hasValue() && ` + after + ` == oldObject` + policy + ` && object` + policy + ` == optional.of("Retain")`
	hands := before + `.hasValue() && ` + after + ` == ` + before + ` && oldObject` + policy + ` == optional.of("Retain") && object` + policy + ` == optional.of("Retain")` +
		fmt.Sprintf(` && object.spec.?claimRef.?uid.hasValue() && oldObject.spec.?claimRef.?name == optional.of(%q + object.spec.claimRef.uid)`, volumes.BehindPrefix) +
		` && object.spec.?claimRef.?namespace == oldObject.spec.?claimRef.?namespace && object.spec.?claimRef.?name == ` + note("oldObject", volumes.AnnotationClaim)
	restores := sameClaim + ` && ` + before + `.hasValue() && !` + after + `.hasValue() && object` + policy + ` == ` + before
	return `request.operation == "UPDATE" && ` + strings.Join(all, " && ") +
		fmt.Sprintf(` && [object, oldObject].all(o, o.metadata.?annotations.orValue({}).all(k, k in [%q, %q] || object.metadata.?annotations[?k] == oldObject.metadata.?annotations[?k]))`,
			volumes.AnnotationPolicy, volumes.AnnotationClaim) +
		` && (` + protects + ` || ` + hands + ` || ` + restores + `)`
}

func values(texts ...string) []any {
	out := make([]any, len(texts))
	for i, text := range texts {
		out[i] = text
	}
	return out
}
