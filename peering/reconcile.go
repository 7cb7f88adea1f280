package peering

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

// syncer is the part of remote.Syncer that is used here.
type syncer interface {
	SetInterval(d time.Duration)
	Run(ctx context.Context) error
	Set(id peer.ClusterID, desired plan.RemoteSpec)
	Get(id peer.ClusterID) plan.RemoteStatus
	Check(id peer.ClusterID)
	Notify(id peer.ClusterID)
	Forget(id peer.ClusterID)
	Explain(id peer.ClusterID) string
}

// maxReplans bounds how often one look at a cluster decides anew because the
// decision store was told something. Two are enough for every case there is.
const maxReplans = 5

// soonest is the shortest pause until a cluster is looked at again although
// nothing changed.
const soonest = 50 * time.Millisecond

// errNameTaken: no ForeignCluster can be created for a cluster.
var errNameTaken = errors.New("a ForeignCluster that is not about this cluster has its ID as name; delete it or give it another name")

// reconcile takes the next steps for one cluster.
func (s *session) reconcile(ctx context.Context, id peer.ClusterID) error {
	if err := s.withdraw(ctx, id); err != nil {
		return err
	}
	if s.beingDeleted(id) {
		s.queue.AddAfter(id, deletionPause)
		return nil
	}
	if pause := s.removalPause(id); pause > 0 {
		s.queue.AddAfter(id, pause)
		return nil
	}
	for range maxReplans {
		obs := s.observe(s, id)
		if !obs.Settled && obs.Unseen() && len(obs.Objects) > 0 {
			s.queue.AddAfter(id, unsettledRetry)
		}
		s.provide(&obs)
		s.drive(&obs)
		decision := plan.Plan(obs, s.cfg.Now())
		s.note(id, decision)
		if s.host(decision) {
			continue
		}
		if !decision.Replan {
			s.told(id)
		}
		if err := s.act(ctx, id, decision.Actions); err != nil {
			return err
		}
		switch {
		case decision.Replan:
			continue
		case obs.NameBlocked():
			return errNameTaken
		}
		s.settle(id, decision)
		return nil
	}
	s.queue.Add(id)
	return nil
}

const (
	// deletionPause and deletionPatience are for a request whose deletion by the peer
	// is under way.
	deletionPause    = 100 * time.Millisecond
	deletionPatience = 2 * time.Second
)

// beingDeleted reports whether the peer is deleting its request right now: the
// decision store knows already, and it would only be confused by a decision about a
// request that is as good as gone.
func (s *session) beingDeleted(id peer.ClusterID) bool {
	uid, now := s.requests.UID(string(id)), s.cfg.Now()
	deleting := false
	s.peers.with(id, func(m *peerState) {
		deleting = uid != "" && m.request.UID == uid && m.request.By == plan.DeletedByPeer && now.Sub(m.request.At) < deletionPatience
	})
	return deleting
}

// note takes in what a decision says besides its actions. The desired state at
// the peer is set before the actions, so that both sides are worked on at the same
// time.
func (s *session) note(id peer.ClusterID, d plan.Decision) {
	now := s.cfg.Now()
	if s.cfg.Decisions.Policy(id).Pin == nil {
		// Nothing is said to a key that is not trusted, not even what is owed to it.
		s.remote.Forget(id)
	} else {
		s.remote.Set(id, d.Remote)
	}
	var hold bool
	s.peers.with(id, func(m *peerState) {
		switch {
		case !d.TearingDown:
			m.tearingDown = time.Time{}
		case m.tearingDown.IsZero():
			m.tearingDown = now
		}
		switch {
		case !d.Draining:
			m.draining = time.Time{}
		case m.draining.IsZero():
			m.draining = now
		}
		hold, m.held = m.held != d.Hold, d.Hold
	})
	if d.Check {
		s.remote.Check(id)
	}
	if hold {
		s.cfg.Registry.Hold(id, d.Hold)
	}
	if d.Again > 0 {
		s.queue.AddAfter(id, max(d.Again, soonest))
	}
	if d.Remote.Advertisement != nil {
		s.queue.AddAfter(id, s.allocator.Due(id, now))
	}
}

