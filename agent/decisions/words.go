package decisions

import (
	"cmp"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// reference returns how to name a peer in a command.
func reference(id peer.ClusterID, r record, name string) string {
	return peer.Reference(id, r.Preferences.Alias, name)
}

// reference returns how to name a peer in a command.
func (s *Store) reference(id peer.ClusterID) string {
	seen, _ := s.cfg.Peer(id)
	return reference(id, s.record(id), seen.Name)
}

// or returns said as one line, or instead if it is empty.
func or(said, instead string) string { return cmp.Or(text.Sentence(said), instead) }
