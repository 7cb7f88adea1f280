package sharing

import "liqo.io/agent/sharing/usage"

// measured returns a virtual node for the measurement of what its pods use.
func (s *Sharing) measured(name string) (usage.Node, bool) {
	id, guests, ok := s.pods.Guests(name)
	if !ok {
		return usage.Node{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.providers[id]
	if known == nil {
		return usage.Node{}, false
	}
	return usage.Node{Remote: known.link, Guests: guests}, true
}
