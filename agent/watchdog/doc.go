// Package watchdog tells the service manager whether the agent is ready, whether it is
// alive, and its status in one line. The agent counts as alive while all owners of state
// answer. Without a service manager, it only counts the sessions.
//
// Goroutines: Watchdog.Start starts two. Everything else may be called from any
// goroutine, and does not block.
package watchdog
