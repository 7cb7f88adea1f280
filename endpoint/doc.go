// Package endpoint is the one HTTPS port of a cluster, and the client that asks
// a peer's port who is there.
//
// Server answers GET /ids with the cluster's identity, for anyone. It speaks
// TLS 1.3 and HTTP/1.1, shows a certificate issued by the cluster key, and asks
// for a client certificate without requiring one; one that is shown must verify.
// Everything a stranger can use up is bounded: connections in total and per
// source address, processors busy with handshakes, time, header and body sizes.
//
// Client.Identify connects to every address a peer may have, checks the key
// behind the TLS connection before it sends anything, and returns what the
// peer says about itself.
//
// # Design choices, measured
//
// Between peers that know each other's fingerprint, the dates in certificates
// are not looked at (package trust says why).
//
// The client offers X25519 and not the hybrid X25519MLKEM768, which costs it
// 45 % and the server 25 % more CPU for a handshake, and more than a kilobyte
// each way: what the client fetches is public, so there is nothing to decrypt
// later. (P-256 is 14 % cheaper than X25519 on 64-bit processors and 40 %
// dearer on the 32-bit ones, which are the slow ones.) The server takes both, so
// that traffic worth protecting for decades can be.
//
// The client keeps a bounded number of connections open, one per peer, for the
// next check of the same peer: asking again on one costs a fifth of the CPU of a
// new connection and is just as good a proof, and with a hundred neighbours
// checked every 30 seconds that is most of what an idle agent does. An idle
// connection pins 37 KB on the two ends together, though, so beyond that number
// peers are connected to anew, with a resumed TLS session of 1.8 KB at the client
// and nothing at the server. The client writes its request by hand and reads the
// answer with http.ReadResponse: a transport per peer, each with a pool and two
// goroutines per connection, would cost more than it saves. It also makes plain
// that there is no proxy, no redirect and no decompression.
//
// The server speaks HTTP/1.1 only. HTTP/2 would let one connection hold a
// hundred requests and pay off only for the proxied API server.
//
// # What this package must not do
//
// It trusts nobody: which fingerprint belongs to a peer is decided elsewhere,
// and what Identify learns is an observation. It stores nothing on disk.
//
// # Goroutines
//
// Server.Run owns one goroutine that accepts and one per connection, all ended
// when Run returns. Client has none of its own: Identify starts one per address
// it tries at the same time and returns after the last of them has ended.
package endpoint
