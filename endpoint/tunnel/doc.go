// Package tunnel is the way to the API server of one peer: a Link is an
// http.RoundTripper whose requests share one connection of HTTP/2, the tunnel, and
// hands out connections of their own for what is upgraded.
//
// # Design choices, measured
//
// A GET of 2 KB through a warm tunnel takes 0.35 ms on a machine
// with two processors and ten things to do for each, 130 allocations and 17 KB of
// garbage at both ends together. A tunnel without requests pins 125 KB at both ends
// together, most of it buffers of TLS and HTTP/2: for ten providers that is less
// than a megabyte.
//
// What nobody reads is held back by windows: 256 KiB for one answer in a tunnel, as
// much as that for each of the requests that a peer can have under way, so that a
// followed log that somebody stopped to read cannot keep a watch waiting. That is
// also all that a hostile provider can make us keep, 24 MiB.
//
// A reservation of http2.ClientConn is not used for requests that wait for their turn:
// they would count against the limit they wait for.
//
// # What this package must not do
//
// It does not decide where a peer is or whether it is trusted: it is told its target,
// and asks package client for connections.
//
// # Goroutines
//
// A Link has one while it makes a tunnel, those of HTTP/2 while there is one, one for
// each tunnel that is about to end, and one for each upgraded connection; they end with
// Close.
package tunnel
