package domains

import (
	"fmt"
	"testing"

	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

// Whoever writes into a domain can list clusters under new IDs without end. Of those that are gone nothing is kept.
func TestRemarksAreForgotten(t *testing.T) {
	b := newBed()
	for i := range 100 {
		id := peer.ClusterID(fmt.Sprint("stranger-", i))
		b.peers[id] = peer.Peer{ID: id, Domains: []string{"a.example"}}
		b.policies[id] = plan.Policy{NotAutojoined: plan.NotAutojoined{Message: "its key is not trusted"}}
		b.Remark(id)
		if i%2 == 0 {
			delete(b.peers, id) // nobody sees it any more
		} else {
			b.peers[id] = peer.Peer{ID: id, Links: []string{"eth0"}} // it is seen, and not by a domain
		}
		b.Remark(id)
	}
	if n := len(b.set.remarks); n > 0 {
		t.Errorf("%d clusters that no domain lists are remembered", n)
	}
}
