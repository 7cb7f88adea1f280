// Package integration tests package resolver against BIND 9: as the authoritative server of
// domains with clusters, as a validating resolver, and over TLS. It holds no code but its tests, apart from those of
// package resolver because these need a bed of network namespaces.
package integration
