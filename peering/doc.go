// Package peering is the operator: it keeps the objects about peers in the local
// API server equal to what the registry of peers knows and the decision store of
// decisions says, and has package remote keep ours at the peers.
//
// A [Controller] waits for an API server as long as it takes (package conn), has package
// install put in place what the agent needs there, and then runs one reconcile per
// cluster ID: gather a [plan.Observed] value, ask the pure function [plan.Plan] what
// to do, do it. Everything is level-triggered: a call of Enqueue, a watch event, an
// answer of a peer or a timer says only "look at this cluster again". Package config
// follows SearchDomains and the ClusterConfig.
//
// It is larger than other packages because a reconcile is one thing: a session, which
// reads all caches, and the memory of each peer, which outlives it, serve every step of
// it, in both directions of the peering.
//
// # Who owns which field
//
// Everything is written by server-side apply, with one field manager per owner
// of fields, so that "kubectl get -o yaml --show-managed-fields" tells who set
// what. On ForeignClusters:
//
//   - [fields.ManagerDiscovery]: what was discovered (spec.clusterIdentity, namespace,
//     authUrl, discoveryType, status.fingerprint, status.ttl and the conditions
//     Reachable, Verified, Conflict and AuthURL). On an object that the agent
//     created they follow what the peer proves; whoever wants to keep an edit takes
//     the object over by removing one of the agent's two labels (see
//     api.LabelManagedBy). On every other object only the status is written, and
//     what its author left out of clusterIdentity and namespace when only its
//     authUrl says which cluster it is about.
//   - [fields.ManagerIntent]: spec.join and spec.trustMode, where the agent set them
//     because of the command line, the configuration or the provider. A person who
//     sets them owns them from then on, and the decision store is told.
//   - [fields.ManagerForeignCluster]: the finalizer, and in the status everything about
//     the peering but the next two.
//   - [fields.ManagerPeeringRequest]: status.incoming.peeringRequest, and the status of
//     PeeringRequests.
//   - [fields.ManagerAdvertisement]: status.outgoing.advertisement, and the status of
//     Advertisements, but for status.advertisementStatus once a person decided:
//     that is theirs who set it, and [fields.ManagerIntent]'s after a command. Such a
//     decision goes before sharing.accept_policy, belongs to that Advertisement and
//     ends with it.
//
// The Secrets with the peers' identities, and the roles that let each peer reach its own
// PeeringRequest and Advertisement, are kept by package access.
//
// # Objects that people write
//
// One that says only where a cluster is has no cluster ID by which it could be
// reconciled. Its URL is handed to [URLProber], and when somebody answers there the ID
// is filled in; until then a queue of its own, by name, looks at it. As soon as a
// person's object is about a cluster, it counts: what was wanted and what was shown
// moves to it from the agent's own, and that one goes. Of several the oldest counts,
// and the others say so. A default that the API server filled in is no decision of
// anybody's, although it belongs to whoever created the object.
//
// # Who deleted it
//
// A person who deletes a peer's PeeringRequest ends the peering for good, the peer itself
// does not: deletions of our own and those that come through the gateway are noted in a
// [deletion.Tracker] before they are carried out.
//
// # Pods at a provider
//
// [Sharing] makes a node of each provider that is used. A peering that ends on our
// side is undone in order: the node is drained while our request, the offer and
// everything else stay, and only then the provider is asked to let go. That is
// bounded by sharing.drain_timeout and a minute, and nobody waits for a provider
// that is given up. What the provider does not say is not so: a node stays while it
// is merely unknown whether the provider still serves us.
//
// # What it must not do
//
// It never takes "cannot read" for "gone": nothing is deleted because it could not
// be listed, because the API server was restored from a backup, or because a peer
// does not answer. It never writes what is there already; in steady state nothing
// is sent but one look at what is installed per minute. It does not decide whether
// a peer is present, trusted or welcome: the registry and the decision store do.
//
// # Goroutines
//
// Run starts all of them and waits for them: the one that talks to the peers; and
// while there is a connection to the API server one for each kind of object that
// feeds its cache (list and watch), a few workers, one that looks at the objects
// that people wrote, one for the [install.Keeper], one that works out what there is to
// offer, and, while there is a consumer, two that follow the pods of the cluster for it;
// those of [config.Domains] and [config.Settings]; one that writes Events, for which nobody
// waits; one that asks for the API server's version once.
// The exported methods may be called from any goroutine at any time.
package peering
