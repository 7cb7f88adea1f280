// Package integration tests package admission against a real API server that
// asks it. It holds no code but its tests, apart from those of package admission
// because these need a bed of network namespaces.
package integration
