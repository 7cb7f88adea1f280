// Package plan decides what is to be done about one peer.
//
// [Plan] takes an [Observed] value, which holds everything that is known about the
// peer: what the registry saw, the objects in the local API server, what its side
// said, and the [Policy] that people and the configuration decided on. It returns a
// [Decision]: actions on the local API server and on the decision store in their order, the
// desired state of our objects in the peer's cluster, and when to look again.
// [Observed.View] and [Observed.Answer] say to people and to the peer how the peering
// stands.
//
// Everything that follows from an Observed is derived once, in one value: the intent,
// the outgoing peering (we consume the peer's resources) and the incoming one (it
// consumes ours). Actions, conditions, View and Answer all read that value, so that
// what is done, what is shown and what the peer is told never disagree. This is why
// the package is larger than others: its files are parts of one decision.
//
// # What it must not do
//
// It does no I/O, reads no clock and keeps no state: the same arguments give the same
// decision, and nothing that it is given is changed. That makes days of two clusters,
// with faults, a second of test. It takes nothing for gone because it is not known:
// an API server or a peer that does not answer leads to no destructive action. Where
// nothing is to be changed, it returns no actions.
//
// # Goroutines
//
// It starts none. Every function may be called from any goroutine.
package plan
