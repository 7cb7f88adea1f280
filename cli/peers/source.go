package peers

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// source answers questions about peers: the running agent, or what it left in
// its database.
type source struct {
	client *client.Client
	store  *state.Store // nil while an agent runs
}

// openSource returns the running agent, or its database when none runs; the user is
// told which.
func openSource(c *command.Call) (*source, error) {
	at := c.Places()
	client := client.New(at.Socket)
	_, err := client.LogLevel(c.Ctx())
	if !errors.Is(err, control.ErrNotRunning) {
		return &source{client: client}, err
	}
	client.Close()
	path := filepath.Join(at.StateDir, command.DatabaseName)
	store, dbErr := state.OpenReadOnly(c.Ctx(), path)
	if dbErr != nil {
		return nil, command.Unreadable(err, dbErr)
	}
	c.Note("the agent is not running; showing its database (%s)", path)
	return &source{store: store}, nil
}

func (s *source) offline() bool { return s.store != nil }

func (s *source) close() {
	if s.store != nil {
		// It was only read: nothing can be lost.
		_ = s.store.Close()
		return
	}
	s.client.Close()
}

// peers returns everything known, in order.
func (s *source) peers(ctx context.Context) ([]control.Peer, error) {
	if s.store == nil {
		return s.client.Peers(ctx, true)
	}
	stored, err := s.store.Peers(ctx)
	if err != nil {
		return nil, err
	}
	rulings, err := s.store.Rulings(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]control.Peer, 0, len(stored))
	for _, p := range stored {
		q := control.NewPeer(p)
		decided(&q, rulings[p.ID])
		q.Remembered = true
		q.Phase, q.Reason = string(peer.PhaseLost), "the agent is not running"
		out = append(out, q)
	}
	control.SortPeers(out)
	return out, nil
}

// decided adds what was decided about a peer.
func decided(p *control.Peer, r state.Ruling) {
	var pin *peer.Pin
	if !r.Pin.Fingerprint.IsZero() {
		pin = &r.Pin.Pin
	}
	p.Trust = control.NewTrust(pin, r.Distrust.By != "")
	if p.Trust.Mode == control.Untrusted {
		p.Trust.By, p.Trust.At = r.Distrust.By, r.Distrust.At
	}
	p.Preferences = control.Preferences{
		AutoConnect: control.Choice(r.Preferences.AutoConnect.String()), AutoAccept: control.Choice(r.Preferences.AutoAccept.String()),
		Blocked: r.Preferences.Blocked == state.Yes, BlockedHosts: r.Preferences.Hosts(), Note: r.Preferences.Note, URL: r.Preferences.URL,
		CPU: r.Preferences.CPU, Memory: r.Preferences.Memory,
	}
}

func (s *source) peer(ctx context.Context, ref string) (control.Peer, error) {
	if s.store == nil {
		return s.client.Peer(ctx, ref)
	}
	known, err := s.peers(ctx)
	if err != nil {
		return control.Peer{}, err
	}
	return control.Resolve(known, ref)
}

// history returns what happened to the peer that ref names, or to all of them
// when it is "".
func (s *source) history(ctx context.Context, ref string, since time.Time, limit int) ([]control.Event, error) {
	if s.store == nil {
		return s.client.History(ctx, ref, since, limit)
	}
	known, err := s.peers(ctx)
	if err != nil {
		return nil, err
	}
	q := state.HistoryQuery{Since: since, Limit: limit}
	if ref != "" {
		if q.ID, err = control.ResolveID(known, ref); err != nil {
			return nil, err
		}
	}
	entries, err := s.store.History(ctx, q)
	if err != nil {
		return nil, err
	}
	return control.NameEvents(entries, known), nil
}
