// Package client calls the control socket of a running agent, for the command line and
// doctor.
//
// Goroutines: it starts none. A Client is safe for concurrent use.
package client