// stateDigest is what a peer waits for, or has to put right: when they change, it is
// told to ask for our state.
type stateDigest struct {
	request, offer    objectVersion
	phase             api.RequestPhase
	reason, message   string
	offerStatus       api.AdvertisementStatus
	consumes, welcome bool
	ended, engine     string
}

// objectVersion tells states of an object's spec apart.
type objectVersion struct {
	uid        types.UID
	generation int64
}

// settle ends a look at a cluster: the peer is told when there is something new
// for it, and what is no longer needed is forgotten.
func (s *session) settle(id peer.ClusterID, d plan.Decision) {
	obs := s.observe(s, id) // the actions have changed it
	state := obs.Answer()
	news := stateDigest{consumes: state.Consumes, welcome: state.AdvertisementWelcome, ended: state.Ended}
	if e := state.Engine; e != nil {
		news.engine = fmt.Sprint(e.Setting, e.Unknown, e.Liqo)
	}
	if r := obs.Request; r != nil {
		news.request = objectVersion{r.UID, r.Generation}
		news.phase, news.reason, news.message = r.Status.Phase, r.Status.Reason, r.Status.Message
	}
	if a := obs.Advertisement; a != nil {
		news.offer, news.offerStatus = objectVersion{a.UID, a.Generation}, a.Status.AdvertisementStatus
	}
	var changed bool
	s.peers.with(id, func(m *peerState) {
		changed = m.digest != nil && *m.digest != news
		m.digest = &news
	})
	if changed {
		s.remote.Notify(id)
	}
	if obs.Peer == nil && len(obs.Objects) == 0 && obs.Request == nil && obs.Advertisement == nil && obs.Secret == nil && obs.Access == nil &&
		obs.Policy.Pin == nil && d.Remote.Target.Fingerprint.IsZero() && !obs.Node.Busy && !obs.Liqo.Consuming.Busy {
		s.allocator.Admit(id, false, api.RequestedResources{})
		s.peers.forget(id)
	}
}

// withdraw deletes what a peer said it gives up, which it says when the API
// server is away.
func (s *session) withdraw(ctx context.Context, id peer.ClusterID) error {
	var m peerState
	s.peers.with(id, func(kept *peerState) { m = *kept })
	if m.withdrawalAt.IsZero() {
		return nil
	}
	// It may have changed its mind since.
	if seen := s.remote.Get(id); seen.State != nil && seen.State.Consumes && seen.At.After(m.withdrawalAt) {
		m.withdrawal.Request = false
	}
	if r := s.requests.Get(string(id)); r != nil && m.withdrawal.Request {
		if err := recordUnserved(ctx, s.cfg.Decisions, id, m.withdrawal.Reason); err != nil {
			return err
		}
		if err := s.deleteRequest(ctx, id, r.UID, "", plan.DeletedByPeer); err != nil {
			return err
		}
	}
	if a := s.offers.Get(string(id)); a != nil && m.withdrawal.Advertisement {
		if err := s.deleteOffer(ctx, id, a.UID, "", plan.DeletedByPeer); err != nil {
			return err
		}
	}
	s.peers.with(id, func(kept *peerState) {
		if kept.withdrawalAt.Equal(m.withdrawalAt) {
			kept.withdrawal, kept.withdrawalAt = wire.Withdrawal{}, time.Time{}
		}
	})
	return nil
}

// recordUnserved records that the peer's consuming ours ended, if that is
// not what it says. It is told before the request is deleted: else a crash in
// between would leave a request that is gone and that nobody deleted but a person.
func recordUnserved(ctx context.Context, decisions Decisions, id peer.ClusterID, why string) error {
	if !decisions.Policy(id).LastServed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, decisionsTimeout)
	defer cancel()
	if err := decisions.Served(ctx, id, false, why); err != nil {
		return fmt.Errorf("note that cluster %s gave up its request: %w", id, err)
	}
	return nil
}
