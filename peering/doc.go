// Package peering keeps the ForeignClusters of the local API server equal to
// what the registry of peers knows.
//
// A [Controller] waits for an API server as long as it takes, installs the
// custom resources, publishes the cluster's ID, and then runs one reconcile per
// cluster ID: gather an [Observed] value, ask the pure function [Plan] what to
// do, do it. Everything is level-triggered: a call of Enqueue, a watch event or
// a timer says only "look at this cluster again".
//
// # Who owns which field
//
// Discovered fields (spec.clusterIdentity, namespace, authUrl, discoveryType,
// status.fingerprint, status.ttl and the conditions Reachable, Verified and
// Conflict) are written by server-side apply as [ManagerDiscovery]. On an object
// that the agent created they follow what the peer proves, so an edit by hand is
// put right; whoever wants to keep an edit takes the object over by removing one
// of the agent's two labels (see api.LabelManagedBy). On every other object only
// the status is written. spec.join, spec.trustMode and all other labels and
// annotations belong to the user and are never written. What the agent has
// nothing to say about yet (role, modules, authStatus) comes from the defaults in
// the schema and costs no write.
//
// # What it must not do
//
// It never takes "cannot read" for "gone": an object is deleted only when the
// registry is settled and says that the peer is lost, when the agent created it,
// and when nobody asked to join it. It never writes what is there already. It
// does not decide whether a peer is present; the registry does.
//
// # Goroutines
//
// Run starts all of them and waits for them: while there is a connection, one
// that feeds the cache (list and watch), a few workers, one that keeps the
// custom resources and the ConfigMap in place, and one that looks for a changed
// kubeconfig. Enqueue and Status may be called from any goroutine at any time.
package peering
