// Package endpointtest is what the tests of packages below endpoint have in common:
// clusters with keys, peers that misbehave, and requests to a provider. It knows
// neither the server nor the client, so that the tests of both can use it.
//
// # Goroutines
//
// A listener has one that accepts and one for each connection; the first has ended
// when the test ends.
package endpointtest
