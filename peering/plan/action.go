package plan

import (
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
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
	// Identify fills in which cluster a ForeignCluster that a person wrote is about,
	// as Identity says, and nothing that somebody else set.
	Identify ActionKind = "identify"
	// UpdateStatus sets the discovered fields of the status.
	UpdateStatus ActionKind = "update-status"
	// Delete removes a ForeignCluster that the agent created. When Heir is set, that
	// is said in the log.
	Delete ActionKind = "delete"
	// ApplyIntent sets spec.join and spec.trustMode, as Intent says.
	ApplyIntent ActionKind = "apply-intent"
	// AddFinalizer puts api.FinalizerPeering on it.
	AddFinalizer ActionKind = "add-finalizer"
	// RemoveFinalizer takes api.FinalizerPeering from it. It is gone then if somebody deleted
	// it.
	RemoveFinalizer ActionKind = "remove-finalizer"
	// UpdatePeering sets what Peering holds in its status.
	UpdatePeering ActionKind = "update-peering"
	// RequestRef sets status.incoming.peeringRequest to Ref; nil removes it.
	RequestRef ActionKind = "request-ref"
	// AdvertisementRef sets status.outgoing.advertisement to Ref; nil removes it.
	AdvertisementRef ActionKind = "advertisement-ref"
)

// The kinds of actions on the other objects about the peer, which are all named
// after it. UID is that of the object looked at.
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
	// ObserveGeneration notes Generation as Observed.ObservedGeneration, in the memory of the process only.
	ObserveGeneration ActionKind = "observe-generation"
)

// Action is one request to the API server, or one call of the decision store. It is
// idempotent, and refused by the API server when the object is no longer the one
// that was looked at. An object to be deleted that is not there any more counts
// as deleted.
type Action struct {
	Kind ActionKind
	// Name of the object.
	Name string
	// UID of the object looked at; "" when it did not exist yet: then it is that of
	// what the Create before it made.
	UID types.UID
	// ResourceVersion, when set, is that of the object looked at, and the request is
	// refused when the object has another one by now: what somebody joins at the
	// same moment stays. After other actions on the same object in one Decision, it
	// is the version that the last of them returned.
	ResourceVersion string

	Spec          *DiscoveredSpec           // Create, UpdateSpec
	Identity      *IdentitySpec             // Identify
	Status        *DiscoveredStatus         // UpdateStatus
	Intent        *Intent                   // ApplyIntent
	Peering       *PeeringStatus            // UpdatePeering
	Ref           *api.ObjectReference      // RequestRef, AdvertisementRef; nil removes
	Request       *api.PeeringRequestStatus // SetRequestStatus
	Advertisement *api.AdvertisementState   // SetAdvertisementStatus
	Secret        *Secret                   // ApplySecret
	Access        *Access                   // ApplyAccess
	Record        *Record                   // Record...
	Generation    uint64                    // ObserveGeneration
	// Heir is the ForeignCluster of a person's that takes the place of the one to be
	// deleted; "" for none.
	Heir string
}

// Intent is everything that ManagerIntent is to own in a ForeignCluster's spec;
// it gives up what is nil.
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

// Record holds what the decision store is to record.
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
