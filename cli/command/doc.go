// Package command runs a tree of commands: it reads a command line, finds the
// command, offers completions for a shell, and reports errors with an exit code.
// Commands are values of type Command, which the packages of the nouns declare.
//
// It knows what commands have in common: where the agent and its database are,
// how to ask a person, how long to wait. It knows no command itself.
//
// Goroutines: one that reads a line from standard input. It ends with the process
// when the question is interrupted.
package command
