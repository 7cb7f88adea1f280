package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/statedir"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/state"
)

const (
	// partPatience bounds the time in which peers are told, pods leave and guests go;
	// unreachedPatience is how long it is tried to reach those that do not answer.
	partPatience      = 3 * time.Minute
	unreachedPatience = 10 * time.Second
	// partPause is between two looks at what is left.
	partPause = 250 * time.Millisecond
	// heardPatience is how long the outcome waits to be asked for before the socket
	// goes away with the session.
	heardPatience = 3 * time.Second
	// clearPatience bounds the deleting in the API server.
	clearPatience = time.Minute
	// planPatience bounds the listing of it.
	planPatience = 8 * time.Second
	// claimFirst and claimLast bound the pause between two questions whether the API
	// server says who we are by now.
	claimFirst = time.Second
	claimLast  = 5 * time.Minute
)

// resetDue ends a session: its peers were told that we leave, and what there is of
// its state goes.
type resetDue struct{}

// Error implements error.
func (*resetDue) Error() string { return "the state of this agent is being reset" }

// resetter is how far the reset of a session is.
type resetter struct {
	mu    sync.Mutex
	now   control.Reset
	heard chan struct{} // closed when somebody was told that the peers are
}

func (r *resetter) get() control.Reset {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now.Phase == control.ResetClearing && r.heard != nil {
		close(r.heard)
		r.heard = nil
	}
	out := r.now
	out.Peers = slices.Clone(out.Peers)
	return out
}

func (r *resetter) set(now control.Reset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = now
}

// view is a reset as the control socket shows it.
func resetView(r statedir.Reset, phase string) control.Reset {
	return control.Reset{Phase: phase, StartedAt: r.At, By: r.By, ClusterID: string(r.ID),
		Options: control.ResetOptions{Identity: r.Identity, Stop: r.Stop}}
}

// PlanReset implements control.Backend.
func (b *backend) PlanReset(ctx context.Context, opts control.ResetOptions) (control.ResetPlan, error) {
	self := b.identity(b.id)
	plan := control.ResetPlan{ClusterID: string(b.id), ClusterName: self.ClusterName, Fingerprint: b.key.Fingerprint().String()}
	for _, id := range b.asSession().partners() {
		p, _ := b.recorder.Peer(id)
		plan.Peers = append(plan.Peers, control.ResetPeer{ID: string(id), Name: p.Name, State: control.ResetPeerPlanned})
	}
	inventory(ctx, b.config(), opts, &plan)
	return plan, nil
}

// BeginReset implements control.Backend.
func (b *backend) BeginReset(_ context.Context, opts control.ResetOptions, by string) (control.Reset, error) {
	dir := b.config().State.Dir
	b.rotating.Lock() // a key that is being replaced is not to be reset at the same moment
	defer b.rotating.Unlock()
	pending, found, err := statedir.PendingReset(dir)
	switch {
	case err != nil:
		return control.Reset{}, fmt.Errorf("see whether a reset is under way: %w", err)
	case found:
		wake(b.resets)
		return resetView(pending, control.ResetParting), nil
	case b.store.Volatile():
		return control.Reset{}, &control.Error{Kind: control.ErrRefused, Message: "the state directory cannot be written, so nothing in it can be reset",
			Advice: "make " + dir + " writable and restart the agent"}
	case opts.Identity && b.config().Cluster.ID != "":
		return control.Reset{}, fixedID(b.config().Cluster.ID)
	}
	r := statedir.Reset{ID: b.id, Identity: opts.Identity, Stop: opts.Stop, By: by, At: b.now().UTC().Truncate(time.Second)}
	if opts.Identity {
		r.ID = peer.ClusterID(uuid.NewString())
	}
	if err := statedir.BeginReset(dir, r); err != nil {
		return control.Reset{}, fmt.Errorf("begin the reset: %w", err)
	}
	b.logger.Warn("the agent is being reset: peers are told, then everything that it knows and made is deleted", "by", by,
		"identity", opts.Identity, "stop", opts.Stop)
	view := resetView(r, control.ResetParting)
	b.resetter.set(view) // from now on this one is asked about, not the last one
	wake(b.resets)
	return view, nil
}

// fixedID says that the configuration stands in the way of a new identity.
func fixedID(id string) error {
	return &control.Error{Kind: control.ErrRefused,
		Message: fmt.Sprintf("cluster.id in the configuration says that this cluster is %s: with a new key, peers would take it for an impostor", id),
		Advice:  "take cluster.id out of the configuration, or set it to a new UUID and restart the agent; then reset again"}
}

