package journal

import (
	"fmt"
	"slices"
	"time"

	"liqo.io/agent/peer"
)

// EventsBetween says what happened to a peer between two views of it, as its
// history will tell it. Unverified peers have no history: anyone can shout.
func EventsBetween(old, cur *peer.Peer, now time.Time) []peer.Event {
	var out []peer.Event
	add := func(kind peer.EventKind, format string, args ...any) {
		out = append(out, peer.Event{At: now, ID: cur.ID, Kind: kind, Detail: fmt.Sprintf(format, args...)})
	}
	known := !old.Fingerprint.IsZero()
	switch {
	case cur.Fingerprint.IsZero():
	case !known:
		add(peer.EventAppeared, "%s at %s", cur.Name, cur.URL)
	case cur.Phase == old.Phase:
	case cur.Phase == peer.PhaseLost:
		add(peer.EventLost, "%s", cur.Reason)
	case cur.Phase == peer.PhaseUnreachable && old.Phase == peer.PhasePresent:
		add(peer.EventUnreachable, "%s", cur.Reason)
	case cur.Phase == peer.PhasePresent:
		add(peer.EventReturned, "at %s", cur.URL)
	}
	if known && cur.URL != old.URL && old.URL != "" {
		add(peer.EventAddressChanged, "%s -> %s", old.URL, cur.URL)
	}
	if known && cur.Name != old.Name && old.Name != "" {
		add(peer.EventNameChanged, "%s -> %s", old.Name, cur.Name)
	}
	switch {
	case cur.Conflict != nil && (old.Conflict == nil || old.Conflict.Fingerprint != cur.Conflict.Fingerprint):
		add(peer.EventConflict, "somebody at %s shows this cluster ID with another key, %s",
			cur.Conflict.Addr, cur.Conflict.Fingerprint)
	case cur.Conflict == nil && old.Conflict != nil:
		add(peer.EventConflictGone, "the key %s is no longer shown", old.Conflict.Fingerprint)
	}
	return out
}

// SameView reports whether two views differ in nothing a user or an API server
// would see change. LastSeen moves all the time and does not count.
func SameView(a, b *peer.Peer) bool {
	return a.ID == b.ID && a.Name == b.Name && a.Namespace == b.Namespace && a.Alias == b.Alias &&
		a.Fingerprint == b.Fingerprint && a.Phase == b.Phase && a.Reason == b.Reason && a.Source == b.Source &&
		a.URL == b.URL && a.Version == b.Version && a.TTL == b.TTL && a.Failures == b.Failures &&
		a.FirstSeen.Equal(b.FirstSeen) && sameConflict(a.Conflict, b.Conflict) &&
		slices.Equal(a.Links, b.Links) && slices.Equal(a.Addrs, b.Addrs) &&
		slices.Equal(a.Sources, b.Sources) && slices.Equal(a.Domains, b.Domains)
}

// SameStored is SameView without what the store does not need to survive: the
// count and text of failures in a row, and which kinds of sources see the peer now.
// Which domains do counts, because the next run takes back what they no longer list.
func SameStored(a, b peer.Peer) bool {
	a.Failures, a.Reason = b.Failures, b.Reason
	a.Sources = b.Sources
	return SameView(&a, &b)
}

func sameConflict(a, b *peer.Conflict) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Fingerprint == b.Fingerprint && a.Addr == b.Addr && a.Since.Equal(b.Since)
}
