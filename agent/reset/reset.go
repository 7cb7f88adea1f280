package reset

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/statedir"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/plan"
)

// heardPatience is how long the session waits for a client to read the outcome, before
// it closes the socket.
const heardPatience = 3 * time.Second

// Decisions ends peerings.
type Decisions interface {
	Wanted() []peer.ClusterID
	Pins() []peer.Pin
	Disconnect(ctx context.Context, id peer.ClusterID, by string) error
	DisconnectIncoming(ctx context.Context, id peer.ClusterID, by, reason string) error
}

// Registry knows the peers.
type Registry interface {
	Peer(id peer.ClusterID) (peer.Peer, bool)
	Peers() []peer.Peer
}

// Peering has the leftovers of peerings.
type Peering interface {
	View(id peer.ClusterID) plan.View
	Leftovers(id peer.ClusterID) (left plan.Leftovers, known bool)
	Status() peering.APIStatus
}

// Config is what a Resetter needs. All of it is required.
type Config struct {
	// Self is this cluster, Fingerprint its key.
	Self        func() peer.Identity
	Fingerprint peer.Fingerprint
	// Settings is the configuration in use.
	Settings func() config.Config
	// Volatile: the state cannot be written, so it cannot be reset.
	Volatile bool
	// Key is locked while a reset begins, so that the key is not replaced meanwhile.
	Key sync.Locker

	Decisions Decisions
	Registry  Registry
	Peering   Peering

	Progress *Progress
	// Parted ends the session, because the peers were notified.
	Parted func()
	Logger *slog.Logger
	Now    func() time.Time
}

// Resetter carries out the part of a reset that needs a session. It is the Resetter of
// the control socket.
type Resetter struct {
	cfg   Config
	begun chan struct{} // a reset was requested; capacity 1
}

// New returns a Resetter. Run does the work.
func New(cfg Config) *Resetter { return &Resetter{cfg: cfg, begun: make(chan struct{}, 1)} }

// viewOf is a reset as the control socket shows it.
func viewOf(r statedir.Reset, phase string) control.Reset {
	return control.Reset{Phase: phase, StartedAt: r.At, By: r.By, ClusterID: string(r.ID),
		Options: control.ResetOptions{Identity: r.Identity, Stop: r.Stop}}
}

// PlanReset implements socket.Resetter.
func (s *Resetter) PlanReset(ctx context.Context, opts control.ResetOptions) (control.ResetPlan, error) {
	self := s.cfg.Self()
	plan := control.ResetPlan{ClusterID: string(self.ClusterID), ClusterName: self.ClusterName, Fingerprint: s.cfg.Fingerprint.String()}
	for _, id := range s.partners() {
		p, _ := s.cfg.Registry.Peer(id)
		plan.Peers = append(plan.Peers, control.ResetPeer{ID: string(id), Name: p.Name, State: control.ResetPeerPlanned})
	}
	inventory(ctx, s.cfg.Settings(), opts, &plan)
	return plan, nil
}

// BeginReset implements socket.Resetter.
func (s *Resetter) BeginReset(_ context.Context, opts control.ResetOptions, by string) (control.Reset, error) {
	settings := s.cfg.Settings()
	dir := settings.State.Dir
	s.cfg.Key.Lock()
	defer s.cfg.Key.Unlock()
	pending, found, err := statedir.PendingReset(dir)
	switch {
	case err != nil:
		return control.Reset{}, fmt.Errorf("check for a reset in progress: %w", err)
	case found:
		s.wake()
		return viewOf(pending, control.ResetParting), nil
	case s.cfg.Volatile:
		return control.Reset{}, &control.Error{Kind: control.ErrRefused, Message: "the state directory cannot be written, so nothing in it can be reset",
			Advice: "make " + dir + " writable and restart the agent"}
	case opts.Identity && settings.Cluster.ID != "":
		return control.Reset{}, fixedID(settings.Cluster.ID)
	}
	r := statedir.Reset{ID: s.cfg.Self().ClusterID, Identity: opts.Identity, Stop: opts.Stop, By: by, At: s.cfg.Now().UTC().Truncate(time.Second)}
	if opts.Identity {
		r.ID = peer.ClusterID(uuid.NewString())
	}
	if err := statedir.BeginReset(dir, r); err != nil {
		return control.Reset{}, fmt.Errorf("begin the reset: %w", err)
	}
	s.cfg.Logger.Warn("the agent is being reset: it notifies the peers, then deletes its state and its objects", "by", by,
		"identity", opts.Identity, "stop", opts.Stop)
	view := viewOf(r, control.ResetParting)
	s.cfg.Progress.set(view) // replaces the result of the last one
	s.wake()
	return view, nil
}

// ResetState implements socket.Resetter.
func (s *Resetter) ResetState(context.Context) (control.Reset, error) {
	return s.cfg.Progress.Get(), nil
}

// fixedID is the error if the configuration sets the cluster ID, which prevents a new
// identity.
func fixedID(id string) error {
	return &control.Error{Kind: control.ErrRefused,
		Message: fmt.Sprintf("the configuration sets cluster.id to %s: with a new key, peers would take this cluster for an impostor", id),
		Advice:  "remove cluster.id from the configuration, or set it to a new UUID, and restart the agent; then reset again"}
}

func (s *Resetter) wake() {
	work.Wake(s.begun)
}

// Run waits for a reset, or continues an interrupted one: it ends the peerings, and then
// the session.
func (s *Resetter) Run(ctx context.Context) error {
	dir := s.cfg.Settings().State.Dir
	for {
		r, found, err := statedir.PendingReset(dir)
		if err != nil {
			s.cfg.Logger.Error("cannot tell whether a reset is in progress", "error", err)
		} else if found {
			return s.carryOut(ctx, dir, r)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.begun:
		}
	}
}

func (s *Resetter) carryOut(ctx context.Context, dir string, r statedir.Reset) error {
	view := viewOf(r, control.ResetParting)
	view.Peers, view.Failed = s.partWithAll(ctx, r, view)
	if ctx.Err() != nil {
		return nil // the next start continues
	}
	r.Parted = true
	if err := statedir.BeginReset(dir, r); err != nil {
		return fmt.Errorf("continue the reset: %w", err)
	}
	view.Phase = control.ResetClearing
	heard := s.cfg.Progress.parted(view)
	wait := time.NewTimer(heardPatience)
	defer wait.Stop()
	select {
	case <-heard:
	case <-wait.C:
	case <-ctx.Done():
	}
	s.cfg.Parted()
	return nil
}
