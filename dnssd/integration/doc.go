// Package integration tests dnssd against the real BIND 9, in network namespaces of
// its own (package internal/bed).
package integration
