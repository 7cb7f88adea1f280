package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PeeringRequest asks this cluster for a share of its resources. The agent of
// the consumer creates one, named after the consumer's cluster ID, through this
// cluster's endpoint. Deleting it ends the peering.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=peeringrequests,scope=Cluster,shortName=pr,categories=liqo
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster Name",type=string,JSONPath=`.spec.clusterIdentity.clusterName`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Advertisement",type=string,JSONPath=`.status.advertisementStatus`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.spec.resources.cpu`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.resources.memory`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:validation:XValidation:rule="!has(self.spec.clusterIdentity.clusterID) || self.metadata.name == self.spec.clusterIdentity.clusterID",message="a PeeringRequest is named after the cluster ID that it is from"
type PeeringRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says who asks.
	Spec PeeringRequestSpec `json:"spec"`

	// Status is what this cluster decided. The agent writes it; of its phase, people of
	// this cluster may.
	//
	// +kubebuilder:default={}
	Status PeeringRequestStatus `json:"status,omitzero"`
}

// PeeringRequestSpec says who asks for a peering.
//
// +kubebuilder:validation:XValidation:rule="has(self.clusterIdentity.clusterID)",message="clusterIdentity.clusterID is required"
// +kubebuilder:validation:XValidation:rule="has(self.engine) == has(oldSelf.engine) && (!has(self.engine) || self.engine == oldSelf.engine)",message="engine cannot change: the provider accepted the request with the one that it has; delete the request and create another one"
type PeeringRequestSpec struct {
	// ClusterIdentity is the consumer.
	ClusterIdentity ClusterIdentity `json:"clusterIdentity"`

	// Namespace is where Liqo lives in the consumer.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`

	// AuthURL is the endpoint of the consumer; empty when the consumer leaves it
	// to the provider to find it.
	AuthURL EndpointURL `json:"authUrl,omitempty"`

	// Engine is what is to share the resources: liqo for Liqo 1.x, which runs in both
	// clusters; without it, the agents do so themselves. It cannot change.
	Engine PeeringEngine `json:"engine,omitempty"`

	// Resources are how much the consumer asks for: it is offered at most that. It may
	// change at any time.
	Resources RequestedResources `json:"resources,omitzero"`
}

// RequestedResources is how much a consumer asks for; as much as there is of what it
// leaves out.
type RequestedResources struct {
	// CPU is an amount of CPU, as in 2 or 500m.
	CPU RequestedAmount `json:"cpu,omitempty"`

	// Memory is an amount of memory, as in 4Gi.
	Memory RequestedAmount `json:"memory,omitempty"`
}

// Amounts returns the amounts by the names of their resources, nil for none.
func (r RequestedResources) Amounts() map[string]string {
	var out map[string]string
	for name, amount := range map[string]RequestedAmount{"cpu": r.CPU, "memory": r.Memory} {
		if amount != "" {
			if out == nil {
				out = make(map[string]string)
			}
			out[name] = string(amount)
		}
	}
	return out
}

// RequestedAmount is a Kubernetes quantity.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?$`
type RequestedAmount string

// PeeringEngine is what shares the resources of a peering.
//
// +kubebuilder:validation:Enum=liqo
type PeeringEngine string

// EngineLiqo is Liqo 1.x. Without an engine, the agents themselves share the resources.
const EngineLiqo PeeringEngine = "liqo"

// PeeringRequestStatus is what the provider decided about a request.
type PeeringRequestStatus struct {
	// Phase is the decision. Whoever sets it to Accepted or Refused decides, now and in
	// future, as with liqo-agent peers accept and reject.
	//
	// +kubebuilder:default=Pending
	Phase RequestPhase `json:"phase,omitempty"`

	// Reason is why, in one word for programs.
	//
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// Message is why, in a sentence for people.
	//
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`

	// AdvertisementStatus is what the consumer decided about our offer; empty
	// while there is none.
	AdvertisementStatus AdvertisementStatus `json:"advertisementStatus,omitempty"`
}

// RequestPhase is the decision about a PeeringRequest.
//
// +kubebuilder:validation:Enum=Pending;Accepted;Refused
type RequestPhase string

// The decisions about a PeeringRequest.
const (
	RequestPending  RequestPhase = "Pending"
	RequestAccepted RequestPhase = "Accepted"
	RequestRefused  RequestPhase = "Refused"
)
