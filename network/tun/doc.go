// Package tun owns the TUN device of the path between clusters: it creates the
// device, and moves frames between it and its caller. Package netdev keeps its
// settings, addresses and routes.
//
// The device is persistent. It stays, with addresses and routes, when the
// process ends in whatever way, and the next Open adopts it, so that connections
// through it only pause. Remove deletes it.
//
// Frames carry a virtio-net header in little endian, as network/packet has them,
// and are superpackets of up to 64 KiB where the kernel has not cut them yet.
//
// # Goroutines
//
// The package starts none. Read and Write may be called at the same time, each
// from one goroutine; all other methods from any. All messages to the kernel go
// through sockets that Open made, so the network namespace is that in which Open
// was called; only Watch listens in that in which it is called.
package tun
