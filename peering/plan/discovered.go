package plan

import (
	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/discovered"
)

func (obs Observed) present() bool {
	return obs.Peer != nil && obs.Peer.Phase == peer.PhasePresent
}

// asker returns a cluster that asked for access and was not discovered, nil for none.
func (obs Observed) asker() *peer.Peer {
	ask := obs.Policy.Ask
	if ask == nil || obs.Peer != nil && !obs.Peer.Fingerprint.IsZero() {
		return nil
	}
	return &peer.Peer{ID: obs.ID, Name: ask.Name, Namespace: ask.Namespace, Source: peer.IncomingPeering, Fingerprint: ask.Fingerprint}
}

// subject returns the cluster of the agent's own object.
func (obs Observed) subject() *peer.Peer {
	if asker := obs.asker(); asker != nil && !obs.present() {
		return asker
	}
	return obs.Peer
}

// gone reports whether the cluster is known to be gone.
func (obs Observed) gone() bool { return obs.Unseen() && (obs.Peer != nil || obs.Settled) }

// Unseen reports whether discovery does not see the cluster, gone or not.
func (obs Observed) Unseen() bool { return obs.Peer == nil || obs.Peer.Phase == peer.PhaseLost }

// classify returns the object that the agent created for the cluster, nil for none, and those of
// people that are not being deleted.
func (obs Observed) classify() (own *api.ForeignCluster, others []*api.ForeignCluster) {
	for _, fc := range obs.Objects {
		switch {
		case fc.ClusterID() != string(obs.ID):
		case fc.Name == string(obs.ID) && fc.CreatedByAgent():
			own = fc
		case fc.DeletionTimestamp == nil:
			others = append(others, fc)
		}
	}
	return own, others
}

// urlProbe returns what is known about fc's URL, nil if it is not probed.
func (obs Observed) urlProbe(fc *api.ForeignCluster) *discovered.Probe {
	probe, asked := obs.URLs[fc.Name]
	if !asked || !discovered.ProbesURL(fc, obs.Owners[fc.Name].Identity) {
		return nil
	}
	probe = probe.Checked(fc, obs.Self.Identity.ClusterID)
	return &probe
}

// discoveredStatus returns what fc's status is to show of discovery.
func (d *derived) discoveredStatus(fc *api.ForeignCluster) discovered.Status {
	return discovered.Seen{Peer: d.Peer, Gone: d.gone(), Asker: d.asker(), Probe: d.urlProbe(fc)}.Status(fc, d.now)
}

// nameTaken reports whether a ForeignCluster that is not about this cluster, or
// is being deleted, has its ID as name, so that none can be created for it.
func (obs Observed) nameTaken() bool {
	for _, fc := range obs.Objects {
		if fc.Name == string(obs.ID) && (fc.ClusterID() != string(obs.ID) || fc.DeletionTimestamp != nil) {
			return true
		}
	}
	return false
}

// NameBlocked reports whether the cluster ought to have a ForeignCluster and cannot
// have one before a person makes room for it.
func (obs Observed) NameBlocked() bool {
	own, others := obs.classify()
	if own != nil || len(others) > 0 || !obs.present() || !obs.nameTaken() {
		return false
	}
	for _, fc := range obs.Objects {
		if fc.DeletionTimestamp != nil {
			return false // it makes room by itself
		}
	}
	return true
}