// ResetState implements control.Backend.
func (b *backend) ResetState(context.Context) (control.Reset, error) {
	if now := b.resetter.get(); now.Phase != "" {
		return now, nil
	}
	if last := b.lastReset.Load(); last != nil {
		return *last, nil
	}
	return control.Reset{}, nil
}

// followReset waits for a reset, or finds one that was cut off, parts with the peers
// and ends the session.
func (s *session) followReset(ctx context.Context) error {
	dir := s.config().State.Dir
	for {
		r, found, err := statedir.PendingReset(dir)
		if err != nil {
			s.logger.Error("whether a reset is under way is not known", "error", err)
		} else if found {
			return s.carryOutReset(ctx, dir, r)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.resets:
		}
	}
}

func (s *session) carryOutReset(ctx context.Context, dir string, r statedir.Reset) error {
	view := resetView(r, control.ResetParting)
	view.Peers, view.Failed = s.partWithAll(ctx, r, view)
	if ctx.Err() != nil {
		return nil // the next start goes on
	}
	r.Parted = true
	if err := statedir.BeginReset(dir, r); err != nil {
		return fmt.Errorf("go on with the reset: %w", err)
	}
	view.Phase = control.ResetClearing
	heard := make(chan struct{})
	s.resetter.mu.Lock()
	s.resetter.now, s.resetter.heard = view, heard
	s.resetter.mu.Unlock()
	s.lastReset.Store(&view)
	wait := time.NewTimer(heardPatience)
	defer wait.Stop()
	select {
	case <-heard:
	case <-wait.C:
	case <-ctx.Done():
	}
	s.end(&resetDue{})
	return nil
}

// partners are the clusters that there is something with: a peering, a wish for one,
// or what is left of one.
func (s *session) partners() []peer.ClusterID {
	found := make(map[peer.ClusterID]bool)
	consider := func(id peer.ClusterID) {
		if found[id] || id == s.id {
			return
		}
		view := s.peering.View(id)
		between, _ := s.peering.Between(id)
		if between.Left() || view.Outgoing.Wanted || view.Outgoing.Joined || view.Incoming.Wanted || view.Incoming.Joined {
			found[id] = true
		}
	}
	for _, id := range s.ledger.Wanted() {
		consider(id)
	}
	for _, pin := range s.ledger.Pins() {
		consider(pin.ID)
	}
	for _, p := range s.recorder.Peers() {
		consider(p.ID)
	}
	return slices.Sorted(maps.Keys(found))
}

// partWithAll ends everything with all peers, in order and on both sides, and returns
// who was told. It shows on the way how far it is.
func (s *session) partWithAll(ctx context.Context, r statedir.Reset, view control.Reset) (peers []control.ResetPeer, failed []string) {
	started := s.now()
	told := make(map[peer.ClusterID]string)
	ended := make(map[peer.ClusterID]bool)
	noServer := false
	endNew := func() (found bool) {
		for _, id := range s.partners() {
			if !ended[id] {
				s.endWith(ctx, id, r.By)
				ended[id], told[id], found = true, control.ResetPeerWaits, true
			}
		}
		return found
	}
	for look := 0; ; look++ {
		if look%8 == 0 { // to look at some thousand peers takes a moment
			endNew()
		}
		waiting, unreached := 0, 0
		for id := range told {
			between, known := s.peering.Between(id)
			noServer = !known
			switch {
			case known && !between.Left():
				told[id] = control.ResetPeerTold
				if !between.Reachable {
					told[id] = control.ResetPeerNotTold
				}
			case known && between.Reachable:
				waiting++
			default:
				unreached++
			}
		}
		view.Peers = s.resetPeers(told)
		s.resetter.set(view)
		took := s.now().Sub(started)
		if !s.peering.Status().Connected && s.config().Cluster.Kubeconfig != peering.KubeconfigNone {
			unreached++ // after a start it takes a moment until it is known what there is
		}
		if (waiting == 0 && unreached == 0 || waiting == 0 && took > unreachedPatience || took > partPatience) && !endNew() {
			break
		}
		select {
		case <-ctx.Done():
			return view.Peers, nil
		case <-time.After(partPause):
		}
	}
	for id, how := range told {
		if how == control.ResetPeerWaits {
			told[id] = control.ResetPeerNotTold
		}
	}
	peers = s.resetPeers(told)
	for _, p := range peers {
		if p.State == control.ResetPeerNotTold {
			failed = append(failed, fmt.Sprintf("peer %s could not be told: it finds out by itself", orID(p)))
		}
	}
	if noServer && len(failed) > 0 {
		failed = append(failed, "the API server of this cluster does not answer: without it a peering cannot be ended in order")
	}
	return peers, failed
}

