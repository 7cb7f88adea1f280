// Package integration tests package workload against a real API server, which
// stands for both clusters. It holds no code but its tests, apart from those of
// package workload because these need a bed of network namespaces.
package integration
