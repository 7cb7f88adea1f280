package fields

// The field managers with which the agent applies objects about peers: one per owner
// of fields.
const (
	// ManagerDiscovery owns the discovered fields of ForeignClusters.
	ManagerDiscovery = "liqo-agent-discovery"
	// ManagerIntent owns spec.join and spec.trustMode where the agent set them for
	// a person or the configuration.
	ManagerIntent = "liqo-agent-intent"
	// ManagerForeignCluster owns the finalizer of ForeignClusters, and in their
	// status what became of the peering, but for the two references below.
	ManagerForeignCluster = "liqo-agent-foreigncluster"
	// ManagerPeeringRequest owns the status of PeeringRequests and, in that of
	// ForeignClusters, incoming.peeringRequest.
	ManagerPeeringRequest = "liqo-agent-peeringrequest"
	// ManagerAdvertisement owns the status of Advertisements and, in that of
	// ForeignClusters, outgoing.advertisement.
	ManagerAdvertisement = "liqo-agent-advertisement"
)
