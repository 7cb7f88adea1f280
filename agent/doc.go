// Package agent wires the parts into one running daemon and owns their lifetimes: it
// opens the state, builds the parts of a session, connects them, and rebuilds them when
// the ID or the key of this cluster or settings of them change.
//
// It holds no protocol and no decision: those live in the packages that it wires.
// Nothing below it may import it.
//
// Goroutines: Run runs the parts under package supervise, and waits for all of them
// before it returns.
package agent
