// Package cli is the command line: it parses arguments, asks the running agent
// over its control socket (or reads its database when none runs), and renders
// the answers for people and for scripts. docs/cli.md is its contract.
//
// It decides nothing about peers, and it never writes to the database. Nothing
// in it exits the process: App.Run returns an error, and Report turns that into
// two lines and an exit code. Text that came from the network is never written
// to a terminal as it is.
//
// Goroutines: commands run on the caller's goroutine. Only scan has some of its
// own, which all end before the command returns.
package cli
