// Package integration has the tests of package network that need a kernel with WireGuard.
package integration
