// Package network connects the pods of this cluster with those of peers: it carries IP
// packets between a network device here and one there, over connections that the caller
// makes or accepts (TLS, with both keys proved).
//
// # How a packet goes
//
// The kernel routes the addresses that stand for a peer's pods here (Blocks.Theirs) to the
// device, and translates the source on the way (package filter). The engine reads the
// packet, finds the peer by its destination, and puts it on the peer's stream. The peer's
// engine checks it (package packet, and that source and destination are addresses that
// were agreed on), and writes it to its device, behind which its kernel translates the
// destination.
//
// Blocks are chosen by each cluster for itself, so nothing has to be unique anywhere else:
// both ends may use the same ranges. They are stored, so that a pod is known by the same
// address after a restart.
//
// # Paths
//
// A path is the way to one peer. It has one stream, which either side may open, so it is
// enough if one of them can connect to the other. If both do at the same time, the stream of
// the cluster with the lesser ID counts. A path is Connected when a probe was answered on its
// stream, and device and tables know the blocks. Without an answer for six seconds it is
// Silent: another stream is tried, and the first one that works is used.
//
// What waits for a stream is bounded, and what comes beyond that is dropped, so that a peer
// that takes nothing keeps nobody else waiting.
//
// When Run ends, device, routes and tables stay, and so do the connections of pods, which
// go on with the next Run. What is left of peers that nobody wants goes once
// [Engine.Settled] was called.
//
// The tables also bound what guests open ([Engine.SetGuests]): while there are some, they are there without a device, too,
// whether or not anybody is connected.
//
// # What this package must not do
//
// It knows nothing of Kubernetes, of trust, or of where a peer is.
//
// # Goroutines
//
// Run has one that reads the device, two that watch the kernel, one for each path and
// its attempt to connect, and two for each stream; all have ended when it returns.
package network
