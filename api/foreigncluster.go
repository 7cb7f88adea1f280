package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ForeignCluster is a remote cluster that this cluster knows of. The agent
// creates one for every cluster it discovers; create one by hand to reach a
// cluster that cannot be discovered, and set spec.join to peer with it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=foreignclusters,scope=Cluster,shortName=fc,categories=liqo
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster Name",type=string,JSONPath=`.spec.clusterIdentity.clusterName`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.status.role`
// +kubebuilder:printcolumn:name="Outgoing",type=boolean,JSONPath=`.status.outgoing.joined`
// +kubebuilder:printcolumn:name="Incoming",type=boolean,JSONPath=`.status.incoming.joined`
// +kubebuilder:printcolumn:name="Discovery",type=string,JSONPath=`.spec.discoveryType`
// +kubebuilder:printcolumn:name="Access",type=string,JSONPath=`.status.conditions[?(@.type=="AccessRequested")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reachable",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Reachable")].status`
// +kubebuilder:printcolumn:name="Join",type=boolean,priority=1,JSONPath=`.spec.join`
// +kubebuilder:printcolumn:name="Trust",type=string,priority=1,JSONPath=`.spec.trustMode`
// +kubebuilder:printcolumn:name="URL",type=string,priority=1,JSONPath=`.spec.authUrl`
type ForeignCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which cluster this is, where it is, and whether to peer with it.
	Spec ForeignClusterSpec `json:"spec"`

	// Status is what the agent knows about the cluster. Only the agent writes it.
	//
	// +kubebuilder:default={}
	Status ForeignClusterStatus `json:"status,omitzero"`
}

// ForeignClusterSpec says which cluster this is, where it is, and whether to
// peer with it.
//
// +kubebuilder:validation:XValidation:rule="has(self.authUrl) || (has(self.clusterIdentity) && has(self.clusterIdentity.clusterID))",message="set authUrl (where the cluster's endpoint is) or clusterIdentity.clusterID (to wait until it is discovered)"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.clusterIdentity) || !has(oldSelf.clusterIdentity.clusterID) || (has(self.clusterIdentity) && has(self.clusterIdentity.clusterID) && self.clusterIdentity.clusterID == oldSelf.clusterIdentity.clusterID)",message="clusterIdentity.clusterID cannot change: delete this ForeignCluster and create another one"
type ForeignClusterSpec struct {
	// ClusterIdentity identifies the remote cluster. Discovery sets it; by hand
	// it may be left out when authUrl is given.
	ClusterIdentity *ClusterIdentity `json:"clusterIdentity,omitempty"`

	// Namespace is where Liqo lives in the remote cluster, as that cluster says.
	// Discovery sets it.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`

	// Join asks for resources of the remote cluster: true starts a peering, false
	// ends it. It belongs to the user. The agent sets it to true when it was told
	// to connect, on the command line or by its configuration, and to false when
	// the provider ends the peering and when the user says so on the command
	// line; what is set with kubectl is remembered like what the command line
	// says. The peering starts once the cluster is trusted.
	//
	// +kubebuilder:default=false
	Join bool `json:"join"`

	// DiscoveryType says how the remote cluster was found.
	//
	// +kubebuilder:default=Manual
	DiscoveryType DiscoveryType `json:"discoveryType,omitempty"`

	// AuthURL is the endpoint of the remote cluster: https://ADDRESS:PORT, where
	// ADDRESS is a host name or an IP address. On a discovered cluster the agent
	// keeps it at the address that answers.
	//
	// +kubebuilder:validation:XValidation:rule="self != ''",message="authUrl must not be empty: write https://ADDRESS:PORT, or leave it out"
	AuthURL EndpointURL `json:"authUrl,omitempty"`

	// TrustMode says whether the key that status.fingerprint shows is trusted to
	// belong to this cluster. Setting it to Trusted pins that key: compare the
	// verification code of the Trusted condition with the one that the other side
	// shows first. While condition AccessRequested says that the cluster asks to use
	// this one, Trusted lets it in, too, and Untrusted refuses it. Setting it to
	// Untrusted takes the trust back. The agent keeps
	// it in step with trust that was given in another way; the Trusted condition
	// says in which.
	//
	// +kubebuilder:default=Unknown
	TrustMode TrustMode `json:"trustMode,omitempty"`
}

// EndpointURL is where the endpoint of a cluster is: https://ADDRESS:PORT, where
// ADDRESS is a host name or an IP address, IPv6 in brackets. Without a port it is
// 443. The empty string is valid as well.
//
// The rules use no function that API servers of 2022 do not have.
//
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.lowerAscii().startsWith('https://')",message="authUrl must begin with https://, as in https://192.0.2.1:6447"
// +kubebuilder:validation:XValidation:rule="!self.lowerAscii().startsWith('https://') || isURL(self) || self.matches(r'^[A-Za-z]+://[^/?#@\[\]]*:[^/?#@\[\]]*:')",message="authUrl is no URL: write https://ADDRESS:PORT, where ADDRESS is a host name or an IP address and PORT a number"
// +kubebuilder:validation:XValidation:rule="!self.matches(r'^[A-Za-z]+://[^/?#@\[\]]*:[^/?#@\[\]]*:')",message="authUrl must have an IPv6 address in brackets, as in https://[2001:db8::1]:6447"
// +kubebuilder:validation:XValidation:rule="!self.lowerAscii().startsWith('https://') || !isURL(self) || size(url(self).getHostname()) > 0",message="authUrl has no host: write a host name or an IP address after https://"
// +kubebuilder:validation:XValidation:rule="!isURL(self) || (!url(self).getHost().endsWith(':') && (size(url(self).getPort()) == 0 || (size(url(self).getPort()) <= 5 && int(url(self).getPort()) >= 1 && int(url(self).getPort()) <= 65535)))",message="authUrl must have a port between 1 and 65535, or none, which means 443"
// +kubebuilder:validation:XValidation:rule="!self.contains('@')",message="authUrl must not hold a user name or password: clusters know each other by their keys"
// +kubebuilder:validation:XValidation:rule="!self.contains('?') && !self.contains('#') && (!self.lowerAscii().startsWith('https://') || !isURL(self) || size(url(self).getEscapedPath()) == 0 || url(self).getEscapedPath() == '/')",message="authUrl must end after the port: leave out the path, query or fragment"
type EndpointURL = string

// ClusterIdentity identifies a cluster.
type ClusterIdentity struct {
	// ClusterID is the stable identifier of the cluster, unique among all
	// clusters. It cannot change once it is set.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ClusterID string `json:"clusterID,omitempty"`

	// ClusterName is the name of the cluster for people. It may change and need
	// not be unique.
	//
	// +kubebuilder:validation:MaxLength=63
	ClusterName string `json:"clusterName,omitempty"`
}

// DiscoveryType says how a cluster was found.
//
// +kubebuilder:validation:Enum=LAN;WAN;Manual;IncomingPeering
type DiscoveryType string

// The ways a cluster can be found.
const (
	DiscoveryLAN             DiscoveryType = "LAN"
	DiscoveryWAN             DiscoveryType = "WAN"
	DiscoveryManual          DiscoveryType = "Manual"
	DiscoveryIncomingPeering DiscoveryType = "IncomingPeering"
)

// TrustMode says whether a cluster's key is trusted.
//
// +kubebuilder:validation:Enum=Unknown;Trusted;Untrusted
type TrustMode string

// The trust a cluster's key can have.
const (
	TrustUnknown   TrustMode = "Unknown"
	TrustTrusted   TrustMode = "Trusted"
	TrustUntrusted TrustMode = "Untrusted"
)
