// Package frame puts packets and messages on a byte stream, such as a TLS
// connection, and takes them off again.
//
// A frame is a header of 4 bytes and a payload: the type in one byte, and the
// length of the payload in three, most significant first.
//
//	type       payload
//	1 Packet   a virtio-net header and an IP packet, as in network/packet
//	2 Control  a JSON message of at most 4096 bytes
//	3 Probe    8 bytes that mean something to the sender only
//	4 Echo     the 8 bytes of a Probe, sent back
//
// Types from 128 on may be added without a new version: who does not know one
// passes over it. An unknown type below 128 ends the stream, as does a length
// that the type cannot have. What is passed over may not be longer than a packet.
//
// The package does not look into payloads: packets are checked by
// network/packet. It starts no goroutines. A Reader belongs to one goroutine.
package frame
