// Package domains decides which DNS domains are looked in for other clusters, and says
// what they list.
//
// A [Set] is made of SearchDomains in the API server, of the configuration file and of
// what was added on the command line, in that order of precedence. A [Keeper] puts it
// into effect: it has package dnssd look in the domains, hands the registry the places
// that they list, and shows what became of them in the status of the SearchDomains and
// to the control socket.
//
// It must not ask DNS itself, and does not decide who is joined: the decision store does.
//
// Goroutines: Keeper.Run is one, for as long as its session. Looked is called by the
// poller's; everything else may be called from any goroutine.
package domains
