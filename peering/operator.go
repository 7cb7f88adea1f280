package peering

import (
	"context"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// Wish is what is wanted between us and a peer, as far as anything is.
type Wish int

// The wishes.
const (
	// WishNone: nobody said anything; what is there stays.
	WishNone Wish = iota
	// WishYes: connect, or let in.
	WishYes
	// WishNo: do not.
	WishNo
)

// Standing is everything that was decided about one peer: by people, by the
// configuration, by what it proved.
type Standing struct {
	// Pin is the key trusted to be the peer's; nil for none.
	Pin *peer.Pin
	// Former are keys of which the one in Pin took the place lately. Who looks at the
	// peer may not have seen that yet.
	Former []peer.Fingerprint
	// Distrusted: a person said that the key is not to be trusted.
	Distrusted bool
	// Blocked: nothing is to do with it, in either direction.
	Blocked bool
	// Connect is whether to consume its resources: what is remembered or
	// configured, or what discovery.autojoin says about a new peer.
	Connect Wish
	// ConnectReason says where Connect comes from, a phrase for people.
	ConnectReason string
	// Unjoined is why it is not joined by itself although somebody said that those like
	// it are; zero when nobody did, or when it is wanted.
	Unjoined Unjoined
	// Anew is the number of times that a person asked to be connected since the
	// agent started. A new number begins the peering anew even if it was ended by
	// the provider.
	Anew uint64
	// Accept is what happens with its requests.
	Accept AcceptDecision
	// Token is the secret of an invite from it that has not been used yet.
	Token string
	// Asked: it asked to be let in lately and may, so its PeeringRequest can come
	// at any moment.
	Asked bool
	// Ask is its question to be let in, while that waits for a person because its key
	// is not trusted; nil for none. At most so many wait at once.
	Ask *Ask
	// Ended is why its last request was ended on our side, a sentence for people;
	// "" when it was not, or when it was let in again since.
	Ended string
	// Code is the verification code of our key and its; "" while its key is not
	// known.
	Code string
	// LastServed and LastJoined are what was remembered about the two directions:
	// the request was accepted; we were joined.
	LastServed, LastJoined bool
	// JoinStamp and TrustStamp name the last edits by kubectl that were taken in.
	JoinStamp, TrustStamp string
	// Forgotten: it was forgotten, and objects may still say what was wanted of it
	// before. What the stamps name is no edit of anybody's any more.
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

// Unjoined is why a peer is not joined by itself.
type Unjoined struct {
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

// Ledger is where decisions are kept. Its methods are called on several
// goroutines; Standing is quick, the others return after what they were told is
// on the disk. An error of theirs is tried again.
type Ledger interface {
	// Standing returns what was decided about a peer.
	Standing(id peer.ClusterID) Standing
	// JoinEdited is told that a person set spec.join with kubectl. stamp tells
	// edits apart; Standing.JoinStamp returns it from then on.
	JoinEdited(ctx context.Context, id peer.ClusterID, join bool, by, stamp string) error
	// TrustEdited is told that a person set spec.trustMode with kubectl, on an
	// object whose status shows that fingerprint (zero for none). stamp is as with
	// JoinEdited.
	TrustEdited(ctx context.Context, id peer.ClusterID, mode api.TrustMode, shown peer.Fingerprint, by, stamp string) error
	// Decided is told that a person said with kubectl that the peer's requests are
	// accepted, or refused. shown is the key that they were shown; zero for the trusted
	// one. Another than the trusted one is not let in by that.
	Decided(ctx context.Context, id peer.ClusterID, accept bool, shown peer.Fingerprint, by string) error
	// HungUp is told that a person deleted the ForeignCluster of a peer that we
	// are connected to. Until the peer returns from an absence or a person
	// connects again, Standing then says WishNo.
	HungUp(ctx context.Context, id peer.ClusterID, by string) error
	// Forgot is told that no object says any more what was wanted of a peer before it
	// was forgotten. Standing.Forgotten is false from then on.
	Forgot(ctx context.Context, id peer.ClusterID) error
	// EndedByProvider is told that the peer ended our consuming its resources.
	// It is remembered as WishNo.
	EndedByProvider(ctx context.Context, id peer.ClusterID, reason string) error
	// EndedHere is told that a person at our side ended the peer's consuming ours,
	// by deleting its PeeringRequest. Its next request waits for a person.
	EndedHere(ctx context.Context, id peer.ClusterID, reason string) error
	// Replaced is told that the agent's own ForeignCluster of the peer was deleted,
	// because somebody wrote one for it, which is called object. It is a matter of the
	// history only.
	Replaced(ctx context.Context, id peer.ClusterID, object string) error
	// Joined is told when our consuming the peer's resources begins and ends.
	Joined(ctx context.Context, id peer.ClusterID, joined bool, why string) error
	// Served is told when the peer's consuming ours begins and ends.
	Served(ctx context.Context, id peer.ClusterID, served bool, why string) error
	// Requested is told that a PeeringRequest of the peer's is there and its
	// decision.
	Requested(ctx context.Context, id peer.ClusterID, phase api.RequestPhase, reason string) error
}
