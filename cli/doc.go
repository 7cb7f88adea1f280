// Package cli is the command line: it parses arguments, asks the running agent
// over its control socket (or reads its database when none runs), and renders
// the answers for people and for scripts. docs/cli.md is its contract.
//
// It decides nothing about peers, and it never writes to the database: what a
// person decides, it tells the agent, and asks again where a key has to be
// confirmed. Nothing in it exits the process: App.Run returns an error, and
// Report turns that into two lines and an exit code. Text that came from the
// network is never written to a terminal as it is.
//
// Goroutines: commands run on the caller's goroutine. scan, and what waits for a
// peering, have some of their own, which all end before the command returns. A
// goroutine that waits for an answer on standard input ends with the process
// when the question is interrupted.
package cli
