// Package supervise runs the long-running parts of the agent, and restarts those that
// fail. It counts the restarts, and reports a part that fails as a health problem. It
// does not know what the parts do.
//
// Goroutines: Supervisor.Run starts one per part, and waits for all of them.
package supervise
