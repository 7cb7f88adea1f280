// Package integration tests offload between two real API servers with their
// controllers and schedulers. The endpoint between them is a double: the way to
// the provider is an ordinary transport with impersonation.
package integration
