// Package endpoint is the one HTTPS port of a cluster. What is said there is in package
// wire, how no is said in package refusal, who is let in at all in package guard, what
// may be asked of the API server in package allow, and how that is asked in package
// gateway. Who calls the ports of others is package client, and the way to the API
// server of a peer is package tunnel.
//
// Server answers GET /ids with the cluster's identity, for anyone. It speaks
// TLS 1.3 and HTTP/1.1, within a tunnel HTTP/2, shows a certificate issued by the cluster key, and asks
// for a client certificate without requiring one; one that is shown must verify.
// Everything else needs one, and a Peers that says how far its holder may go:
// a stranger may ask to be let in, a known peer may call and reach its own
// objects at the API server through the Gateway. What the certificates prove is
// found out once for a connection; what that is worth is asked for every request,
// so that a decision takes effect at once.
//
// Everything a stranger can use up is bounded: connections in total and per
// source address, the bytes of a handshake, processors busy with handshakes,
// time, header and body sizes, requests a second. A quarter of all places is kept
// for the connections of known peers, which give way last. Known peers are
// bounded too, each for itself. Whatever is refused is counted under a reason,
// and answered with a Refusal that says what to do (package refusal).
//
// # Design choices, measured
//
// To strangers the server speaks HTTP/1.1 only. HTTP/2 lets one connection hold
// hundreds of requests, which pays off for a known peer that works in its
// namespaces here: it watches half a dozen kinds and sends a burst of pods. So a
// connection of HTTP/1.1 becomes a tunnel, of HTTP/2 with prior knowledge, once its
// owner is known (GET /peering/tunnel), and nothing of HTTP/2 is within the reach of
// others. A request in a tunnel goes the same way as any other: it is admitted anew
// and limited, and a peer that is not known any more loses its tunnels at once or
// within 30 seconds. An answer of the API server passes through a few kilobytes,
// whatever its size.
//
// Requests about a peer's namespaces have a rate of their own, 200 a second after a
// burst of 600, and wait for their turn up to five seconds before they are refused:
// 500 pods at once get through, 32 at a time.
// What is written for a peer is bounded by the minute as well, in number and bytes
// (limits.go): each revision of an object stays in the datastore for minutes.
//
// # The gateway
//
// What may be sent to the API server at all, and how, is in package allow. Guests says
// which namespaces are the peer's, and makes the bodies of what is created or changed in
// them. An object there that the peer did not make is none of its business. Lists,
// watches and logs are streamed, and one that breaks off never looks complete. Commands
// and forwarded ports take a connection of their own, which after the answer 101 carries
// bytes both ways.
//
// The API server's answer gives its status, Retry-After and its JSON. About namespaces, a
// refusal has the form of the API server's own, metav1.Status, and is never NotFound.
//
// # Why guests are served here
//
// The package has more than 2,000 lines, a third of them about the namespaces of peers.
// These requests are admitted, limited, read within deadlines and ended early like all
// others: a package of their own would need the budgets, the deadlines, the open streams
// and the reading of bodies below both, and the server would be left with little but TLS.
//
// # What this package must not do
//
// It trusts nobody: which fingerprint belongs to a peer is decided elsewhere. It stores
// nothing on disk, and calls nobody but the local API server.
//
// # Goroutines
//
// Server.Run owns one goroutine that accepts, one that looks again at what lasts,
// one per connection and one per request, in a tunnel besides those of HTTP/2; an
// upgraded connection has two more. All have ended when Run returns. The goroutine of a
// request calls Peers, Gateway and Guests.
package endpoint
