// Package fields says who owns which field of the objects about peers: it has the names
// of the agent's field managers, and reads from metadata.managedFields what people set.
//
// A time in managedFields is only known to the second. [Follow] therefore compares an
// owner with the one before, and gives edits within the same second stamps of their own.
//
// It is pure: no I/O, no state, no goroutines. What follows from an edit is decided by
// package plan.
package fields
