// Package packet checks the frames that a peer sends before they are written to
// a TUN device.
//
// A frame is a struct virtio_net_hdr of 10 bytes and one IP packet, as a TUN
// device with IFF_VNET_HDR hands it out and takes it. All fields of the header
// are little endian. That is what the device uses on every architecture after
// TUNSETVNETLE, and network/tun sets it; without it they would be in the byte
// order of the machine, and two machines could not exchange frames.
//
// The header tells the kernel where a checksum is missing and how to cut a
// superpacket into segments. The kernel believes much of that, so a peer that
// writes it could have our kernel write a checksum anywhere into a packet, cut
// one frame into tens of thousands of packets, or carry past a filter what the
// filter did not see. Check therefore accepts only what a kernel produces for
// IPv4 and IPv6, and what such a frame says about itself must agree with the
// packet in it.
//
// The package does no I/O, keeps no state, and does not know who may use which
// address: callers compare what Info holds with what they gave the peer. It
// starts no goroutines, and its functions may be called from any.
package packet
