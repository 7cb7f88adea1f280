// Package integration tests package host against a real API server with its
// controllers, in whose place consumers try everything that they should not be able
// to do. It holds no code but its tests, apart from those of package host because
// these need a bed of network namespaces.
package integration
