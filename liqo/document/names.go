package document

import "k8s.io/apimachinery/pkg/runtime/schema"

// The API versions that Liqo 1.0 to 1.2 serve (apis/*/v1beta1/groupversion_info.go).
var (
	// Authentication has Tenants, Identities and ResourceSlices.
	Authentication = schema.GroupVersion{Group: "authentication.liqo.io", Version: "v1beta1"}
	// Core has Liqo's own ForeignClusters.
	Core = schema.GroupVersion{Group: "core.liqo.io", Version: "v1beta1"}
	// Offloading has VirtualNodes.
	Offloading = schema.GroupVersion{Group: "offloading.liqo.io", Version: "v1beta1"}
	// Networking has Configurations, gateways and PublicKeys.
	Networking = schema.GroupVersion{Group: "networking.liqo.io", Version: "v1beta1"}
	// IPAM has Networks: the addresses of a cluster (apis/ipam/v1alpha1).
	IPAM = schema.GroupVersion{Group: "ipam.liqo.io", Version: "v1alpha1"}
)

// The kinds of the exchange and the plural names in their paths.
const (
	KindTenant        = "Tenant"
	KindIdentity      = "Identity"
	KindResourceSlice = "ResourceSlice"

	PluralTenants        = "tenants"
	PluralIdentities     = "identities"
	PluralResourceSlices = "resourceslices"
	PluralVirtualNodes   = "virtualnodes"

	KindConfiguration  = "Configuration"
	KindGatewayServer  = "GatewayServer"
	KindGatewayClient  = "GatewayClient"
	KindPublicKey      = "PublicKey"
	KindServerTemplate = "WgGatewayServerTemplate"
	KindClientTemplate = "WgGatewayClientTemplate"

	PluralConfigurations  = "configurations"
	PluralGatewayServers  = "gatewayservers"
	PluralGatewayClients  = "gatewayclients"
	PluralPublicKeys      = "publickeies"
	PluralServerTemplates = "wggatewayservertemplates"
	PluralClientTemplates = "wggatewayclienttemplates"
	PluralNetworks        = "networks"
)

// Labels and annotations of Liqo (pkg/consts: namespace_mapping.go, core.go, authentication.go,
// replication.go, externalnetwork.go, ipam.go).
const (
	// LabelRemoteCluster has the ID of the other cluster, on everything that is about it.
	LabelRemoteCluster = "liqo.io/remote-cluster-id"
	// LabelTenantNamespace is "true" on the namespaces that stand for other clusters.
	LabelTenantNamespace = "liqo.io/tenant-namespace"
	// LabelNonce is "true" on the Secret that Liqo's controllers put a nonce into.
	LabelNonce = "liqo.io/nonce"
	// LabelSignedNonce is "true" on the Secret whose nonce they sign.
	LabelSignedNonce = "liqo.io/signed-nonce"
	// LabelReplication is "true" on what the CRD replicator is to take to the other cluster,
	// and LabelReplicationTo has that cluster's ID.
	LabelReplication   = "liqo.io/replication"
	LabelReplicationTo = "liqo.io/remoteID"
	// AnnotationVirtualNode is "true" on a ResourceSlice that is to become a VirtualNode.
	AnnotationVirtualNode = "liqo.io/create-virtual-node"
	// LabelGateway is "true" on the Secrets with keys of gateways, and on PublicKeys.
	LabelGateway = "networking.liqo.io/gateway-resource"
	// LabelNetworkType says on a Network what its addresses are for: NetworkPods or NetworkExternal.
	LabelNetworkType = "ipam.liqo.io/network-type"
	NetworkPods      = "pod-cidr"
	NetworkExternal  = "external-cidr"
)

// Gateways as liqoctl makes them (pkg/liqo-controller-manager/networking/forge).
const (
	ServerTemplate = "wireguard-server"
	ClientTemplate = "wireguard-client"
	// GatewayPort is the port of a GatewayServer's Service, and GatewayMTU that of the tunnel.
	GatewayPort = 51840
	GatewayMTU  = 1340
)

// AnnotationAddress is the agent's: the addresses with which a Tenant and a VirtualNode work.
const AnnotationAddress = "discovery.liqo.io/liqo-address"

// Objects of the exchange (pkg/liqo-controller-manager/authentication/forge, pkg/consts).
const (
	// NonceSecret and SignedNonceSecret are the names of the Secrets in a tenant's namespace.
	NonceSecret       = "liqo-nonce"
	SignedNonceSecret = "liqo-signed-nonce"
	// FieldNonce and FieldSignedNonce are their fields.
	FieldNonce       = "nonce"
	FieldSignedNonce = "signedNonce"
	// CertificateSecret is the Secret with the request that Liqo signed for a consumer.
	CertificateSecret = "liqo-remote-certificate"
	// KeysSecret is the Secret in Liqo's namespace with the key pair of a cluster, in PEM, in
	// FieldPrivateKey and FieldPublicKey.
	KeysSecret      = "authentication-keys"
	FieldPrivateKey = "privateKey"
	FieldPublicKey  = "publicKey"
	// organization is that of the certificates of control planes.
	organization = "liqo.io"
	// tenantPrefix begins the names of tenants' namespaces (pkg/tenantNamespace).
	tenantPrefix = "liqo-tenant-"
	// identityPrefix begins the names of Identities of type ControlPlane.
	identityPrefix = "controlplane-"
)

// The values of an Identity's type (apis/authentication/v1beta1/identity_types.go).
const (
	// IdentityControlPlane is the Identity by which objects are replicated.
	IdentityControlPlane = "ControlPlane"
)
