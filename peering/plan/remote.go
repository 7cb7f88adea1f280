package plan

import (
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
)

// RemoteSpec is the desired state of what is ours at one peer. The zero value is
// "nothing to do with it".
type RemoteSpec struct {
	// Target is where the peer is and the key it is trusted by. Without a
	// fingerprint nothing is done.
	Target peer.Target
	// Contact: its state is asked for now and every interval.
	Contact bool
	// Ask: it is asked to let us in, until it does.
	Ask bool
	// Fresh is passed on with the asking.
	Fresh bool
	// Token is the secret of an invite, sent with the asking; "" for none.
	Token string
	// Request is the PeeringRequest of ours that is to be there; nil with
	// RequestGone set means that none is to be, and nil without it that whatever
	// is there stays.
	Request     *api.PeeringRequestSpec
	RequestGone bool
	// Advertisement is our offer that is to be there, and AdvertisementGone as
	// with Request.
	Advertisement     *api.AdvertisementSpec
	AdvertisementGone bool
	// Reason is told with a withdrawal, a sentence for people.
	Reason string
}

// RemoteStatus is what is known about one peer's side.
type RemoteStatus struct {
	// Asked is the answer to the last Ask: nil before there was one, and again
	// when the peer does not know us any more.
	Asked *wire.Answer
	// State is what the peer said last, nil before it said anything. It is from
	// At, and may be older than a failure.
	State *wire.State
	At    time.Time
	// Tried is when the last attempt ended, whatever came of it.
	Tried time.Time
	// Err is why the last attempt failed, nil when it did not; Failures counts
	// those in a row.
	Err      error
	Failures int
	// Denied is the peer's word for why it refused the last call (a Reason of
	// package endpoint), "" when it did not.
	Denied string
	// CA is the certificate of the peer's cluster key in DER, as it was shown in
	// the last handshake.
	CA []byte
}
