package plan

import (
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/discovered"
)

// ActionKind says what an Action does.
type ActionKind string

// The kinds of actions on a ForeignCluster. Name, and UID if it exists, say on
// which one.
const (
	// Create makes the ForeignCluster of a discovered peer.
	Create ActionKind = "create"
	// UpdateSpec sets the discovered fields of the spec.
	UpdateSpec ActionKind = "update-spec"
	// Identify completes the identity in a ForeignCluster that a person wrote, as Identity
	// says. It changes nothing that somebody else set.
	Identify ActionKind = "identify"
	// UpdateStatus sets the discovered fields of the status.
	UpdateStatus ActionKind = "update-status"
	// Delete deletes a ForeignCluster that the agent created. A Heir is logged.
	Delete ActionKind = "delete"
	// ApplyIntent sets spec.join and spec.trustMode, as Intent says.
	ApplyIntent ActionKind = "apply-intent"
	// AddFinalizer puts api.FinalizerPeering on it.
	AddFinalizer ActionKind = "add-finalizer"
	// RemoveFinalizer removes api.FinalizerPeering. If somebody deleted the object, it is
	// gone then.
	RemoveFinalizer ActionKind = "remove-finalizer"
	// UpdatePeering sets what Peering holds in its status.
	UpdatePeering ActionKind = "update-peering"
	// RequestRef sets status.incoming.peeringRequest to Ref; nil removes it.
	RequestRef ActionKind = "request-ref"
	// AdvertisementRef sets status.outgoing.advertisement to Ref; nil removes it.
	AdvertisementRef ActionKind = "advertisement-ref"
)

// The kinds of actions on the other objects about the peer, whose name is its ID. UID is
// that of the observed object.
const (
	// SetRequestStatus sets the status of its PeeringRequest to Request.
	SetRequestStatus ActionKind = "set-request-status"
	// DeleteRequest deletes its PeeringRequest. It is noted as DeletedByUs before.
	DeleteRequest ActionKind = "delete-request"
	// SetAdvertisementStatus sets the status of its Advertisement to Advertisement.
	SetAdvertisementStatus ActionKind = "set-advertisement-status"
	// DeleteAdvertisement deletes its Advertisement. It is noted as DeletedByUs
	// before.
	DeleteAdvertisement ActionKind = "delete-advertisement"
	// ApplySecret writes the Secret with its identity, as Secret says.
	ApplySecret ActionKind = "apply-secret"
	// DeleteSecret deletes that Secret.
	DeleteSecret ActionKind = "delete-secret"
	// ApplyAccess writes its RBAC objects, as Access says.
	ApplyAccess ActionKind = "apply-access"
	// DeleteAccess deletes them.
	DeleteAccess ActionKind = "delete-access"
)

// The kinds of actions on the agent's own memory; Record holds the arguments.
const (
	// RecordJoinEdited calls Decisions.JoinEdited(On, By, Stamp).
	RecordJoinEdited ActionKind = "record-join-edited"
	// RecordTrustEdited calls Decisions.TrustEdited(Mode, Shown, By, Stamp).
	RecordTrustEdited ActionKind = "record-trust-edited"
	// RecordDecided calls Decisions.Decided(On, Shown, By).
	RecordDecided ActionKind = "record-decided"
	// RecordHungUp calls Decisions.HungUp(By).
	RecordHungUp ActionKind = "record-hung-up"
	// RecordForgot calls Decisions.Forgot.
	RecordForgot ActionKind = "record-forgot"
	// RecordEndedByProvider calls Decisions.EndedByProvider(Generation, Reason).
	RecordEndedByProvider ActionKind = "record-ended-by-provider"
	// RecordEndedHere calls Decisions.EndedHere(Reason).
	RecordEndedHere ActionKind = "record-ended-here"
	// RecordJoined calls Decisions.Joined(On, Reason).
	RecordJoined ActionKind = "record-joined"
	// RecordServed calls Decisions.Served(On, Reason).
	RecordServed ActionKind = "record-served"
	// RecordRequested calls Decisions.Requested(Phase, Reason).
	RecordRequested ActionKind = "record-requested"
	// ObserveGeneration stores Generation as Observed.ObservedGeneration, in memory only.
	ObserveGeneration ActionKind = "observe-generation"
)

// Action is one request to the API server, or one call of the decision store. It is
// idempotent. The API server refuses it if the object is no longer the observed one.
// Deleting an object that does not exist is a success.
type Action struct {
	Kind ActionKind
	// Name of the object.
	Name string
	// UID of the observed object; "" if it did not exist: then it is the one that an earlier
	// Create made.
	UID types.UID
	// ResourceVersion, if set, is that of the observed object: the API server refuses the
	// request if the object has changed, so that it does not overrule an edit of the same
	// moment. After other actions on the object in the same Decision, it is the version that
	// the last of them returned.
	ResourceVersion string

	Spec          *discovered.Spec          // Create, UpdateSpec
	Identity      *discovered.Identity      // Identify
	Status        *discovered.Status        // UpdateStatus
	Intent        *Intent                   // ApplyIntent
	Peering       *PeeringStatus            // UpdatePeering
	Ref           *api.ObjectReference      // RequestRef, AdvertisementRef; nil removes
	Request       *api.PeeringRequestStatus // SetRequestStatus
	Advertisement *api.AdvertisementState   // SetAdvertisementStatus
	Secret        *Secret                   // ApplySecret
	Access        *Access                   // ApplyAccess
	Record        *Record                   // Record...
	Generation    uint64                    // ObserveGeneration
	// Heir is the ForeignCluster of a person that replaces the deleted one; "" for none.
	Heir string
}

// Intent is everything that ManagerIntent owns in a ForeignCluster's spec after it is
// applied. It gives up fields that are nil.
type Intent struct {
	Join      *bool          `json:"join,omitempty"`
	TrustMode *api.TrustMode `json:"trustMode,omitempty"`
}

// PeeringStatus is everything that ManagerForeignCluster owns in a
// ForeignCluster's status.
type PeeringStatus struct {
	Role       api.Role         `json:"role"`
	Outgoing   api.PeeringState `json:"outgoing"`
	Incoming   api.PeeringState `json:"incoming"`
	AuthStatus api.AuthStatus   `json:"authStatus"`
	Modules    api.Modules      `json:"modules"`
	Conditions []api.Condition  `json:"conditions,omitempty"`
}

// Record holds the arguments of a call of the decision store.
type Record struct {
	On     bool             // whether it begins; the value of spec.join
	Mode   api.TrustMode    // of spec.trustMode
	Shown  peer.Fingerprint // what the object's status shows; zero for nothing
	By     string           // who, for people
	Stamp  string           // of the edit
	Phase  api.RequestPhase // the decision about a request
	Reason string           // a sentence for people; one word for RecordRequested
	// Generation is Policy.Generation that the plan was made with, for RecordEndedByProvider.
	Generation uint64
}
