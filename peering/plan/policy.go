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
	// Former are the keys that the one in Pin replaced lately. Whoever watches the
	// peer may not have seen the new one yet.
	Former []peer.Fingerprint
	// Distrusted: a person marked its key as not trusted.
	Distrusted bool
	// Blocked: a person blocked it, in both directions.
	Blocked bool
	// Connect says whether to consume its resources: what is remembered or
	// configured, or what discovery.autojoin says about a new peer.
	Connect Tristate
	// ConnectReason says where Connect comes from, a phrase for people.
	ConnectReason string
	// NotAutojoined says why the peer is not joined although discovery.autojoin is on
	// for peers like it; zero when it does not apply.
	NotAutojoined NotAutojoined
	// Generation goes up each time a person asks to be connected, and is 0 when the
	// agent starts. A new generation begins the peering again, even if the provider
	// ended the last one.
	Generation uint64
	// Accept is the answer to its PeeringRequests.
	Accept AcceptDecision
	// Token is the secret of an invite from the peer that was not used yet.
	Token string
	// Asked: it asked to be let in lately and may be, so that its PeeringRequest can
	// come at any moment.
	Asked bool
	// Ask is its question to be let in, while that waits for a person because its key
	// is not trusted; nil for none. Only so many wait at once.
	Ask *Ask
	// Ended says why its last request was ended here, a sentence for people; "" when
	// it was not, or when the peer was let in again since.
	Ended string
	// Code is the verification code of our key and the peer's; "" while its key is
	// not known.
	Code string
	// LastServed and LastJoined are the remembered state of the two directions: its
	// request was accepted; we were joined.
	LastServed, LastJoined bool
	// JoinStamp and TrustStamp name the last edits by kubectl that were recorded.
	JoinStamp, TrustStamp string
	// Forgotten: the peer was forgotten, and objects may still say what was wanted of
	// it before. The edits that the stamps name do not count any more.
	Forgotten bool
}

// Ask is the question of a cluster whose key is not trusted. It proved to hold the key;
// the rest is its own word, in a form that can be shown.
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
}
