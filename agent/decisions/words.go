package decisions

import (
	"cmp"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// reference is how a person names a peer in a command.
func reference(id peer.ClusterID, r record, name string) string {
	return peer.Reference(id, r.Preferences.Alias, name)
}

// reference names a peer for a person.
func (s *Store) reference(id peer.ClusterID) string {
	seen, _ := s.cfg.Peer(id)
	return reference(id, s.record(id), seen.Name)
}

// or returns what somebody said as one line, or instead when there is nothing.
func or(said, instead string) string { return cmp.Or(text.Sentence(said), instead) }
