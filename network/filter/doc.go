// Package filter translates and filters the traffic between this node's pods and
// the pods of peers, in nftables tables of its own: "ip liqo" and "ip6 liqo".
//
// All traffic between clusters passes one network device. Clusters use the same
// ranges for their pods, so each side chooses a block of addresses that stands for
// the peer's pods here (Peer.Theirs), and the peer chooses one for ours (Peer.Ours).
// A packet to the peer leaves with its source in Ours and its destination in Theirs.
// Blocks need not be unique beyond one side: two peers may choose the same Ours, or
// one that is another peer's Theirs. Destinations are therefore translated by the
// pair of source and destination.
//
// What is not granted is dropped. Grants name addresses as this node's pods see
// them: their own, and those in Theirs. A connection may go on only while it is
// granted: entries of connection tracking that no grant allows any more are deleted.
// Packets from or to a block by any other interface than the device are dropped,
// so that nobody on the LAN can pretend to be a peer, or reach one through this node.
//
// The rules stand beside those of kube-proxy, flannel, kube-router and others, which
// they neither read nor change. Destinations are translated before theirs
// (priority -105), sources too (95), and no packet mark is used. An accept here only
// ends our own chain: other tables may still drop the packet. Only packets that come
// from or go to the device, or have an address in a block, are touched, and those with
// which a guest (Desired.Guests) begins something.
//
// Requires Linux 5.8 (translation of whole prefixes) and CAP_NET_ADMIN.
//
// The package must not know what a pod is, create the device, or add routes.
// It starts no goroutine. Watch blocks its caller; the other methods may be called
// from any goroutine.
package filter
