package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/trust"
)

// ledger is a peering.Ledger in memory, which does what the interface says and
// nothing clever. It outlives the Controller as a disk does.
type ledger struct {
	mu        sync.Mutex
	changed   func(peer.ClusterID)
	standings map[peer.ClusterID]*peering.Standing
	told      []string // everything it was told
	replaced  []string // but this, which is a matter of the history only
}

func newLedger() *ledger {
	return &ledger{changed: func(peer.ClusterID) {}, standings: make(map[peer.ClusterID]*peering.Standing)}
}

// tells has changed told of every change.
func (l *ledger) tells(changed func(peer.ClusterID)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = changed
}

var (
	accepted = peering.AcceptDecision{Phase: api.RequestAccepted, Reason: "Accepted", Message: "A person accepted the cluster."}
	pending  = peering.AcceptDecision{Phase: api.RequestPending, Reason: "WaitsForPerson", Message: "Waits for a person."}
)

func (l *ledger) Standing(id peer.ClusterID) peering.Standing {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.of(id)
}

func (l *ledger) of(id peer.ClusterID) *peering.Standing {
	s := l.standings[id]
	if s == nil {
		s = &peering.Standing{Accept: pending}
		l.standings[id] = s
	}
	return s
}

// change is what a person does on the command line.
func (l *ledger) change(id peer.ClusterID, f func(*peering.Standing)) {
	l.mu.Lock()
	f(l.of(id))
	changed := l.changed
	l.mu.Unlock()
	changed(id)
}

func (l *ledger) note(id peer.ClusterID, text string, f func(*peering.Standing)) error {
	l.mu.Lock()
	f(l.of(id))
	l.told = append(l.told, id.Short()+" "+text)
	changed := l.changed
	l.mu.Unlock()
	changed(id)
	return nil
}

// heard returns how often it was told something that begins with text.
func (l *ledger) heard(id peer.ClusterID, text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, t := range l.told {
		if strings.HasPrefix(t, id.Short()+" "+text) {
			n++
		}
	}
	return n
}

func (l *ledger) story() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.told)
}

func wish(yes bool) peering.Wish {
	if yes {
		return peering.WishYes
	}
	return peering.WishNo
}

func pinOf(id peer.ClusterID, fp peer.Fingerprint, by string) *peer.Pin {
	return &peer.Pin{ID: id, Fingerprint: fp, Method: peer.TrustPerson, By: by, At: time.Now().Truncate(time.Second)}
}

func (l *ledger) JoinEdited(_ context.Context, id peer.ClusterID, join bool, by, stamp string) error {
	return l.note(id, fmt.Sprintf("join %v by %s", join, by), func(s *peering.Standing) {
		s.Connect, s.ConnectReason, s.JoinStamp = wish(join), by+" set spec.join", stamp
		if join {
			s.Anew++
		}
	})
}

func (l *ledger) TrustEdited(_ context.Context, id peer.ClusterID, mode api.TrustMode, shown peer.Fingerprint, by, stamp string) error {
	return l.note(id, fmt.Sprintf("trust %s by %s", mode, by), func(s *peering.Standing) {
		s.TrustStamp, s.Distrusted, s.Pin = stamp, mode == api.TrustUntrusted, nil
		if mode == api.TrustTrusted && !shown.IsZero() {
			s.Pin = pinOf(id, shown, by)
		}
	})
}

func (l *ledger) HungUp(_ context.Context, id peer.ClusterID, by string) error {
	return l.note(id, "hung up by "+by, func(s *peering.Standing) { s.Connect = peering.WishNo })
}

func (l *ledger) Decided(_ context.Context, id peer.ClusterID, accept bool, _ peer.Fingerprint, by string) error {
	return l.note(id, fmt.Sprintf("decided %v by %s", accept, by), func(s *peering.Standing) {
		if s.Accept.Phase = api.RequestRefused; accept {
			s.Accept = accepted
		}
	})
}

func (l *ledger) Forgot(_ context.Context, id peer.ClusterID) error {
	return l.note(id, "forgot", func(s *peering.Standing) {
		s.Connect, s.Forgotten, s.JoinStamp, s.TrustStamp = peering.WishNone, false, "", ""
	})
}

func (l *ledger) EndedByProvider(_ context.Context, id peer.ClusterID, reason string) error {
	return l.note(id, "ended by provider: "+reason, func(s *peering.Standing) { s.Connect = peering.WishNo })
}

func (l *ledger) EndedHere(_ context.Context, id peer.ClusterID, reason string) error {
	return l.note(id, "ended here: "+reason, func(s *peering.Standing) { s.Ended, s.Accept, s.LastServed = reason, pending, false })
}

func (l *ledger) Replaced(_ context.Context, _ peer.ClusterID, object string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replaced = append(l.replaced, object)
	return nil
}

// history returns, and forgets, the objects that took the place of the agent's.
func (l *ledger) history() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	replaced := l.replaced
	l.replaced = nil
	return replaced
}

func (l *ledger) Joined(_ context.Context, id peer.ClusterID, joined bool, why string) error {
	return l.note(id, fmt.Sprintf("joined %v: %s", joined, why), func(s *peering.Standing) { s.LastJoined = joined })
}

func (l *ledger) Served(_ context.Context, id peer.ClusterID, served bool, why string) error {
	return l.note(id, fmt.Sprintf("served %v: %s", served, why), func(s *peering.Standing) {
		s.LastServed = served
		if served {
			s.Ended = ""
		}
	})
}

func (l *ledger) Requested(_ context.Context, id peer.ClusterID, phase api.RequestPhase, reason string) error {
	return l.note(id, fmt.Sprintf("requested %s: %s", phase, reason), func(s *peering.Standing) { s.Asked = false })
}

// admit is endpoint.Peers.Admit.
func (l *ledger) admit(id peer.ClusterID, shown trust.Shown) endpoint.Standing {
	s := l.Standing(id)
	switch {
	case s.Blocked:
		return endpoint.Shut
	case s.Pin != nil && s.Pin.Fingerprint == shown.Fingerprint:
		return endpoint.Known
	}
	return endpoint.Stranger
}
