// Package cli is the command line: the tree of all commands, and those of nouns
// that fill no package. docs/cli.md is its contract.
//
// Below it, command reads command lines and reports errors, render writes output,
// and each larger noun (peers, domains, adverts, network, status, scan, config)
// has a package. Commands ask the running agent over its control socket, or read its
// database when none runs.
//
// It decides nothing about peers, and never writes to the database: decisions go to
// the agent. Nothing in it exits the process: App.Run returns an error, and
// command.Report turns that into two lines and an exit code.
package cli
