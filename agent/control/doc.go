// Package control has the types of the control socket, which are the documented JSON
// contract of the command line (docs/cli.md): fields are added, never renamed or removed.
// It also has their validation, the errors that pass the socket, and how people name
// peers.
//
// It does no I/O and starts no goroutine.
package control
