package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SearchDomain is a DNS domain in which the agent looks for clusters.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=searchdomains,scope=Cluster,shortName=sd,categories=liqo
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Domain",type=string,JSONPath=`.spec.domain`
// +kubebuilder:printcolumn:name="Autojoin",type=boolean,JSONPath=`.spec.autojoin`
// +kubebuilder:printcolumn:name="Clusters",type=integer,JSONPath=`.status.clusters`
// +kubebuilder:printcolumn:name="Last Query",type=string,JSONPath=`.status.lastQuery.outcome`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SearchDomain struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says where to look.
	Spec SearchDomainSpec `json:"spec"`

	// Status is what was found. Only the agent writes it.
	//
	// +kubebuilder:default={}
	Status SearchDomainStatus `json:"status,omitzero"`
}

// SearchDomainSpec says where to look for clusters.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minIntervalSeconds) || !has(self.maxIntervalSeconds) || self.minIntervalSeconds <= self.maxIntervalSeconds",message="minIntervalSeconds must not be greater than maxIntervalSeconds"
type SearchDomainSpec struct {
	// Domain is the DNS domain, such as example.com.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches(r'^[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?)*\.?$')",message="domain must be the name of a DNS domain, such as example.com: letters, digits and hyphens between dots"
	Domain string `json:"domain"`

	// Autojoin says whether clusters found here are joined if they are trusted. It
	// goes before the setting for all clusters; when it is left out, that one counts.
	Autojoin *bool `json:"autojoin,omitempty"`

	// Server is the DNS server to ask: a host name or address with or without a port,
	// or tls:// and that for DNS over TLS. When it is left out, those of the system
	// are asked.
	//
	// +kubebuilder:validation:MaxLength=270
	// +kubebuilder:validation:XValidation:rule="!self.contains('://') || self.startsWith('tls://')",message="server may begin with tls://, for DNS over TLS, and with no other scheme: plain DNS is asked when there is none, as with 192.0.2.53"
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches(r'^([A-Za-z]+://)?([A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_])?(:[0-9]*)?|\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[-A-Za-z0-9_.]+)?\]:[0-9]*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[-A-Za-z0-9_.]+)?)$')",message="server must be a host name or an IP address, with or without a port: 192.0.2.53, ns.example.com:53, [2001:db8::53]:53, and tls:// before it for DNS over TLS"
	// +kubebuilder:validation:XValidation:rule="!self.matches(r'^([A-Za-z]+://)?([^:/\[\]]+|\[[^\[\]]*\]):[0-9]*$') || (self.matches(r':[0-9]{1,5}$') && int(self.substring(self.lastIndexOf(':') + 1)) >= 1 && int(self.substring(self.lastIndexOf(':') + 1)) <= 65535)",message="server must have a port between 1 and 65535, or none, which means 53, with tls:// 853"
	Server string `json:"server,omitempty"`

	// MinIntervalSeconds is the shortest time between two looks, which follow the TTL
	// of what was found. When it is left out, the default of the configuration file.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	MinIntervalSeconds int64 `json:"minIntervalSeconds,omitempty"`

	// MaxIntervalSeconds is the longest time between two looks.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	MaxIntervalSeconds int64 `json:"maxIntervalSeconds,omitempty"`
}

// SearchDomainStatus is what was found in a domain. It changes when what was
// found does, and not with each look.
type SearchDomainStatus struct {
	// LastQuery is what the last look at the domain gave.
	LastQuery *SearchDomainQuery `json:"lastQuery,omitempty"`

	// Clusters is how many clusters were found that answer.
	Clusters int64 `json:"clusters,omitempty"`

	// Found lists what the domain lists, by name; the first hundred.
	//
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	Found []SearchDomainEntry `json:"found,omitempty"`

	// Conditions say how looking at the domain goes.
	//
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []Condition `json:"conditions,omitempty"`
}

// SearchDomainQuery is what a look at a domain gave.
type SearchDomainQuery struct {
	// Time is when a look gave this outcome first.
	Time metav1.Time `json:"time,omitempty"`

	// Outcome is Found, NoData, NoName, ServerFailure, Refused, Timeout, Unreachable
	// or BadAnswer.
	//
	// +kubebuilder:validation:MaxLength=64
	Outcome string `json:"outcome,omitempty"`

	// Server is the DNS server that answered.
	//
	// +kubebuilder:validation:MaxLength=300
	Server string `json:"server,omitempty"`

	// Authenticated says that the DNS server validated all answers (DNSSEC).
	Authenticated bool `json:"authenticated,omitempty"`
}

// SearchDomainEntry is something that a domain lists.
type SearchDomainEntry struct {
	// Name is its DNS name.
	//
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`

	// ClusterID is the cluster that answers there; empty when none does.
	//
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"clusterID,omitempty"`

	// Reason is why it is left out, in one word for programs; empty when it is not.
	//
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// Message is why, in a sentence for people; of a cluster that is not left out, why it
	// is not joined although it is to be, by itself or because somebody said so.
	//
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// The types of conditions on a SearchDomain.
const (
	// ConditionResolved: the last look at the domain was answered, if only by "there
	// is nothing". Its reason is the outcome.
	ConditionResolved = "Resolved"
	// ConditionComplete: everything that the domain lists was understood and answers.
	// Otherwise it says how much was left out, and for example what.
	ConditionComplete = "Complete"
	// ConditionAutojoined: everything that answers is joined that is to be, by itself or
	// because somebody said so. It is only shown while it is false, and says how many
	// are not, and for example which and why.
	ConditionAutojoined = "Autojoined"
	// ConditionIgnored: the object has no effect, and why: another one names the same
	// domain.
	ConditionIgnored = "Ignored"
)
