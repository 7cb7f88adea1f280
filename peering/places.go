package peering

import "liqo.io/agent/peer"

// Places asks the URLs that people write into ForeignClusters who is there. Its
// methods are called on several goroutines and must not block.
type Places interface {
	// Look has the URL of a ForeignCluster asked, again and again: id is the cluster
	// that the object is about, "" when it does not say. Saying the same again
	// changes nothing.
	Look(object string, url string, id peer.ClusterID)
	// Leave ends that.
	Leave(object string)
	// Found returns what is known; false when nothing was asked yet.
	Found(object string) (Found, bool)
}

// Found is who answers at a place.
type Found struct {
	URL         string // that was asked
	ID          peer.ClusterID
	ClusterName string
	Namespace   string
	Fingerprint peer.Fingerprint
	// Reason is "" if it is a cluster that we can deal with, else one word for
	// programs; Message says it to people.
	Reason, Message string
}
