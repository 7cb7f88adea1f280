// Package dnssd finds clusters in DNS domains: it looks up who is listed there
// (PTR), where they are (SRV, A, AAAA) and what is said about them (TXT), and looks
// again when the answers are due.
//
// # What is asked
//
// A look at a domain D for a service S asks for the lists: D PTR, S.D PTR (RFC 6763
// section 4), and S.B PTR for each further domain B that b._dns-sd._udp.D names
// (section 11, one level only). For everything listed it asks for SRV, TXT, and A and
// AAAA of each target. All of it is hearsay, which only tells where to ask.
//
// # What is believed
//
// Each question is on its own. "There is none" counts only when a server said so; a
// question that was not answered leaves things as they were: a list keeps its
// instances, an instance its places, and both say since when and why (Stale). What
// was not answered is asked again with a growing distance, everything else when its
// TTL says, so that a look asks only what is due.
//
// Nothing in a report changes because the same answers came in another order: records
// are sorted, and the random order that RFC 2782 wants among targets of equal priority
// is drawn once per process.
//
// The package must not know what peers, trust or Kubernetes are, and never contacts
// anybody but DNS servers. Everything left out has a SkipReason.
//
// # Goroutines
//
// Poller.Run owns the domains and calls Config.Report. Each look runs on a goroutine
// of its own, with workers for the instances, and owns what is remembered of its domain
// while it runs. All looks share a gate, which lets no domain take all the places. All
// methods of Poller may be called from any goroutine.
package dnssd
