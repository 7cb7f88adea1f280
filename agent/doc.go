// Package agent wires the parts into one running daemon and owns their
// lifetimes: it decides which cluster this is, opens the state, listens,
// announces, watches links, feeds sightings to the registry and peers to the
// API server, and answers the control socket.
//
// It holds no protocol and no decision of its own: those live in the packages
// it wires. Nothing below it may import it.
//
// Goroutines: Run starts one per part under a supervisor that restarts a part
// which failed, with backoff, and waits for all of them before it returns.
package agent
