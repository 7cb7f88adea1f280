// Package netdev keeps a network device of ours as it is wanted: its settings, its
// addresses, and the routes through it.
//
// # What is ours
//
// The device with all its addresses and settings, and the routes through it that
// have our routing protocol number. Routes of others are never changed or
// replaced, nor are any sysctls that are not the device's own. What belongs to
// the device is set by netlink and not below /proc/sys, which the unit of the
// agent has read-only.
//
// # Goroutines
//
// The package starts none. Methods may be called from any goroutine once Attach
// has returned. All messages to the kernel go through sockets that New made, so
// the network namespace is that in which New was called; only Watch listens in
// that in which it is called.
package netdev
