// Package policy builds the policy for decisions about peers, from the configuration with
// its certificates, the search domains, and the networks of the machine. It passes the
// policy to the decision store, and decides nothing itself.
//
// Goroutines: it starts none.
package policy
