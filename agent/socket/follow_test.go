package socket

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

// A followed peer is told about when it is different, whether or not anybody
// published that, and nothing is told about others.
func TestFollow(t *testing.T) {
	m := &memory{peers: twoPeers()}
	s, c := serve(t, m)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	reason := func(text string) {
		m.change(func() { m.peers[1].Outgoing.Reason, m.peers[1].LastSeen = text, time.Now() })
	}
	enough := errors.New("enough")
	var seen []string
	err := c.Follow(ctx, "barn", func(ev control.WatchEvent) error {
		if ev.Event == control.WatchSynced {
			// Neither another peer nor being seen again is anything to tell.
			m.change(func() { m.peers[1].LastSeen = time.Now() })
			s.Publish(control.WatchEvent{Event: control.WatchUpdated, Peer: &control.Peer{ID: idSilo}})
			s.Publish(control.WatchEvent{Event: control.WatchUpdated, Peer: &control.Peer{ID: idBarn}})
			reason("Published")
			s.Publish(control.WatchEvent{Event: control.WatchUpdated, Peer: &control.Peer{ID: idBarn, Name: "what is published does not count"}})
			return nil
		}
		if ev.Peer.ID != idBarn || ev.Peer.Name != "barn" {
			t.Errorf("%s is about %+v", ev.Event, ev.Peer)
		}
		seen = append(seen, strings.TrimSpace(ev.Event+" "+ev.Peer.Outgoing.Reason))
		switch {
		case ev.Peer.Outgoing.Reason == "Published":
			reason("Silent")
		case ev.Event == control.WatchLost:
			m.change(func() { m.peers = append(m.peers, twoPeers()[1]) })
		case ev.Peer.Outgoing.Reason == "Silent":
			m.change(func() { m.peers = m.peers[:1] })
		case len(seen) > 3:
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatalf("Follow = %v", err)
	}
	if got, want := strings.Join(seen, ", "), "snapshot, updated Published, updated Silent, lost Silent, updated"; got != want {
		t.Errorf("seen %s, want %s", got, want)
	}
}

func TestSame(t *testing.T) {
	a := twoPeers()[1]
	b := a
	b.LastSeen, b.Outgoing.Steps = time.Now(), []control.Step{}
	if !same(a, b) {
		t.Error("being seen again is told")
	}
	for name, f := range map[string]func(*control.Peer){
		"phase": func(p *control.Peer) { p.Phase = "Lost" }, "a step": func(p *control.Peer) { p.Outgoing.Steps = []control.Step{{Done: true}} },
		"trust": func(p *control.Peer) { p.Trust.Mode = control.Trusted }, "a request": func(p *control.Peer) { p.Request = &control.Request{} },
	} {
		b := a
		f(&b)
		if same(a, b) {
			t.Errorf("%s is not told", name)
		}
	}
}

// Changes of other peers cost the follower of one nothing.
func TestFollowIgnoresOthers(t *testing.T) {
	m := &countingLooks{memory: &memory{peers: twoPeers()}}
	s, c := serve(t, m)
	enough := errors.New("enough")
	err := c.Follow(t.Context(), "barn", func(ev control.WatchEvent) error {
		if ev.Event == control.WatchUpdated {
			return enough
		}
		for range 100 {
			s.Publish(control.WatchEvent{Event: control.WatchUpdated, Peer: &control.Peer{ID: idSilo}})
		}
		m.change(func() { m.peers[1].Reason = "changed" })
		s.Publish(control.WatchEvent{Event: control.WatchUpdated, Peer: &control.Peer{ID: idBarn}})
		return nil
	})
	if looks := m.looks.Load(); !errors.Is(err, enough) || looks == 0 || looks > 50 {
		t.Errorf("Follow = %v after %d looks", err, looks)
	}
}

// countingLooks is a Backend that counts how often one peer is looked at.
type countingLooks struct {
	*memory
	looks atomic.Int32
}

func (c *countingLooks) Peer(ctx context.Context, id peer.ClusterID) (control.Peer, error) {
	c.looks.Add(1)
	return c.memory.Peer(ctx, id)
}

func TestFollowUnknown(t *testing.T) {
	_, c := serve(t, &memory{peers: twoPeers()})
	err := c.Follow(t.Context(), "cellar", func(control.WatchEvent) error { return nil })
	if !errors.Is(err, control.ErrNotFound) {
		t.Errorf("Follow = %v", err)
	}
}

func TestFollowEnds(t *testing.T) {
	m := &memory{peers: twoPeers()}
	s, c := serve(t, m)
	err := c.Follow(t.Context(), "barn", func(ev control.WatchEvent) error {
		if ev.Event == control.WatchSynced {
			s.hub.close()
		}
		return nil
	})
	if err == nil || err.Error() != "the watch ended: the agent is stopping" {
		t.Errorf("Follow = %v when the agent stops", err)
	}
}

// What goes wrong while following is told to the follower.
func TestFollowFails(t *testing.T) {
	m := &memory{peers: twoPeers()}
	_, c := serve(t, m)
	err := c.Follow(t.Context(), "barn", func(ev control.WatchEvent) error {
		m.change(func() { m.fail = errors.New("the disk is full") })
		return nil
	})
	if err == nil || err.Error() != "the watch ended: the disk is full" {
		t.Errorf("Follow = %v", err)
	}
}
