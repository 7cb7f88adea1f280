package peering

import "liqo.io/agent/peer"

// ForeignCluster returns the name of the ForeignCluster that stands for a
// cluster in the local API server, and "" when there is none or no connection.
// Any goroutine may call it at any time.
func (c *Controller) ForeignCluster(id peer.ClusterID) string {
	s := c.current()
	if s == nil {
		return ""
	}
	name := ""
	for _, fc := range s.foreign.About(id) {
		if name == "" || fc.ClusterID() == string(id) {
			name = fc.Name
		}
	}
	return name
}
