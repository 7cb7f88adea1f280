// Package journal writes the agent's log so that journald takes its levels: sd-daemon(3)'s prefixes, on
// standard error.
//
// It must not talk to journald itself: what is written to standard error also arrives when journald is down, and
// is the same log everywhere else.
//
// Goroutines: none.
package journal
