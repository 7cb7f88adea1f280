package peering

import "liqo.io/agent/peer"

// ForeignCluster returns the name of the ForeignCluster that stands for a
// cluster in the local API server, and "" when there is none or no connection.
// Any goroutine may call it at any time.
func (c *Controller) ForeignCluster(id peer.ClusterID) string {
	c.mu.Lock()
	s := c.session
	c.mu.Unlock()
	if s == nil {
		return ""
	}
	objects := s.store.about(id)
	if len(objects) == 0 {
		return ""
	}
	return objects[0].Name
}
