package peering

import "liqo.io/agent/api"

// Requests returns the PeeringRequests in the local API server, in no order, and
// none while there is no connection. They are shared: do not change them. Any
// goroutine may call it at any time.
func (c *Controller) Requests() []*api.PeeringRequest {
	s := c.current()
	if s == nil {
		return nil
	}
	return s.requests.All()
}
