package contact

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"liqo.io/agent/peer"
)

// views is the published side: immutable snapshots behind a lock.
type views struct {
	mu     sync.RWMutex
	states map[peer.Key]*State
}

func (v *views) get(k peer.Key) (State, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	s := v.states[k]
	if s == nil {
		return State{}, false
	}
	return *s, true
}

func (v *views) matching(match func(peer.Key) bool) []State {
	v.mu.RLock()
	var found []*State
	for k, s := range v.states {
		if match(k) {
			found = append(found, s)
		}
	}
	v.mu.RUnlock()
	slices.SortFunc(found, func(a, b *State) int { return compareKeys(a.Lead.Key, b.Lead.Key) })
	out := make([]State, len(found))
	for i, s := range found {
		out[i] = *s
	}
	return out
}

func (v *views) put(k peer.Key, s *State) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.states[k] = s
}

func (v *views) remove(k peer.Key) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.states, k)
}

// sameNews reports whether two states of a lead differ in nothing but the times.
func (s *State) sameNews(o *State) bool {
	return s.Lead.equal(o.Lead) && s.ID == o.ID && s.ClusterName == o.ClusterName && s.Namespace == o.Namespace &&
		s.Fingerprint == o.Fingerprint && s.Reason == o.Reason && s.Message == o.Message
}

// sorted returns a sorted copy.
func sorted(addrs []netip.AddrPort) []netip.AddrPort {
	out := slices.Clone(addrs)
	slices.SortFunc(out, netip.AddrPort.Compare)
	return out
}

// earlier returns the earlier of two times; a zero time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
