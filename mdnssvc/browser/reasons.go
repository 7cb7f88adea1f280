package browser

import "liqo.io/agent/mdnssvc/wire"

// Why a received message, or something in it, was not used. NotAsked and
// ForeignName are everyday life on a link with other services; the rest is a
// broken or hostile sender, or a limit reached.
const (
	DropDisabled        wire.DropReason = "discovery-off"    // browsing is switched off, everywhere or on the link
	DropUnknownLink     wire.DropReason = "unknown-link"     // not one of the links given to SetLinks
	DropSourcePort      wire.DropReason = "source-port"      // a response that is not from port 5353 (RFC 6762 section 6)
	DropUnicast         wire.DropReason = "unicast-response" // we ask for multicast answers only, so it answers nothing of ours (section 6)
	DropNotAsked        wire.DropReason = "not-asked"        // no record in it belongs to anything we look for
	DropForeignName     wire.DropReason = "foreign-name"     // a PTR of our service that names something outside it
	DropFull            wire.DropReason = "full"             // MaxInstances reached and nobody had to make room for this one
	DropUnresolvedLimit wire.DropReason = "unresolved-limit" // one source announces too many instances that do not resolve; its oldest was forgotten
	DropTXTSize         wire.DropReason = "txt-too-large"    // a TXT record beyond any sensible size
	DropBadSRV          wire.DropReason = "bad-srv"          // no target, no port
	DropBadAddress      wire.DropReason = "bad-address"      // an address that cannot be a neighbour's
	DropAddressLimit    wire.DropReason = "address-limit"    // more addresses than a host may have; the oldest one was forgotten
)

// Reasons given with a Lost event.
const (
	ReasonGoodbye      = "goodbye"       // its owner withdrew it (RFC 6762 section 10.1)
	ReasonExpired      = "expired"       // its TTL ended without an answer to our questions
	ReasonNoAnswer     = "no answer"     // it was asked for again because it seemed gone, and did not answer (10.4)
	ReasonEvicted      = "evicted"       // it had to make room
	ReasonLinkGone     = "link gone"     // the link it was seen on is no longer in use
	ReasonDiscoveryOff = "discovery off" // browsing was switched off, everywhere or on the link
)
