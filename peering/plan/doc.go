// Package plan decides what to do about one peer.
//
// [Plan] takes an [Observed] value, which holds everything that is known about the
// peer: what the registry saw, the objects in the local API server, the last answer of the
// peer, and the [Policy] of people and configuration. It returns a [Decision]: ordered
// actions on the local API server and on the decision store, the desired state of our
// objects in the peer's cluster, and when to reconcile again. [Observed.View] and
// [Observed.Answer] describe the state of the peering to people and to the peer.
//
// Everything that follows from an Observed is derived once, in one value: the intent, the
// outgoing peering (we consume the peer's resources) and the incoming one (it consumes
// ours). Actions, conditions, View and Answer all read that value, so they never disagree.
// This is why the package is larger than others: its files are methods of that one value.
// What does not need it is in packages fields, reason and discovered.
//
// # What it must not do
//
// It does no I/O, reads no clock and keeps no state: the same arguments give the same
// decision, and it does not change them. So a test simulates days of two clusters, with
// faults, in a second. Unknown is never gone: an API server or a peer that does not answer
// leads to no destructive action. If nothing has to change, there are no actions.
//
// # Goroutines
//
// It starts none. Every function may be called from any goroutine.
package plan
