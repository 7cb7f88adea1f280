// Package events tells operators by Kubernetes Events what happens to ForeignClusters:
// "kubectl describe fc" and "kubectl events" show them.
//
// [Between] says what happened between two states of a ForeignCluster. Both are in the
// API server, so that nothing is said twice because the agent was started again. A
// [Recorder] writes Events: each once, with a count when it repeats.
//
// # What it must not do
//
// It holds nothing up. An Event that cannot be written is left out, and so is one too
// many when a lot happens at once. It tells of changes, and never of what stays as it is.
//
// # Goroutines
//
// It starts none. Run belongs to one goroutine; Record may be called from any.
package events