func orID(p control.ResetPeer) string {
	if p.Name != "" {
		return p.Name + " (" + p.ID + ")"
	}
	return p.ID
}

// endWith ends both peerings with a peer, as a person would.
func (s *session) endWith(ctx context.Context, id peer.ClusterID, by string) {
	err := errors.Join(s.ledger.Disconnect(ctx, id, by), s.ledger.DisconnectIncoming(ctx, id, by, "The provider is being reset to its factory state."))
	if err != nil && ctx.Err() == nil {
		s.logger.Warn("the peerings with a peer cannot be ended in order", "peer", id, "error", err)
	}
}

func (s *session) resetPeers(told map[peer.ClusterID]string) []control.ResetPeer {
	var out []control.ResetPeer
	for _, id := range slices.Sorted(maps.Keys(told)) {
		p, _ := s.recorder.Peer(id)
		out = append(out, control.ResetPeer{ID: string(id), Name: p.Name, State: told[id]})
	}
	return out
}

// prepare makes the state directory fit to be opened: a restore that was cut off is
// carried out, and so is a reset whose peers were told. stop says that the agent is
// not to go on after that.
func (a *Agent) prepare(ctx context.Context) (stop bool, err error) {
	dir := a.config().State.Dir
	if err := statedir.Resume(dir); err != nil {
		return false, err
	}
	r, found, err := statedir.PendingReset(dir)
	if err != nil {
		// The state itself may be whole, and says so if not.
		a.logger.Error("whether a reset is under way is not known", "error", err)
		return false, nil
	}
	if !found || !r.Parted {
		return false, nil
	}
	view := resetView(r, control.ResetClearing)
	if last := a.lastReset.Load(); last != nil && last.StartedAt.Equal(r.At) {
		view.Peers, view.Failed = last.Peers, slices.Clone(last.Failed)
	}
	clearObjects(ctx, a.config(), &view)
	if ctx.Err() != nil {
		return true, nil // the next start goes on
	}
	left, err := statedir.Clear(dir, r)
	if err != nil {
		return false, fmt.Errorf("reset the state in %s: %w; it goes on with the next start", dir, err)
	}
	noteLeft(&view, left)
	view.Phase = control.ResetDone
	a.lastReset.Store(&view)
	a.spec = nil
	a.use(a.effective())
	for _, text := range view.Failed {
		a.logger.Warn("not everything could be reset", "what", text)
	}
	a.logger.Info("the agent was reset", "by", r.By, "id", r.ID, "new-identity", r.Identity, "objects-deleted", len(view.Deleted), "stops", r.Stop)
	return r.Stop, nil
}

// sign leaves in the database which version uses it, and whose it is after a restore
// or a reset.
func (a *Agent) sign(ctx context.Context, store *state.Store) {
	if store.Volatile() {
		return
	}
	if err := store.SetWriter(ctx, a.opts.Version); err != nil {
		a.logger.Debug("the version of the agent is not noted in the database", "error", err)
	}
	id, origin, err := statedir.Claim(a.config().State.Dir)
	if err == nil && id != "" {
		var known peer.ClusterID
		if known, err = store.ClusterID(ctx); err == nil && known == "" {
			err = store.SetClusterID(ctx, id, origin)
		}
	}
	if err != nil {
		a.logger.Error("the cluster ID that belongs to this key cannot be read or kept; the API server's counts", "error", err)
	}
}

// claims reports whether the ID of this cluster goes before that in the API server.
func (s *session) claims() bool {
	id, _, err := statedir.Claim(s.config().State.Dir)
	return err == nil && id != "" && id == s.id
}

// claimIdentity has the API server say which cluster this is after a restore or a
// reset. There is nothing to do otherwise.
func (s *session) claimIdentity(ctx context.Context) error {
	dir := s.config().State.Dir
	for pause := claimFirst; s.claims(); pause = min(2*pause, claimLast) {
		before, err := peering.ClaimClusterID(ctx, s.config().Cluster.Kubeconfig, s.config().Cluster.Namespace, s.id)
		if err == nil && before != "" {
			if before != s.id {
				s.logger.Warn("the API server knew this cluster by another ID; it has the one now that belongs to the key", "before", before, "id", s.id)
			}
			return statedir.Claimed(dir)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.claimed:
		case <-time.After(pause):
		}
	}
	return nil
}
