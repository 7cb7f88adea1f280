// Package registry knows who is around: it turns what sources say into one view for
// each cluster, and decides whether that is there, unreachable, or gone.
//
// # States
//
// A source says that a cluster is at a place. That is a candidate, until it is known
// which cluster is meant, and with which key; then it is a sighting. All sightings of
// one key of one cluster ID are a claim, and the claims of one ID are a cluster.
//
//	candidate   not probed -> identified | unreachable | not a cluster | other cluster | other key | ourselves
//	claim       Unverified -> Present <-> Unreachable -> Lost -> Present
//
// LAN announcements and calls of peers name cluster and key, and are sightings at once
// (See, Unsee). What domains list and persons give is a candidate (SetCandidate). One
// without cluster or key is probed, and who answers is both identified and checked by
// that; so is one that a person gave, who wants to know whether the URL is right. Any
// other is a sighting at once.
//
// # What is believed
//
// A sighting is a hint. A cluster counts only once its endpoint has proved, over TLS,
// to hold the key that was said and to have the ID that was said. Its claim is checked
// every interval. Silence alone is not absence: a cluster goes when it says goodbye,
// when two independent signs agree (its records ended and its endpoint does not
// answer), or when three checks in a row fail.
//
// One key belongs to one cluster ID. Whoever else proves to have a known ID with
// another key is a conflict and changes nothing; only the old key, or a person, makes
// another one the known key.
//
// Who is at a place may change. One that answers is probed again every ten minutes, and
// soon when its cluster is no longer there; one that leads nowhere after five seconds,
// doubling up to five minutes. What was found stays until somebody else answers there.
//
// # What it may cost
//
// Sources are hostile: anybody can announce thousands of claims, and a zone can list
// thousands of places, that take as long to fail as they can. So all of these are
// bounded, see Config.Limit, Checkers and Lookups; the less somebody has shown, the
// fewer probes they hold; what persons gave goes before what domains list; domains have
// their turns; and who is there is never forgotten to make room. Who is announced while
// there is none is let in when there is. A neighbour that is announced again without news
// costs one map lookup.
//
// # Parts
//
// machine has all of the states and transitions, without goroutines, clocks and locks.
// Registry.Run owns it, performs the probes that it asks for, and runs the journal that
// stores changes. Readers get immutable snapshots.
//
// The package must not open sockets, read configuration, look at who is trusted, or
// talk to an API server: probes, storage and notifications are handed in.
//
// Goroutines: that of Run, one for each probe, and that of the journal; all have ended
// when Run returns.
//
// The package is larger than others because one goroutine owns candidates, claims and
// clusters, and each of them changes the others.
package registry
