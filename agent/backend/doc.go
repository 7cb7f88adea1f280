// Package backend answers the control socket, for one session of the agent: it shows
// what the parts know, and carries out the decisions of people with them. It keeps
// nothing itself, apart from a key that is being replaced.
//
// Goroutines: Views.Watch is one, for as long as its session. Everything else may be
// called from any goroutine.
package backend
