package rbac

import (
	"liqo.io/agent/api"
	"liqo.io/agent/sharing/vnode"
)

// Part is what a rule serves. The parts are the sections of the manifest.
type Part string

// The parts, in the order of [Rules].
const (
	PartSelf     Part = "The agent itself: its identity, its custom resources and its settings"
	PartPeerings Part = "Peerings: a ForeignCluster for each neighbour, and what peers write here"
	PartShared   Part = "What several of the other parts need"
	PartHosting  Part = "What others run here"
	PartBorrowed Part = "What runs elsewhere: virtual nodes and their pods"
)

// Rule is one thing that the agent needs to be allowed, as RBAC has it.
type Rule struct {
	// Part is the section it belongs to.
	Part Part
	// Group is the API group, "" for the core.
	Group string
	// Resources are plural names, with a subresource after a slash.
	Resources []string
	// Names limits the rule to objects of these names; none means all. It is never
	// together with the creation by POST, of which the API server does not know the
	// name. Server-side apply that creates is asked for by name.
	Names []string
	// Verbs are those of requests, and impersonate and approve.
	Verbs []string
	// Namespace is the only namespace that it is needed in; "" for the whole cluster.
	Namespace string
	// Granted are those of Verbs that the agent itself has no use for, and passes on:
	// nobody may write a role with rights that they lack themselves. Requests of that
	// kind come from peers, through the gateway, under a name of their own.
	Granted []string
	// Reason says what the agent does with it: part of a sentence, for people.
	Reason string
}

const (
	groupCore      = ""
	groupRBAC      = "rbac.authorization.k8s.io"
	groupAdmission = "admissionregistration.k8s.io"
	groupCSR       = "certificates.k8s.io"
	groupSlices    = "discovery.k8s.io"
	groupStorage   = "storage.k8s.io"
	groupMetrics   = "metrics.k8s.io"
	tokens         = "serviceaccounts/token"
)

