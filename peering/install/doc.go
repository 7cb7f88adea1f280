// Package install is what the agent needs in the local API server for itself, and what it
// leaves there: the custom resource definitions, the configuration of the admission
// webhook, and the ConfigMap with the cluster's ID.
//
// A [Keeper] keeps these in place while there is a connection. [Uninstall] deletes
// everything that the agent made, also the objects about peers, which others keep, and
// [Inventory] says what that would be. [ClusterIDFromAPI] and [ClaimClusterID] read and
// write the cluster's ID when no agent works yet.
//
// # What it must not do
//
// It never writes what is there already; in steady state nothing is sent but one look per
// interval. It never overwrites the ID of another cluster unless it is told to, nor
// definitions of a newer agent, nor takes fields from others in what others brought.
// Uninstall keeps what people wrote unless it is told to take that as well.
//
// # Goroutines
//
// It starts none that outlive a call. [Keeper.Run] works until its context ends.
package install
