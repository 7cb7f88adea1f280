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
)

// Labels and annotations of Liqo (pkg/consts: namespace_mapping.go, core.go, authentication.go,
// replication.go).
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
