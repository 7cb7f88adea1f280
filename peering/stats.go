package peering

import (
	"sync/atomic"

	"liqo.io/agent/kube/conn"
)

// Stats are what the Controller did since New, besides what Status
// says.
type Stats struct {
	conn.Stats

	// Reconciled are the looks at a cluster that came to an end. Retried are those
	// that failed and are tried again, and Rejected those where the API server refused
	// an object as invalid.
	Reconciled, Retried, Rejected uint64
}

// looks counts looks at clusters by how they ended.
type looks struct{ reconciled, retried, rejected atomic.Uint64 }

// Stats returns the counts. Any goroutine may call it at any time.
func (c *Controller) Stats() Stats {
	return Stats{
		Stats:      c.link.Stats(),
		Reconciled: c.looks.reconciled.Load(), Retried: c.looks.retried.Load(), Rejected: c.looks.rejected.Load(),
	}
}
