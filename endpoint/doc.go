// Package endpoint is the one HTTPS port of a cluster, and the client that asks
// a peer's port who is there.
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
// and answered with a Refusal that says what to do.
//
// Client.Identify connects to every address a peer may have, checks the key
// behind the TLS connection before it sends anything, and returns what the
// peer says about itself. Client.Exchange does the same for a call to a peer whose
// key is trusted. Both follow a key that shows to have succeeded the expected one,
// and say so. A Link is the way to the API server of one peer: an
// http.RoundTripper, and connections that are upgraded.
//
// # Design choices, measured
//
// Between peers that know each other's fingerprint, the dates in certificates
// are not looked at (package trust says why).
//
// A connection of the client is made for checks or for calls. One for checks
// offers X25519 and not the hybrid X25519MLKEM768, which costs the client 45 % and
// the server 25 % more CPU for a handshake, and more than a kilobyte each way: what
// a check fetches is public, so there is nothing to decrypt later. (P-256 is 14 %
// cheaper than X25519 on 64-bit processors and 40 % dearer on the 32-bit ones,
// which are the slow ones.) It shows no certificate of ours either, which would
// make the session at both ends larger by half, and tell whoever answers who asks.
//
// One for calls offers the hybrid first and shows our certificate: through the
// gateway goes what may be worth recording today and decrypting in decades. A full
// handshake with certificates from both sides costs both ends together 1.1 ms of
// CPU on a machine where one for a check takes 0.85 ms, a resumed one 0.7 ms
// instead of 0.55 ms, and a call on a kept connection 25 us. Peers in contact keep
// theirs, so that is paid once when they meet. A connection for calls serves checks
// too, and takes the place of one for checks among those that are kept; the other
// way round it cannot be: TLS 1.3 shows certificates once, in the first handshake
// of a session, and so a session that a check began is not resumed for calls. One
// in which we showed something that is no longer so (another key or cluster ID, a
// succession or fleet certificate fewer) is not used for calls either.
//
// The client keeps a bounded number of connections open, one per peer, for the
// next check or call: asking again on one costs a fifth of the CPU of a new
// connection and is just as good a proof, and with a hundred neighbours checked
// every 30 seconds that is most of what an idle agent does. An idle connection pins
// 37 KB on the two ends together, though, so beyond that number peers are connected
// to anew, with a resumed TLS session of 1.8 KB at the client (2.5 KB for calls)
// and nothing at the server. All sessions together are bounded in bytes as well,
// because successions and fleet certificates make them larger, and strangers could.
// A kept connection may have died meanwhile. For a check an answer is waited for a
// second; an API server may take longer than that, so a call gives up when the
// kernel at the other end does not even acknowledge it for a second, and is then
// made again: nothing in protocol.go means something else the second time.
//
// The client writes its requests by hand and reads the answers with
// http.ReadResponse: a transport per peer, each with a pool and two goroutines per
// connection, would cost more than it saves. It also makes plain that there is no
// proxy, no redirect and no decompression.
//
// To strangers the server speaks HTTP/1.1 only. HTTP/2 lets one connection hold
// hundreds of requests, which pays off for a known peer that works in its
// namespaces here: it watches half a dozen kinds and sends a burst of pods. So a
// connection of HTTP/1.1 becomes a tunnel, of HTTP/2 with prior knowledge, once its
// owner is known (GET /peering/tunnel), and nothing of HTTP/2 is within the reach of
// others. A request in a tunnel goes the same way as any other: it is admitted anew
// and limited, and a peer that is not known any more loses its tunnels at once or
// within 30 seconds. A GET of 2 KB through a warm tunnel takes 0.35 ms on a machine
// with two processors and ten things to do for each, 130 allocations and 17 KB of
// garbage at both ends together. A tunnel without requests pins 125 KB at both ends
// together, most of it buffers of TLS and HTTP/2: for ten providers that is less
// than a megabyte.
//
// What nobody reads is held back by windows: 256 KiB for one answer in a tunnel, as
// much as that for each of the requests that a peer can have under way, so that a
// followed log that somebody stopped to read cannot keep a watch waiting. That is
// also all that a hostile provider can make us keep, 24 MiB. At the provider, an
// answer of the API server passes through a few kilobytes, whatever its size.
//
// A write that fails ends a connection for good, and with a reset. crypto/tls would
// still send its farewell behind the gap, as a record that the other end cannot
// decrypt: a peer that is slow would look like one that is tampered with. The server's
// deadlines are for others: a write that is late because this machine has too much to
// do goes out all the same, if there is room for it.
//
// Requests about a peer's namespaces have a rate of their own, 200 a second after a
// burst of 600, and wait for their turn up to five seconds before they are refused:
// 500 pods at once get through, 32 at a time. A reservation of http2.ClientConn is
// not used for that: those that wait would count against the limit they wait for.
// What is written for a peer is bounded by the minute as well, in number and bytes
// (limits.go): each revision of an object stays in the datastore for minutes.
//
// # The gateway
//
// A request to the API server is decided on by its method and its path as it was
// sent, byte for byte: there is one spelling of each path, so there is nothing to
// normalise. What is then sent is made from the table of routes alone: the path,
// query and header are ours, and a body is decoded, checked and encoded anew, so
// that a reader with other rules for names that occur twice, or for YAML, sees
// what was checked. There are two tables. In allowlist.go are a peer's own
// PeeringRequest and Advertisement. In guestroute.go are pods with their subresources,
// ConfigMaps, Secrets and events in the namespaces that Guests says are the peer's;
// Guests also makes the bodies that are sent. Lists, watches and logs are streamed,
// and one that breaks off never looks complete. Commands and forwarded ports take a
// connection of their own, which after the answer 101 carries bytes both ways.
//
// The API server's answer gives its status, Retry-After and its
// JSON. An answer that is no statement about an object (a redirect, a page, a
// refusal of the agent's own credentials) becomes a Refusal: "unreachable" must not
// look like "gone". About namespaces, a refusal has the form of the API server's
// own, metav1.Status, and is never NotFound.
//
// # What this package must not do
//
// It trusts nobody: which fingerprint belongs to a peer is decided elsewhere,
// and what Identify learns is an observation. It stores nothing on disk.
//
// # Goroutines
//
// Server.Run owns one goroutine that accepts, one that looks again at what lasts,
// one per connection, and in a tunnel one per request besides those of HTTP/2; an
// upgraded connection has two. All have ended when Run returns. The goroutine of a
// request calls Peers, Gateway and Guests.
// Client has none of its own: Identify and Exchange start one per address they try
// at the same time and return after the last of them has ended. A Link has one while
// it makes a tunnel, those of HTTP/2 while there is one, and one for each tunnel
// that is about to end; they end with Close.
package endpoint
