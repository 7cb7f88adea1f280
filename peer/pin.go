package peer

import "time"

// TrustMethod is how a key came to be trusted.
type TrustMethod string

// The ways to trust a key. They are stored and printed, so they never change.
const (
	// TrustPerson: somebody compared the verification code, or said so.
	TrustPerson TrustMethod = "Person"
	// TrustInvite: a one-time token named the key, or its bearer held it.
	TrustInvite TrustMethod = "Invite"
	// TrustFleet: the configured fleet CA certified the key.
	TrustFleet TrustMethod = "FleetCA"
	// TrustStatic: a [[peer]] entry of the configuration names the key.
	TrustStatic TrustMethod = "StaticPeer"
	// TrustRoots: the system's certificate authorities vouch for the host name
	// at which the key was found.
	TrustRoots TrustMethod = "SystemRoots"
	// TrustOpen: the configuration trusts whoever comes (trust.accept = "all",
	// trust.allow_empty_token or discovery.autojoin_untrusted); the first key is
	// kept.
	TrustOpen TrustMethod = "Open"
)

// Pin is the decision that a key belongs to a cluster ID: trust. A cluster ID
// has at most one.
type Pin struct {
	ID          ClusterID
	Fingerprint Fingerprint
	Method      TrustMethod
	By          string    // who decided, for people: "user alice", "kubectl", "fleet CA 1f2e..."
	At          time.Time // when, to the second
	Detail      string    // one line for people: "followed the key's rotation from ...", or ""
	// Host is the host name whose public certificate vouched for the key (TrustRoots;
	// else ""), Domain the search domain that the name lies in, "" if a person gave
	// the name, and "." while that is not known.
	Host, Domain string
	// NotBefore and NotAfter are those of the certificate of a fleet that vouches for
	// the key (TrustFleet; else zero). Suspended is since when the trust is suspended
	// because that certificate has ended; zero while it is not.
	NotBefore, NotAfter, Suspended time.Time
}
