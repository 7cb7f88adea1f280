package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SharingGroupVersion is the API group and version of the resources about what
// is shared.
var SharingGroupVersion = schema.GroupVersion{Group: "sharing.liqo.io", Version: "v1alpha1"}

// Advertisement is what a provider offers to this cluster. The provider's agent
// creates one, named after the provider's cluster ID, through this cluster's
// endpoint, keeps it up to date, and deletes it when it no longer offers
// anything.
//
// +kubebuilder:object:root=true
// +groupName=sharing.liqo.io
// +kubebuilder:resource:path=advertisements,scope=Cluster,shortName=adv,categories=liqo
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.advertisementStatus`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.spec.resourceQuota.hard.cpu`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.resourceQuota.hard.memory`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.spec.resourceQuota.hard.pods`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.timeToLive`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Arch",type=string,JSONPath=`.spec.labels.kubernetes\.io/arch`,priority=1
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.vnodeReference.name`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.clusterId",message="an Advertisement is named after the cluster ID that it is from"
type Advertisement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the offer.
	Spec AdvertisementSpec `json:"spec"`

	// Status is what this cluster decided about it. The agent writes it; a person may
	// set advertisementStatus, and is followed then.
	//
	// +kubebuilder:default={}
	Status AdvertisementState `json:"status,omitzero"`
}

// AdvertisementSpec is an offer of resources.
type AdvertisementSpec struct {
	// ClusterID is the provider.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ClusterID string `json:"clusterId"`

	// ResourceQuota is how much is offered.
	//
	// +kubebuilder:default={}
	ResourceQuota ResourceQuota `json:"resourceQuota,omitzero"`

	// Labels describe what is offered, as those of a node do.
	//
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:items:MaxLength=63
	Labels map[string]string `json:"labels,omitempty"`

	// Images are container images that are present at the provider.
	//
	// +kubebuilder:validation:MaxItems=512
	// +listType=atomic
	Images []ContainerImage `json:"images,omitempty"`

	// Prices are what the provider asks for a resource or an image, by its name.
	//
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:items:MaxLength=63
	Prices map[string]string `json:"prices,omitempty"`

	// Timestamp is when the offer was made.
	Timestamp metav1.Time `json:"timestamp"`

	// TimeToLive is until when the offer stands unless it is renewed, by the
	// provider's clock. An edge device's clock may be wrong: what counts for the
	// consumer is only how long after timestamp this is, measured with its own clock
	// from when the offer arrived or was renewed.
	TimeToLive metav1.Time `json:"timeToLive"`
}

// ResourceQuota is an amount of resources.
type ResourceQuota struct {
	// Hard maps a resource (cpu, memory, pods, ...) to a Kubernetes quantity.
	//
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:items:Pattern=`^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?$`
	Hard map[string]string `json:"hard,omitempty"`
}

// ContainerImage is a container image that is present somewhere.
type ContainerImage struct {
	// Names by which the image is known.
	//
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	// +listType=atomic
	Names []string `json:"names,omitempty"`

	// SizeBytes is the size of the image in bytes.
	//
	// +kubebuilder:validation:Minimum=0
	SizeBytes int64 `json:"sizeBytes,omitempty"`
}

// AdvertisementState is what the consumer decided about an offer.
type AdvertisementState struct {
	// AdvertisementStatus is the decision; Pending while somebody has to take it. A person who
	// sets it with kubectl (--subresource=status) owns the decision from then on, and
	// sharing.accept_policy has no say in it; setting it to null gives it back.
	AdvertisementStatus AdvertisementStatus `json:"advertisementStatus,omitempty"`

	// Reason is why, in one word for programs: Joined, AcceptedByPerson,
	// RefusedByPerson, AwaitingDecision, TooMany, Expired, BadAmount.
	//
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// Message is why, in a sentence for people.
	//
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`

	// VnodeReference is the virtual node that stands for the offer; absent while there
	// is none.
	VnodeReference *ObjectReference `json:"vnodeReference,omitempty"`
}
