package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ForeignClusterStatus is what the agent knows about a remote cluster.
type ForeignClusterStatus struct {
	// Role is what the remote cluster is to this one: Provider while it shares
	// its resources with us, Consumer while it uses ours.
	//
	// +kubebuilder:default=Unknown
	Role Role `json:"role,omitempty"`

	// Outgoing is the peering in which we consume the remote cluster's resources.
	//
	// +kubebuilder:default={}
	Outgoing OutgoingPeering `json:"outgoing,omitzero"`

	// Incoming is the peering in which the remote cluster consumes ours.
	//
	// +kubebuilder:default={}
	Incoming IncomingPeering `json:"incoming,omitzero"`

	// AuthStatus is how the remote cluster answered our request for an identity.
	//
	// +kubebuilder:default=Pending
	AuthStatus AuthStatus `json:"authStatus,omitempty"`

	// Fingerprint is the SHA-256 of the public key that the remote cluster's
	// endpoint proved to hold, in hexadecimal digits.
	//
	// +kubebuilder:validation:MaxLength=64
	Fingerprint string `json:"fingerprint,omitempty"`

	// TTL is how long, in seconds, the source that discovered the remote cluster
	// vouches for it between two announcements.
	//
	// +kubebuilder:validation:Minimum=0
	TTL int64 `json:"ttl,omitempty"`

	// Modules shows which parts of a peering are in use.
	//
	// +kubebuilder:default={}
	Modules Modules `json:"modules,omitzero"`

	// Conditions are the agent's observations: Reachable (the endpoint answers),
	// Verified (it proved to hold the key that fingerprint shows), Trusted (that
	// key is trusted to be the cluster's), OutgoingPeering and IncomingPeering
	// (what became of each direction), NetworkReady (packets pass between the pods of
	// the two clusters; while there is a peering), AuthURL (who answers at
	// spec.authUrl; on objects that people wrote), and Conflict (another key claims
	// the same cluster ID; absent otherwise).
	//
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}

// PeeringState is what both directions of a peering have in common.
type PeeringState struct {
	// Joined is true while the peering in this direction is established.
	//
	// +kubebuilder:default=false
	Joined bool `json:"joined"`

	// RemotePeeringRequestName is the name of the PeeringRequest that asks for
	// this peering, in the cluster that provides the resources.
	//
	// +kubebuilder:validation:MaxLength=253
	RemotePeeringRequestName string `json:"remotePeeringRequestName,omitempty"`

	// CADataRef is the Secret with the certificate authority of the remote
	// cluster.
	CADataRef *ObjectReference `json:"caDataRef,omitempty"`

	// AvailableIdentity is true once the consumer has an identity it can use at
	// the provider.
	AvailableIdentity bool `json:"availableIdentity,omitempty"`

	// AdvertisementStatus is the decision about the Advertisement of this
	// direction; empty while there is none.
	AdvertisementStatus AdvertisementStatus `json:"advertisementStatus,omitempty"`
}

// OutgoingPeering is the peering in which we consume the remote cluster's
// resources.
type OutgoingPeering struct {
	PeeringState `json:",inline"`

	// Advertisement is what the remote cluster offers us.
	Advertisement *ObjectReference `json:"advertisement,omitempty"`
}

// IncomingPeering is the peering in which the remote cluster consumes ours.
type IncomingPeering struct {
	PeeringState `json:",inline"`

	// PeeringRequest is what the remote cluster asked us for.
	PeeringRequest *ObjectReference `json:"peeringRequest,omitempty"`
}

// ObjectReference names another object in this cluster.
type ObjectReference struct {
	// APIVersion of the object.
	//
	// +kubebuilder:validation:MaxLength=253
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the object.
	//
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// Name of the object.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Namespace of the object; empty when its kind has none.
	//
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// UID of the object.
	//
	// +kubebuilder:validation:MaxLength=63
	UID string `json:"uid,omitempty"`
}

// Modules shows which parts of a peering are in use.
type Modules struct {
	// Networking connects the pod networks of the two clusters. It is enabled while they
	// are to be connected; the condition NetworkReady says whether they are, and if not
	// why.
	//
	// +kubebuilder:default={}
	Networking Module `json:"networking,omitzero"`

	// Authentication gives each cluster an identity in the other one.
	//
	// +kubebuilder:default={}
	Authentication Module `json:"authentication,omitzero"`

	// Offloading runs pods of the consumer in the provider. It is enabled while there
	// is a virtual node here; the condition VirtualNode says whether it is ready, and
	// if not why, or how far its removal is.
	//
	// +kubebuilder:default={}
	Offloading Module `json:"offloading,omitzero"`
}

