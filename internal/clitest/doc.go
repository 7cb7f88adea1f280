// Package clitest is a machine for tests of the command line: with an agent that
// answers from memory, or without one, and with people who type.
package clitest
