package peering

import (
	"context"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

// Decisions is where decisions are kept. Its methods are called on several
// goroutines; Policy is quick, the others return after what they were told is
// on the disk. An error of theirs is tried again.
type Decisions interface {
	// Policy returns what was decided about a peer.
	Policy(id peer.ClusterID) plan.Policy
	// JoinEdited is told that a person set spec.join with kubectl. stamp tells
	// edits apart; Policy.JoinStamp returns it from then on.
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
	// connects again, Policy then says No.
	HungUp(ctx context.Context, id peer.ClusterID, by string) error
	// Forgot is told that no object says any more what was wanted of a peer before it
	// was forgotten. Policy.Forgotten is false from then on.
	Forgot(ctx context.Context, id peer.ClusterID) error
	// EndedByProvider is told that the peer ended our consuming its resources, by a
	// plan that was made when Policy had that Generation. It is remembered as No,
	// unless a person asked to be connected again since.
	EndedByProvider(ctx context.Context, id peer.ClusterID, generation uint64, reason string) error
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
