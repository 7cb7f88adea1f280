// Package discovered says what a ForeignCluster is to show of discovery: the fields that
// fields.ManagerDiscovery owns.
//
// An object that the agent created follows what the peer proves. Of an object that a person
// wrote, only the identity is completed, and its status says who answers at its URL.
// Wording alone is no change: a check that fails for another reason than the one before
// is the same observation.
//
// It is pure: no I/O, no clock, no goroutines. When something is written is decided by
// package plan.
package discovered
