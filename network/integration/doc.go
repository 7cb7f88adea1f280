// Package integration has the tests of package network with its endpoint and devices in namespaces: those that need a kernel with
// WireGuard run in a virtual machine.
package integration
