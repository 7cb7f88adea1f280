// Package problems detects the health problems of the agent, and reports when they begin
// and end: once each in the log, to the service manager and in the ClusterConfig.
//
// Package health declares the problems, and its Tracker holds those that are active. A
// [Monitor] reads the state of the parts, and updates the Tracker; it repairs nothing.
//
// Goroutines: Monitor.Run is one, for as long as its session. Everything else may be
// called from any goroutine.
package problems
