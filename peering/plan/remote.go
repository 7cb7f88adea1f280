package plan

import (
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
)

// RemoteSpec is the desired state of our objects at one peer. The zero value means: do nothing
// there.
type RemoteSpec struct {
	// Target is where the peer is and the key it is trusted by. Without a
	// fingerprint nothing is done.
	Target peer.Target
	// Contact: ask for its state now and every interval.
	Contact bool
	// Ask: ask for access until it is given.
	Ask bool
	// Fresh is sent with the request for access.
	Fresh bool
	// Token is the secret of an invite, sent with the request for access; "" for none.
	Token string
	// Request is our desired PeeringRequest there. If it is nil, RequestGone says whether to
	// delete the existing one or to leave it.
	Request     *api.PeeringRequestSpec
	RequestGone bool
	// Advertisement is our desired offer there, and AdvertisementGone as RequestGone.
	Advertisement     *api.AdvertisementSpec
	AdvertisementGone bool
	// Reason is sent with a withdrawal, a sentence for people.
	Reason string
}

// RemoteStatus is the observed state of one peer's side.
type RemoteStatus struct {
	// Asked is the answer to the last Ask: nil before there was one, and again when the peer does
	// not know us any more, or did not let us in and has our request nevertheless.
	Asked *wire.Answer
	// State is the last state that the peer reported, nil before the first. It is from At, and
	// may be older than a failure.
	State *wire.State
	At    time.Time
	// Tried is when the last attempt ended, successful or not. Answered is when the peer last
	// said whether it deals with us.
	Tried, Answered time.Time
	// Err is why the last attempt failed, nil when it did not; Failures counts
	// those in a row.
	Err      error
	Failures int
	// Denied is the peer's reason for not dealing with us (a Reason of package wire), as it said
	// last, "" if it does. Only a State or being let in takes it back, and another answer to Ask
	// makes it ReasonNotTrusted. ReasonProtocol also ends with any attempt that does not give it.
	Denied string
	// CA is the certificate of the peer's cluster key in DER, as it was shown in
	// the last handshake.
	CA []byte
}