// Rules returns everything that the agent needs in its own cluster, with its own things
// in namespace, by parts. Callers may change what they get.
//
// Nothing more is to be had by names: those of peers, of guest namespaces and of what
// offloaded pods name are not known beforehand, and RBAC knows no patterns. The policy
// that comes with the rules does; see [Confinement].
func Rules(namespace string) []Rule {
	discovery, sharing, config := api.GroupVersion.Group, api.SharingGroupVersion.Group, api.ConfigGroupVersion.Group
	var crds []string
	for _, m := range api.CRDs() {
		crds = append(crds, m.Name)
	}
	return []Rule{
		{
			Part: PartSelf, Group: "apiextensions.k8s.io", Resources: []string{"customresourcedefinitions"}, Names: crds,
			Verbs: []string{"get", "create", "patch"}, Reason: "installs its own definitions, and brings them up to date",
		}, {
			Part: PartSelf, Group: groupAdmission, Resources: []string{"validatingwebhookconfigurations"}, Names: []string{"liqo-agent"},
			Verbs: []string{"get", "create", "patch", "delete"}, Reason: "has the API server ask it about PeeringRequests, until liqo-agent reset",
		}, {
			Part: PartSelf, Group: groupAdmission, Resources: []string{validatingPlural, bindingsPlural}, Names: []string{Name},
			Verbs: []string{"get"}, Reason: "has liqo-agent doctor look whether the policy that confines it is there",
		}, {
			Part: PartSelf, Group: config, Resources: []string{api.PluralClusterConfigs},
			Verbs: []string{"list", "watch", "create"}, Reason: "follows the settings, and makes an object that sets nothing",
		}, {
			Part: PartSelf, Group: config, Resources: []string{api.PluralClusterConfigs}, Names: []string{api.ClusterConfigName},
			Verbs: []string{"get", "delete"}, Reason: "takes that object away again in liqo-agent reset",
		}, {
			Part: PartSelf, Group: config, Resources: []string{api.PluralClusterConfigs + "/status"}, Names: []string{api.ClusterConfigName},
			Verbs: []string{"patch"}, Reason: "says how the agent is",
		}, {
			Part: PartSelf, Group: discovery, Resources: []string{api.PluralSearchDomains},
			Verbs: []string{"list", "watch"}, Reason: "follows the domains to look in",
		}, {
			Part: PartSelf, Group: discovery, Resources: []string{api.PluralSearchDomains + "/status"},
			Verbs: []string{"patch"}, Reason: "says what was found in a domain",
		},

		{
			Part: PartPeerings, Group: discovery, Resources: []string{api.PluralForeignClusters},
			Verbs: []string{"list", "watch", "create", "patch", "delete"}, Reason: "keeps one for each neighbour",
		}, {
			Part: PartPeerings, Group: discovery, Resources: []string{api.PluralForeignClusters + "/status"},
			Verbs: []string{"patch"}, Reason: "says how each neighbour stands",
		}, {
			Part: PartPeerings, Group: discovery, Resources: []string{api.PluralPeeringRequests},
			Verbs:   []string{"get", "list", "watch", "create", "patch", "delete"},
			Granted: []string{"get", "create", "patch"}, Reason: "follows and ends requests; a peer has the rest for its own",
		}, {
			Part: PartPeerings, Group: sharing, Resources: []string{api.PluralAdvertisements},
			Verbs:   []string{"get", "list", "watch", "create", "patch", "delete"},
			Granted: []string{"get", "create", "patch"}, Reason: "follows and ends offers; a peer has the rest for its own",
		}, {
			Part: PartPeerings, Group: discovery, Resources: []string{api.PluralPeeringRequests + "/status"},
			Verbs: []string{"patch"}, Reason: "says what became of a request",
		}, {
			Part: PartPeerings, Group: sharing, Resources: []string{api.PluralAdvertisements + "/status"},
			Verbs: []string{"patch"}, Reason: "says what became of an offer",
		}, {
			Part: PartPeerings, Group: groupRBAC, Resources: []string{"clusterroles", "clusterrolebindings"},
			Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}, Reason: "keeps liqo:peer:<ID>, which lets a peer reach its own two objects",
		}, {
			Part: PartPeerings, Group: groupCore, Resources: []string{"serviceaccounts"}, Namespace: namespace,
			Verbs: []string{"impersonate"}, Reason: "passes the calls of peers on as service account liqo-peer-<ID> of its own namespace",
		}, {
			Part: PartPeerings, Group: groupCore, Resources: []string{"groups"}, Names: []string{api.PeerGroup},
			Verbs: []string{"impersonate"}, Reason: "in the group of all peers",
		},

		{
			Part: PartShared, Group: groupCore, Resources: []string{"namespaces"},
			Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}, Reason: "makes its own and those of guests, and follows where pods may leave from",
		}, {
			Part: PartShared, Group: groupCore, Resources: []string{"nodes"},
			Verbs:  []string{"get", "list", "watch", "create", "patch", "delete"},
			Reason: "counts what is there to be offered, takes the first ID from one, and keeps one for each provider",
		}, {
			Part: PartShared, Group: groupCore, Resources: []string{"pods"},
			Verbs:   []string{"get", "list", "watch", "create", "patch", "delete"},
			Granted: []string{"create", "patch"}, Reason: "counts what is used, ends those of guests and those that came back; guests make their own",
		}, {
			Part: PartShared, Group: groupCore, Resources: []string{"configmaps"},
			Verbs:  []string{"get", "list", "watch", "create", "patch", "delete"},
			Reason: "keeps cluster-id in its own namespace, sends along what offloaded pods name, and ends those of guests; guests keep theirs",
		}, {
			Part: PartShared, Group: groupCore, Resources: []string{"secrets"},
			Verbs:  []string{"get", "list", "watch", "create", "patch", "delete"},
			Reason: "keeps liqo-peer-<ID> in its own namespace, and sends along what offloaded pods name; guests keep theirs",
		}, {
			Part: PartShared, Group: groupCore, Resources: []string{"events"},
			Verbs:   []string{"get", "list", "watch", "create", "patch"},
			Granted: []string{"get", "list", "watch"}, Reason: "tells about neighbours and offloaded pods; guests read those of theirs",
		},

		{
			Part: PartShared, Group: groupCore, Resources: []string{"services"},
			Verbs:   []string{"get", "list", "watch", "create", "patch", "delete"},
			Granted: []string{"create", "patch"}, Reason: "sends Services along with offloaded pods, and ends those of guests; guests keep theirs",
		}, {
			Part: PartShared, Group: groupSlices, Resources: []string{"endpointslices"},
			Verbs:   []string{"get", "list", "watch", "create", "patch", "delete"},
			Granted: []string{"get", "create"}, Reason: "follows the endpoints of such Services, and says which of guests' are reached; guests keep theirs",
		},

		{
			Part: PartShared, Group: groupCore, Resources: []string{"persistentvolumeclaims"},
			Verbs:  []string{"get", "list", "watch", "create", "patch", "delete"},
			Reason: "notes on claims where their data is, makes those behind claims at home, and counts those of guests; guests keep theirs",
		}, {
			Part: PartShared, Group: groupStorage, Resources: []string{"storageclasses"},
			Verbs: []string{"list", "watch", "create", "patch", "delete"}, Reason: "keeps its own class, and looks whether there is one for the claims of guests",
		}, {
			Part: PartShared, Group: "authorization.k8s.io", Resources: []string{"subjectaccessreviews"},
			Verbs: []string{"create"}, Reason: "asks what callers of the kubelet API may do, and whether the rights of guests count yet",
		},

		{
			Part: PartHosting, Group: groupCore, Resources: []string{"pods/log"},
			Verbs: []string{"get"}, Granted: []string{"get"}, Reason: "guests read what their pods say",
		}, {
			Part: PartHosting, Group: groupCore, Resources: []string{"pods/exec", "pods/attach", "pods/portforward"},
			Verbs: []string{"get", "create"}, Granted: []string{"get", "create"}, Reason: "guests reach into their pods, over WebSockets and over SPDY",
		}, {
			Part: PartHosting, Group: groupMetrics, Resources: []string{"pods"},
			Verbs: []string{"list"}, Granted: []string{"list"}, Reason: "guests read what their pods use",
		}, {
			Part: PartHosting, Group: groupCore, Resources: []string{"pods/ephemeralcontainers"},
			Verbs: []string{"patch"}, Granted: []string{"patch"}, Reason: "guests debug their pods",
		}, {
			Part: PartHosting, Group: groupCore, Resources: []string{"resourcequotas"},
			Verbs: []string{"list", "watch"}, Reason: "follows what guests are held to",
		}, {
			Part: PartHosting, Group: groupCore, Resources: []string{"resourcequotas"}, Names: []string{"liqo-offer"},
			Verbs: []string{"create", "patch"}, Reason: "holds guests to what they were offered",
		}, {
			Part: PartHosting, Group: "networking.k8s.io", Resources: []string{"networkpolicies"},
			Verbs: []string{"list", "watch"}, Reason: "follows whom guests reach",
		}, {
			Part: PartHosting, Group: "networking.k8s.io", Resources: []string{"networkpolicies"}, Names: []string{"liqo-guests"},
			Verbs: []string{"create", "patch"}, Reason: "keeps guests away from everybody's pods and from the LAN",
		}, {
			Part: PartHosting, Group: groupRBAC, Resources: []string{"roles", "rolebindings"},
			Verbs: []string{"list", "watch"}, Reason: "follows what guests may do",
		}, {
			Part: PartHosting, Group: groupRBAC, Resources: []string{"roles", "rolebindings"}, Names: []string{"liqo-consumer"},
			Verbs: []string{"create", "patch"}, Reason: "lets guests into their own namespaces",
		}, {
			Part: PartHosting, Group: groupRBAC, Resources: []string{"rolebindings"}, Names: []string{"liqo-consumer"},
			Verbs: []string{"get", "delete"}, Reason: "and out again",
		}, {
			Part: PartHosting, Group: groupCore, Resources: []string{"serviceaccounts"}, Names: []string{"default"},
			Verbs: []string{"get"}, Reason: "waits for the one that pods need in a new namespace",
		},

		{
			Part: PartBorrowed, Group: groupCore, Resources: []string{"nodes/status", "pods/status"},
			Verbs: []string{"patch"}, Reason: "tells how things stand at the provider",
		}, {
			Part: PartBorrowed, Group: groupCore, Resources: []string{"persistentvolumes"},
			Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}, Reason: "keeps one for each claim at a provider, and hands over those that were made behind claims at home",
		}, {
			Part: PartBorrowed, Group: groupCore, Resources: []string{"persistentvolumeclaims/status"},
			Verbs: []string{"patch"}, Reason: "shows how large a claim at a provider is after it has grown",
		}, {
			Part: PartBorrowed, Group: groupCore, Resources: []string{tokens},
			Verbs: []string{"create"}, Reason: "asks for the service account tokens of pods at providers, where a namespace has the label liqo.io/tokens=true",
		}, {
			Part: PartBorrowed, Group: groupCore, Resources: []string{"pods/eviction"},
			Verbs: []string{"create"}, Reason: "drains a virtual node before it goes",
		}, {
			Part: PartBorrowed, Group: "coordination.k8s.io", Resources: []string{"leases"}, Namespace: "kube-node-lease",
			Verbs: []string{"get", "create", "patch", "delete"}, Reason: "keeps virtual nodes alive",
		}, {
			Part: PartBorrowed, Group: groupAdmission,
			Resources: []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}, Names: []string{vnode.OffloadingName},
			Verbs: []string{"get", "list", "watch"}, Reason: "looks whether pods are let on virtual nodes where a namespace says so",
		}, {
			Part: PartBorrowed, Group: groupAdmission, Resources: []string{"mutatingwebhookconfigurations"},
			Verbs: []string{"create"}, Reason: "does the same where the API server has no such policies",
		}, {
			Part: PartBorrowed, Group: groupAdmission, Resources: []string{"mutatingwebhookconfigurations"}, Names: []string{vnode.OffloadingName},
			Verbs: []string{"get", "list", "watch", "update", "delete"}, Reason: "and keeps that as it is to be",
		}, {
			Part: PartBorrowed, Group: groupCSR, Resources: []string{"certificatesigningrequests"},
			Verbs: []string{"get", "list", "watch", "create", "delete"}, Reason: "asks for the certificate of the kubelet API, for kubectl logs and exec",
		}, {
			Part: PartBorrowed, Group: groupCSR, Resources: []string{"certificatesigningrequests/approval"},
			Verbs: []string{"update"}, Reason: "approves that request, as nobody else would",
		}, {
			Part: PartBorrowed, Group: groupCSR, Resources: []string{"signers"}, Names: []string{"kubernetes.io/kubelet-serving"},
			Verbs: []string{"approve"}, Reason: "for this signer only",
		}, {
			Part: PartBorrowed, Group: "authentication.k8s.io", Resources: []string{"tokenreviews"},
			Verbs: []string{"create"}, Reason: "asks who calls the kubelet API",
		},
	}
}
