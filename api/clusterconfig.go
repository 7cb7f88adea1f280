package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ConfigGroupVersion is the API group and version of the resources about the
// agent's configuration.
var ConfigGroupVersion = schema.GroupVersion{Group: "config.liqo.io", Version: "v1alpha1"}

// ClusterConfigName is the name of the one ClusterConfig that counts.
const ClusterConfigName = "liqo-configuration"

// ClusterConfig sets what may be changed while the agent runs. A field that is
// set here wins over the configuration file and takes effect at once; one that is
// not set follows the file. The agent creates the object, empty, and never writes
// a value into its spec. Its status says how the agent is.
//
// +kubebuilder:object:root=true
// +groupName=config.liqo.io
// +kubebuilder:resource:path=clusterconfigs,scope=Cluster,shortName=cc,categories=liqo
// +kubebuilder:printcolumn:name="Discovery",type=boolean,JSONPath=`.status.effective.enableDiscovery`
// +kubebuilder:printcolumn:name="Advertisement",type=boolean,JSONPath=`.status.effective.enableAdvertisement`
// +kubebuilder:printcolumn:name="Autojoin",type=boolean,JSONPath=`.status.effective.autojoin`
// +kubebuilder:printcolumn:name="Sharing",type=boolean,JSONPath=`.status.effective.enableBroadcaster`
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.status.conditions[?(@.type=="Healthy")].status`
// +kubebuilder:printcolumn:name="Problem",type=string,JSONPath=`.status.conditions[?(@.type=="Healthy")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'liqo-configuration'",message="the agent reads the ClusterConfig named liqo-configuration only"
type ClusterConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec holds the settings.
	//
	// +kubebuilder:default={}
	Spec ClusterConfigSpec `json:"spec,omitzero"`

	// Status says how the agent is. It is the agent's alone.
	Status ClusterConfigStatus `json:"status,omitzero"`
}

// ClusterConfigStatus says how the agent is.
type ClusterConfigStatus struct {
	// Conditions are the agent's observations of itself: Healthy.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`

	// Effective is what holds now, wherever it is set: here, in the configuration file
	// or nowhere.
	Effective *EffectiveConfig `json:"effective,omitempty"`
}

// EffectiveConfig is what holds of the settings that people look for first.
type EffectiveConfig struct {
	// EnableDiscovery: neighbours on the LAN are looked for.
	EnableDiscovery bool `json:"enableDiscovery"`

	// EnableAdvertisement: neighbours are let find this cluster.
	EnableAdvertisement bool `json:"enableAdvertisement"`

	// Autojoin: newly found clusters that the configuration trusts are joined.
	Autojoin bool `json:"autojoin"`

	// EnableBroadcaster: resources are offered to clusters that ask.
	EnableBroadcaster bool `json:"enableBroadcaster"`
}

// ConditionHealthy is the type of the one condition of a ClusterConfig: nothing is
// the matter with the agent that a person should know of. While it is False, the
// reason names the worst problem, and the message what to do about it.
const ConditionHealthy = "Healthy"

// ClusterConfigSpec holds the settings. What is left out follows the agent's
// configuration file.
type ClusterConfigSpec struct {
	// DiscoveryConfig is about finding other clusters, and being found.
	DiscoveryConfig *DiscoveryConfig `json:"discoveryConfig,omitempty"`

	// AuthConfig is about who is trusted.
	AuthConfig *AuthConfig `json:"authConfig,omitempty"`

	// AdvertisementConfig is about sharing resources.
	AdvertisementConfig *AdvertisementConfig `json:"advertisementConfig,omitempty"`
}

