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
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/trust"
)

// decisions is a peering.Decisions in memory, which does what the interface says and
// nothing clever. It outlives the Controller as a disk does.
type decisions struct {
	mu        sync.Mutex
	changed   func(peer.ClusterID)
	standings map[peer.ClusterID]*plan.Policy
	told      []string // everything it was told
	replaced  []string // but this, which is a matter of the history only
}

func newDecisions() *decisions {
	return &decisions{changed: func(peer.ClusterID) {}, standings: make(map[peer.ClusterID]*plan.Policy)}
}

// tells has changed told of every change.
func (l *decisions) tells(changed func(peer.ClusterID)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = changed
}

var (
	accepted = plan.AcceptDecision{Phase: api.RequestAccepted, Reason: "Accepted", Message: "A person accepted the cluster."}
	pending  = plan.AcceptDecision{Phase: api.RequestPending, Reason: "WaitsForPerson", Message: "Waits for a person."}
)

func (l *decisions) Policy(id peer.ClusterID) plan.Policy {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.of(id)
}

func (l *decisions) of(id peer.ClusterID) *plan.Policy {
	s := l.standings[id]
	if s == nil {
		s = &plan.Policy{Accept: pending}
		l.standings[id] = s
	}
	return s
}

// change is what a person does on the command line.
func (l *decisions) change(id peer.ClusterID, f func(*plan.Policy)) {
	l.mu.Lock()
	f(l.of(id))
	changed := l.changed
	l.mu.Unlock()
	changed(id)
}

func (l *decisions) note(id peer.ClusterID, text string, f func(*plan.Policy)) error {
	l.mu.Lock()
	f(l.of(id))
	l.told = append(l.told, id.Short()+" "+text)
	changed := l.changed
	l.mu.Unlock()
	changed(id)
	return nil
}

// heard returns how often it was told something that begins with text.
func (l *decisions) heard(id peer.ClusterID, text string) int {
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

func (l *decisions) story() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.told)
}

func wish(yes bool) plan.Tristate {
	if yes {
		return plan.Yes
	}
	return plan.No
}

func pinOf(id peer.ClusterID, fp peer.Fingerprint, by string) *peer.Pin {
	return &peer.Pin{ID: id, Fingerprint: fp, Method: peer.TrustPerson, By: by, At: time.Now().Truncate(time.Second)}
}

func (l *decisions) JoinEdited(_ context.Context, id peer.ClusterID, join bool, by, stamp string) error {
	return l.note(id, fmt.Sprintf("join %v by %s", join, by), func(s *plan.Policy) {
		s.Connect, s.ConnectReason, s.JoinStamp = wish(join), by+" set spec.join", stamp
		if join {
			s.Generation++
		}
	})
}

func (l *decisions) TrustEdited(_ context.Context, id peer.ClusterID, mode api.TrustMode, shown peer.Fingerprint, by, stamp string) error {
	return l.note(id, fmt.Sprintf("trust %s by %s", mode, by), func(s *plan.Policy) {
		s.TrustStamp, s.Distrusted, s.Pin = stamp, mode == api.TrustUntrusted, nil
		if mode == api.TrustTrusted && !shown.IsZero() {
			s.Pin = pinOf(id, shown, by)
		}
	})
}

func (l *decisions) HungUp(_ context.Context, id peer.ClusterID, by string) error {
	return l.note(id, "hung up by "+by, func(s *plan.Policy) { s.Connect = plan.No })
}

func (l *decisions) Decided(_ context.Context, id peer.ClusterID, accept bool, _ peer.Fingerprint, by string) error {
	return l.note(id, fmt.Sprintf("decided %v by %s", accept, by), func(s *plan.Policy) {
		if s.Accept.Phase = api.RequestRefused; accept {
			s.Accept = accepted
		}
	})
}

func (l *decisions) Forgot(_ context.Context, id peer.ClusterID) error {
	return l.note(id, "forgot", func(s *plan.Policy) {
		s.Connect, s.Forgotten, s.JoinStamp, s.TrustStamp = plan.Unset, false, "", ""
	})
}

func (l *decisions) EndedByProvider(_ context.Context, id peer.ClusterID, generation uint64, reason string) error {
	return l.note(id, "ended by provider: "+reason, func(s *plan.Policy) {
		if s.Generation == generation { // else a person asked again since
			s.Connect = plan.No
		}
	})
}

func (l *decisions) EndedHere(_ context.Context, id peer.ClusterID, reason string) error {
	return l.note(id, "ended here: "+reason, func(s *plan.Policy) { s.Ended, s.Accept, s.LastServed = reason, pending, false })
}

func (l *decisions) Replaced(_ context.Context, _ peer.ClusterID, object string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replaced = append(l.replaced, object)
	return nil
}

// history returns, and forgets, the objects that took the place of the agent's.
func (l *decisions) history() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	replaced := l.replaced
	l.replaced = nil
	return replaced
}

func (l *decisions) Joined(_ context.Context, id peer.ClusterID, joined bool, why string) error {
	return l.note(id, fmt.Sprintf("joined %v: %s", joined, why), func(s *plan.Policy) { s.LastJoined = joined })
}

func (l *decisions) Served(_ context.Context, id peer.ClusterID, served bool, why string) error {
	return l.note(id, fmt.Sprintf("served %v: %s", served, why), func(s *plan.Policy) {
		s.LastServed = served
		if served {
			s.Ended = ""
		}
	})
}

func (l *decisions) Requested(_ context.Context, id peer.ClusterID, phase api.RequestPhase, reason string) error {
	return l.note(id, fmt.Sprintf("requested %s: %s", phase, reason), func(s *plan.Policy) { s.Asked = false })
}

// admit is endpoint.Peers.Admit.
func (l *decisions) admit(id peer.ClusterID, shown trust.Shown) endpoint.AccessLevel {
	s := l.Policy(id)
	switch {
	case s.Blocked:
		return endpoint.Blocked
	case s.Pin != nil && s.Pin.Fingerprint == shown.Fingerprint:
		return endpoint.Known
	}
	return endpoint.Stranger
}
