// Package peers is the commands about other clusters: who is there, what happened,
// connect and disconnect, accept and reject, trust, preferences. It reads the
// database when no agent runs.
//
// Goroutines: a command that waits follows the peer on one of its own, which ends
// before the command returns.
package peers
