package endpointtest

// The paths of the objects that a peer b has at another cluster, and bodies for them.
const (
	OwnRequest = "/kube/apis/discovery.liqo.io/v1alpha1/peeringrequests/b"
	OwnAdvert  = "/kube/apis/sharing.liqo.io/v1alpha1/advertisements/b"

	RequestBody = `{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"PeeringRequest","metadata":{"name":"b"},"spec":{"clusterIdentity":{"clusterID":"b","clusterName":"mill"},"namespace":"liqo"}}`
	AdvertBody  = `{"apiVersion":"sharing.liqo.io/v1alpha1","kind":"Advertisement","metadata":{"name":"b"},"spec":{"clusterId":"b","resourceQuota":{"hard":{"cpu":"3500m"}},"images":[{"names":["x"],"sizeBytes":12345678901234567}],"timestamp":"2026-11-21T00:00:00Z","timeToLive":"2026-11-21T06:00:00Z"}}`
)
