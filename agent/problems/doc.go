// Package problems looks what is the matter with the agent and tells of what begins and
// ends: in the log once each, to the service manager and in the ClusterConfig.
//
// What problems there are is declared in package health, whose Tracker keeps those that
// are there now. A [Monitor] asks the parts of the agent what they know and says so to
// the Tracker; it must not mend anything.
//
// Goroutines: Monitor.Run is one, for as long as its session. Everything else may be
// called from any goroutine.
package problems
