package dnssd

import (
	"net/netip"
	"time"

	"liqo.io/agent/dnssd/resolver"
	"liqo.io/agent/peer"
)

// Domain is a DNS domain to look for clusters in. Two with the same Name are the
// same domain.
type Domain struct {
	Name   string // lower case, without a trailing dot
	Server string // "", host[:port] or tls://host[:port]
	// MinInterval and MaxInterval bound the time between two looks.
	MinInterval, MaxInterval time.Duration
}

// Instance is a cluster that a domain lists. All of it is hearsay.
type Instance struct {
	// Name is the owner of its SRV records, such as liqo-cluster.example.com or
	// box-7._liqo._tcp.example.com, without a trailing dot. DNS escapes (RFC 1035
	// section 5.1) are kept.
	Name string
	// URL is https://HOST:PORT of the first SRV record that has addresses, HOST being
	// its target.
	URL string
	// Addrs are the addresses of all targets, in the order in which they are to be
	// tried: targets by priority and weight (RFC 2782), those of one target in turn IPv6
	// and IPv4 (RFC 8305). The order changes only when the records do.
	Addrs []netip.AddrPort
	// What the TXT record says (the keys are those of the LAN); empty without one.
	ID          peer.ClusterID
	ClusterName string
	Namespace   string
	Fingerprint peer.Fingerprint
	Version     string
	// TTL is how long the records vouch for it: the least of them, and of each the
	// greatest seen lately, because servers on the way count theirs down.
	TTL time.Duration
	// Stale says why the instance could not be looked up this time, "" when it was:
	// the rest is what was known before.
	Stale string
}

// SkipReason says why something that a domain lists is left out.
type SkipReason string

// The reasons. They are printed and shown in statuses, so they never change.
const (
	// SkipNoService: the name has no SRV record that could be used.
	SkipNoService SkipReason = "NoSRV"
	// SkipNotAvailable: the SRV record's target is the root (RFC 2782): decidedly not
	// available.
	SkipNotAvailable SkipReason = "NotAvailable"
	// SkipNoAddress: no target has an address that could be used.
	SkipNoAddress SkipReason = "NoAddress"
	// SkipBadTXT: the TXT record is ours and does not say what it must.
	SkipBadTXT SkipReason = "BadTXT"
	// SkipLookup: its records could not be looked up, and nothing was known before.
	SkipLookup SkipReason = "LookupFailed"
	// SkipTooMany: the domain lists more than Config.MaxInstances, or more than 16
	// further domains. Name is the list's, Message counts.
	SkipTooMany SkipReason = "TooMany"
)

// Skip is something that a domain lists and that is left out. Of 200 and more the rest
// is summed up, one Skip for each reason, with the domain's name and the number in the
// message; but what was an instance in the report before is always there by itself.
type Skip struct {
	Name    string
	Reason  SkipReason
	Message string // one line for people
}

// Report is what one look at a domain gave.
type Report struct {
	Domain string
	At     time.Time
	// Outcome of asking for the list of instances, over all ways to ask: Found if
	// anything is listed, NoData or NoName if all ways say that nothing is, else the
	// worst of what stands in the way.
	Outcome resolver.Outcome
	// Message says the same in one line for people.
	Message string
	// Complete: an instance that is neither in Instances nor in Skipped has left the
	// domain. Otherwise nobody has. It is set when the outcome is conclusive, and also
	// when the domain's own lists are and only a further domain is not: what that one
	// listed before is still in Instances then, as stale.
	Complete      bool
	Server        string     // that answered about the list, or said that it cannot
	Authenticated bool       // there were answers, and every one was (DNSSEC)
	Instances     []Instance // sorted by name
	Skipped       []Skip
	// Domains are the further domains that b._dns-sd._udp names (RFC 6763 section 11)
	// and that were looked at, too.
	Domains []string
	Queries int       // questions asked for this look; what is still known is not asked
	Next    time.Time // when the domain is looked at again
}
