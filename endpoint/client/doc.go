// Package client asks peers' endpoints who they are, and calls those whose key is
// trusted.
//
// Client.Identify connects to every address a peer may have, checks the key
// behind the TLS connection before it sends anything, and returns what the
// peer says about itself. Client.Exchange does the same for a call to a peer whose
// key is trusted, and Client.Dial for a connection that is used otherwise, as by
// package tunnel. All follow a key that shows to have succeeded the expected one,
// and say so.
//
// # Design choices, measured
//
// Between peers that know each other's fingerprint, the dates in certificates
// are not looked at (package trust says why).
//
// A connection is made for checks or for calls. One for checks
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
// instead of 0.55 ms, and a call on an idle connection 25 us. Peers in contact keep
// theirs, so that is paid once when they meet. A connection for calls serves checks
// too, and takes the place of one for checks among those that are idle; the other
// way round it cannot be: TLS 1.3 shows certificates once, in the first handshake
// of a session, and so a session that a check began is not resumed for calls. One
// in which we showed something that is no longer so (another key or cluster ID, a
// succession or fleet certificate fewer) is not used for calls either.
//
// A bounded number of connections is kept idle, one per peer, for the
// next check or call: asking again on one costs a fifth of the CPU of a new
// connection and is just as good a proof, and with a hundred neighbours checked
// every 30 seconds that is most of what an idle agent does. An idle connection pins
// 37 KB on the two ends together, though, so beyond that number peers are connected
// to anew, with a resumed TLS session of 1.8 KB at the client (2.5 KB for calls)
// and nothing at the server. All sessions together are bounded in bytes as well,
// because successions and fleet certificates make them larger, and strangers could.
// One that is idle for longer than a server keeps it gives way to any other.
// An idle connection may have died meanwhile. For a check an answer is waited for a
// second; an API server may take longer than that, so a call gives up when the
// kernel at the other end does not even acknowledge it for a second, and is then
// made again: no call of the protocol means something else the second time.
//
// Requests are written by hand and answers read with http.ReadResponse. net/http could
// do it: http.Transport.NewClientConn leaves the choice of connections to us, bytes can
// be bounded and time ends with the context; headers are bounded by bytes here as there.
// But it needs two goroutines and two buffers for each connection, idle ones too
// (BenchmarkNetHTTP, both ends together): an idle connection takes 58 KB instead of 37 KB,
// a check on it 84 us of CPU instead of 56 us, and a check on a new connection 950 us
// instead of 730 us, which with 1,000 neighbours is most of what an idle agent does. By
// hand it is also plain that there is no proxy, no redirect and no decompression.
//
// # What this package must not do
//
// It trusts nobody: which fingerprint belongs to a peer is decided elsewhere,
// and what Identify learns is an observation. It stores nothing on disk.
//
// # Goroutines
//
// Client has none of its own: Identify, Exchange and Dial start one per address they
// try at the same time and return after the last of them has ended.
package client
