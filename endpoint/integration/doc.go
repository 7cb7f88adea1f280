// Package integration tests the gateway of package endpoint against a real API
// server, with the client of package endpoint at the other end. It holds no code
// but its tests, apart from those of package endpoint because these need a bed
// of network namespaces.
package integration
