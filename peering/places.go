package peering

import (
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

// URLProber asks who answers at the URLs that people write into ForeignClusters. Its
// methods are called on several goroutines and must not block.
type URLProber interface {
	// Look has the URL of a ForeignCluster asked, again and again: id is the cluster
	// that the object is about, "" when it does not say. Saying the same again
	// changes nothing.
	Probe(object string, url string, id peer.ClusterID)
	// Leave ends that.
	Stop(object string)
	// Result returns who answers there; false when nothing is known yet.
	Result(object string) (plan.ProbeResult, bool)
}
