// Package integration tests package peering against a real API server, straight
// and through a proxy that injects faults. It holds no code but its tests, apart
// from those of package peering because these need a bed of network namespaces.
package integration
