// Package ifwatch tells which network links the agent may use now, and which
// addresses they have.
//
// A message from the kernel's netlink socket only means "look again": the
// watcher then reads the whole state, leaves out what the filter and the
// link's own nature forbid, compares the result with the one before, and
// publishes an immutable Snapshot when they differ. Losing or merging messages
// is therefore harmless. It works without privileges.
//
// Left out are links that are down or have no carrier, that cannot multicast,
// that are ports of a bridge or bond (the master is the link to use), and,
// unless the user names them, tunnels and container plumbing: every K3s box
// has the same 10.42.0.1 on cni0, so such an address must never be announced.
//
// On request (FollowGateways) links also tell the routers of their default routes
// and these routers' hardware addresses, by which networks with the same
// addresses can be told apart. What the kernel knew of a neighbour before a link
// lost its carrier is not believed afterwards. Messages about other neighbours
// and routes, which come often, are passed over without a look.
//
// The package must not configure anything, and it holds no opinion about what
// a link is used for. It sends nothing, except an empty datagram now and then to
// a router whose hardware address is wanted and not known.
//
// Goroutines: Run is the only writer of the published snapshot; it starts one
// helper, which blocks on the netlink socket, and another one while gateways are
// followed, and waits for both before it returns. Every other method may be
// called from any goroutine.
package ifwatch