// DiscoveryConfig is about finding other clusters, and being found.
type DiscoveryConfig struct {
	// ClusterName is the name shown to other clusters (cluster.name).
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="size(bytes(self)) <= 63 && self == self.trim() && self.matches(r'^[\p{L}\p{M}\p{N}\p{P}\p{S} ]*$')",message="clusterName must be printable text of at most 63 bytes, without spaces around it"
	ClusterName *string `json:"clusterName,omitempty"`

	// EnableDiscovery: look for neighbours on the LAN (discovery.enable_discovery).
	EnableDiscovery *bool `json:"enableDiscovery,omitempty"`

	// EnableAdvertisement: let neighbours find this cluster
	// (discovery.enable_advertisement).
	EnableAdvertisement *bool `json:"enableAdvertisement,omitempty"`

	// Autojoin: join newly found clusters that the configuration trusts
	// (discovery.autojoin).
	Autojoin *bool `json:"autojoin,omitempty"`

	// AutojoinUntrusted: join newly found clusters that are not trusted, too
	// (discovery.autojoin_untrusted).
	AutojoinUntrusted *bool `json:"autojoinUntrusted,omitempty"`

	// TTL is for how many seconds neighbours may keep our announcement without
	// hearing it again (discovery.ttl).
	//
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	TTL *int64 `json:"ttl,omitempty"`

	// Domain is the domain of multicast DNS names (discovery.domain).
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches(r'^[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?)*\.?$')",message="domain must be a domain name, such as local: letters, digits and hyphens between dots"
	Domain *string `json:"domain,omitempty"`

	// Service is the DNS-SD service type (discovery.service).
	//
	// +kubebuilder:validation:MaxLength=22
	// +kubebuilder:validation:XValidation:rule="self.matches(r'^_[A-Za-z0-9]([-A-Za-z0-9]{0,13}[A-Za-z0-9])?\._tcp$') && self.matches(r'^_[-0-9]*[A-Za-z]') && !self.contains('--')",message="service must be a DNS-SD service over TCP, such as _liqo._tcp: up to 15 letters, digits and single inner hyphens, at least one of them a letter, between _ and ._tcp"
	Service *string `json:"service,omitempty"`
}

// AuthConfig is about who is trusted.
type AuthConfig struct {
	// AllowEmptyToken: trust anyone who asks (trust.allow_empty_token). For
	// playgrounds only.
	AllowEmptyToken *bool `json:"allowEmptyToken,omitempty"`
}

// AdvertisementConfig is about sharing resources.
type AdvertisementConfig struct {
	// OutgoingConfig is about what this cluster offers.
	OutgoingConfig *OutgoingConfig `json:"outgoingConfig,omitempty"`

	// IngoingConfig is about what other clusters offer.
	IngoingConfig *IngoingConfig `json:"ingoingConfig,omitempty"`

	// KeepaliveThreshold is after how many failed checks in a row a provider's node is
	// not ready (sharing.keepalive_threshold).
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	KeepaliveThreshold *int64 `json:"keepaliveThreshold,omitempty"`

	// KeepaliveRetryTime is the time between two checks of a provider of which the
	// last one failed, in seconds (sharing.keepalive_retry).
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	KeepaliveRetryTime *int64 `json:"keepaliveRetryTime,omitempty"`
}

// OutgoingConfig is about what this cluster offers.
type OutgoingConfig struct {
	// EnableBroadcaster: offer resources to clusters that ask (sharing.enable).
	// Switched off, offers are withdrawn, and what others run here ends.
	EnableBroadcaster *bool `json:"enableBroadcaster,omitempty"`

	// ResourceSharingPercentage is how much of what is free is offered
	// (sharing.percentage).
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	ResourceSharingPercentage *int64 `json:"resourceSharingPercentage,omitempty"`
}

// IngoingConfig is about what other clusters offer.
type IngoingConfig struct {
	// AcceptPolicy decides about Advertisements (sharing.accept_policy), as long as
	// nobody decided about one.
	AcceptPolicy *AcceptPolicy `json:"acceptPolicy,omitempty"`

	// MaxAcceptableAdvertisement is how many AutoAcceptMax accepts at most
	// (sharing.max_accepted). Those that are accepted stay when it is lowered.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MaxAcceptableAdvertisement *int64 `json:"maxAcceptableAdvertisement,omitempty"`
}

// AcceptPolicy decides about Advertisements.
//
// +kubebuilder:validation:Enum=AutoAcceptMax;Manual
type AcceptPolicy string

// The policies for Advertisements.
const (
	// AcceptAutoMax accepts as they come, up to a number.
	AcceptAutoMax AcceptPolicy = "AutoAcceptMax"
	// AcceptManual leaves it to people.
	AcceptManual AcceptPolicy = "Manual"
)
