package plan

import (
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// Tristate is a decision that may not have been taken.
type Tristate int

// The values of a Tristate.
const (
	// Unset: nobody decided; what is there stays.
	Unset Tristate = iota
	// Yes: connect, or let in.
	Yes
	// No: do not.
	No
)

// Policy is everything that people, the configuration and the peer's own proofs
// decided about one peer.
type Policy struct {
	// Pin is the key that is trusted as the peer's; nil for none.
	Pin *peer.Pin
	// Former are the keys that the one in Pin recently replaced. Discovery may not have seen
	// the new one yet.
	Former []peer.Fingerprint
	// Distrusted: a person marked its key as not trusted.
	Distrusted bool
	// Blocked: a person blocked it, in both directions.
	Blocked bool
	// Connect says whether to consume its resources: what is remembered or
	// configured, or what discovery.autojoin says about a new peer.
	Connect Tristate
	// ConnectReason is the origin of Connect, a phrase for people.
	ConnectReason string
	// NotAutojoined says why the peer is not joined although discovery.autojoin is on
	// for peers like it; zero when it does not apply.
	NotAutojoined NotAutojoined
	// Asks is how much to ask it for.
	Asks api.RequestedResources
	// Generation increases each time a person connects, and is 0 when the agent starts. A new
	// generation starts the peering again, even if the provider ended it.
	Generation uint64
	// Accept is the answer to its PeeringRequests.
	Accept AcceptDecision
	// Token is the secret of an invite from the peer that was not used yet.
	Token string
	// Asked: it recently asked for access and may have it, so its PeeringRequest can come at
	// any moment.
	Asked bool
	// Ask is its request for access, while it waits for a person because the key is not
	// trusted; nil for none. The number of waiting requests is bounded.
	Ask *Ask
	// Ended is why its last PeeringRequest was ended here, a sentence for people; "" if it was
	// not, or the peer was accepted again since.
	Ended string
	// Code is the verification code of our key and the peer's; "" while its key is
	// not known.
	Code string
	// LastServed and LastJoined are the remembered states of the incoming and the outgoing
	// peering.
	LastServed, LastJoined bool
	// JoinStamp and TrustStamp name the last edits by kubectl that were recorded.
	JoinStamp, TrustStamp string
	// Forgotten: a person had the peer forgotten, and objects may still contain earlier
	// decisions. The edits that the stamps name do not count any more.
	Forgotten bool
}

// Ask is a request for access of a cluster whose key is not trusted. The cluster proved that it
// holds the key; the rest is its own claim, in a form that can be shown.
type Ask struct {
	Name, Namespace string
	Fingerprint     peer.Fingerprint
	Code            string // the verification code of our key and its
	From            string // the address that it came from
	Until           time.Time
}

// NotAutojoined says why a peer is not joined automatically.
type NotAutojoined struct {
	Reason  string // one word for programs
	Message string // a sentence for people
}

// AcceptDecision is what happens with the requests of one peer, and why.
type AcceptDecision struct {
	Phase   api.RequestPhase // RequestAccepted, RequestPending or RequestRefused
	Reason  string           // one word for programs
	Message string           // a sentence for people at both sides
	Here    string           // the same for people at ours
	// ByLiqo: an acceptance holds for requests to be peered by Liqo, too. What Liqo lets a consumer do is
	// more than what the agents do.
	ByLiqo bool
}
