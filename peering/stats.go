package peering

import (
	"sync/atomic"

	"liqo.io/agent/kube/tally"
)

// Stats are what the Controller did since New, besides what Status says.
type Stats struct {
	Connections  uint64 // to an API server that came about
	Requests     []tally.Count
	Took         tally.Distribution // of Requests
	PeerRequests []tally.Count      // of peers, which the gateway passed on
	PeerTook     tally.Distribution // of PeerRequests

	// Reconciled are the looks at a cluster that came to an end. Retried are those
	// that failed and are tried again, and Rejected those where the API server refused
	// an object as invalid.
	Reconciled, Retried, Rejected uint64
}

// looks counts looks at clusters by how they ended.
type looks struct{ reconciled, retried, rejected atomic.Uint64 }

// Stats returns the counts. Any goroutine may call it at any time.
func (c *Controller) Stats() Stats {
	l := c.link
	return Stats{
		Connections: l.connections.Load(),
		Requests:    l.requests.Counts(), Took: l.requests.Took(),
		PeerRequests: l.peerRequests.Counts(), PeerTook: l.peerRequests.Took(),
		Reconciled: l.looks.reconciled.Load(), Retried: l.looks.retried.Load(), Rejected: l.looks.rejected.Load(),
	}
}