// Module is the state of one part of a peering.
type Module struct {
	// Enabled is true while the module is in use.
	//
	// +kubebuilder:default=false
	Enabled bool `json:"enabled"`

	// Conditions are the module's observations.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is one observation about an object, as every Kubernetes tool
// understands it.
type Condition struct {
	// Type names what is observed.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`

	// Status is True, False or Unknown.
	Status ConditionStatus `json:"status"`

	// ObservedGeneration is the metadata.generation the observation is about.
	//
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// LastTransitionTime is when status last changed.
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`

	// Reason is why, in one word for programs.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`

	// Message is why, in a sentence for people.
	//
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message"`
}

// ConditionStatus is the value of a condition.
//
// +kubebuilder:validation:Enum=True;False;Unknown
type ConditionStatus string

// The values of a condition.
const (
	ConditionTrue    ConditionStatus = "True"
	ConditionFalse   ConditionStatus = "False"
	ConditionUnknown ConditionStatus = "Unknown"
)

// Role is what a remote cluster is to this one.
//
// +kubebuilder:validation:Enum=Unknown;Consumer;Provider;ConsumerAndProvider
type Role string

// The roles a remote cluster can play.
const (
	RoleUnknown             Role = "Unknown"
	RoleConsumer            Role = "Consumer"
	RoleProvider            Role = "Provider"
	RoleConsumerAndProvider Role = "ConsumerAndProvider"
)

// AuthStatus is how a remote cluster answered a request for an identity.
//
// +kubebuilder:validation:Enum=Pending;Accepted;Refused;EmptyRefused
type AuthStatus string

// The answers to a request for an identity. EmptyRefused is the refusal of a
// request that came without a token.
const (
	AuthPending      AuthStatus = "Pending"
	AuthAccepted     AuthStatus = "Accepted"
	AuthRefused      AuthStatus = "Refused"
	AuthEmptyRefused AuthStatus = "EmptyRefused"
)

// AdvertisementStatus is the decision about an Advertisement; empty while
// nobody has looked at it.
//
// +kubebuilder:validation:Enum="";Pending;Accepted;Refused
type AdvertisementStatus string

// The decisions about an Advertisement.
const (
	AdvertisementPending  AdvertisementStatus = "Pending" // somebody has to decide
	AdvertisementAccepted AdvertisementStatus = "Accepted"
	AdvertisementRefused  AdvertisementStatus = "Refused"
)

// The types of conditions on a ForeignCluster.
const (
	// ConditionReachable: the endpoint answers.
	ConditionReachable = "Reachable"
	// ConditionVerified: the endpoint proved to hold the key shown.
	ConditionVerified = "Verified"
	// ConditionConflict: another key claims the same cluster ID.
	ConditionConflict = "Conflict"
	// ConditionAuthURL: the cluster that the object is about answers at spec.authUrl.
	// It is shown on the objects that people wrote; while it is false, the message
	// says what is wrong with the URL and what to do.
	ConditionAuthURL = "AuthURL"
	// ConditionTrusted: the key shown is trusted to be the cluster's. The reason
	// says in which way it came to be, the message by whom and when; or the
	// message says how to trust it.
	ConditionTrusted = "Trusted"
	// ConditionOutgoingPeering: we consume the cluster's resources. While that is
	// wanted and not so, it says what is waited for.
	ConditionOutgoingPeering = "OutgoingPeering"
	// ConditionIncomingPeering: the cluster consumes our resources. While it asks
	// for them and does not have them, it says what is waited for.
	ConditionIncomingPeering = "IncomingPeering"
	// ConditionAccessRequested: the cluster asks to use ours, and somebody has to decide.
	// The message has the verification code, and says how to let it in and how to
	// refuse it. It is only shown while it is true.
	ConditionAccessRequested = "AccessRequested"
	// ConditionNetworkReady: packets pass between the pods of this cluster and those of
	// the other one. It is shown while there is a peering; module networking has the same.
	ConditionNetworkReady = "NetworkReady"
	// ConditionEngine: by what the two clusters are peered, the agents or Liqo 1.x, and why. It is
	// shown while there is a peering and one of the two has Liqo. While it is false, neither can.
	ConditionEngine = "Engine"
	// ConditionAutojoin: somebody said that clusters like this one are joined by
	// themselves, and it is not. The message says why, and how to join it. It is only
	// shown while it is false.
	ConditionAutojoin = "Autojoin"
)
