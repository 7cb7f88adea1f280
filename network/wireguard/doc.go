// Package wireguard owns the kernel's WireGuard device of the paths between
// clusters: it creates the device, and keeps its peers as they are wanted.
//
// The device stays, with its key, peers and routes, when the process ends in
// whatever way, and the next Open adopts it, so that packets go on without a gap.
// Remove deletes it.
//
// The private key is made by the process that makes the device. It is in the
// memory of the process and of the kernel, and nowhere else: a reboot makes
// another one.
//
// # What this package must not do
//
// It does not know who a peer is, and sends no packet itself.
//
// # Goroutines
//
// The package starts none. The methods may be called from any goroutine. All
// messages to the kernel go through sockets that Open made, so the network
// namespace is that in which it was called.
package wireguard
