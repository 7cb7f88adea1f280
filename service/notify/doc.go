// Package notify is the running agent's side of sd_notify(3): it tells the service manager that the
// agent is ready, reloads, stops, how it is, and that it is alive.
//
// It must not decide whether the agent is alive: it asks. Without a service manager, when
// NOTIFY_SOCKET is unset, nothing is sent and nothing runs.
//
// Goroutines: none of its own but one per self-check under way, of which there is one at most.
package notify
