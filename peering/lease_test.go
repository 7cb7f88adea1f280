package peering

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

// offerFor is an offer for six hours by a clock that is decades wrong.
func offerFor(generation int64) *api.Advertisement {
	adv := &api.Advertisement{}
	adv.UID, adv.Generation = "uid", generation
	made := t0.AddDate(-40, 0, 0)
	adv.Spec.Timestamp, adv.Spec.TimeToLive = metav1.NewTime(made), metav1.NewTime(made.Add(6*time.Hour))
	return adv
}

// TestLease: an offer stands for as long as it says, by our own clock, and at least
// for as long as its provider had no occasion to renew it.
func TestLease(t *testing.T) {
	var l offerLease
	at := func(d time.Duration) (bool, time.Duration) { return l.left(t0.Add(d)) }
	l.see(offerFor(1), t0)
	if expired, left := at(time.Hour); expired || left != 5*time.Hour {
		t.Errorf("after an hour: %v %s", expired, left)
	}
	l.see(offerFor(1), t0.Add(time.Hour)) // nothing changed
	if expired, left := at(6 * time.Hour); !expired || left != 0 {
		t.Errorf("at its end: %v %s", expired, left)
	}
	l.extend(t0.Add(6 * time.Hour))
	if expired, left := at(6 * time.Hour); expired || left != offerGrace {
		t.Errorf("with grace: %v %s", expired, left)
	}
	l.see(offerFor(2), t0.Add(6*time.Hour))
	l.extend(t0.Add(6 * time.Hour))
	if expired, left := at(7 * time.Hour); expired || left != 5*time.Hour {
		t.Errorf("renewed: %v %s", expired, left)
	}
	for name, life := range map[string]time.Duration{"none": 0, "negative": -time.Hour} {
		adv := offerFor(3)
		adv.Spec.TimeToLive = metav1.NewTime(adv.Spec.Timestamp.Add(life))
		l.see(adv, t0)
		if expired, left := at(1000 * time.Hour); expired || left != 0 {
			t.Errorf("%s: %v %s", name, expired, left)
		}
		l.extend(t0)
		if !l.ends.IsZero() {
			t.Errorf("%s: it ends", name)
		}
	}
	forever := offerFor(4)
	forever.Spec.TimeToLive = metav1.NewTime(t0.AddDate(5000, 0, 0))
	l.see(forever, t0)
	if expired, left := at(0); expired || left != longestLife {
		t.Errorf("for ever: %v %s", expired, left)
	}
}

// TestQuiet measures for how long a peer fails its checks.
func TestQuiet(t *testing.T) {
	var m peerState
	obs := plan.Observed{ID: idB, Peer: &peer.Peer{ID: idB, Phase: peer.PhasePresent}, RequestsKnown: true, Advertisement: offerFor(1)}
	look := func(at time.Duration, change func()) (quiet time.Duration) {
		if change != nil {
			change()
		}
		m.share(&obs, t0.Add(at))
		return obs.Quiet
	}
	answered := func(at time.Duration, kubernetes bool) func() {
		return func() {
			obs.Remote.State, obs.Remote.Err = &wire.State{Kubernetes: kubernetes}, nil
			obs.Remote.At, obs.Remote.Tried = t0.Add(at), t0.Add(at)
		}
	}
	failed := func(at time.Duration) func() {
		return func() { obs.Remote.Err, obs.Remote.Tried = errors.New("no answer"), t0.Add(at) }
	}
	for _, step := range []struct {
		name   string
		at     time.Duration
		change func()
		want   time.Duration
	}{
		{"there", 0, nil, 0},
		{"a check failed", 10 * time.Second, func() { obs.Peer = &peer.Peer{ID: idB, Phase: peer.PhaseUnreachable} }, 1},
		{"later", 12 * time.Second, nil, 2 * time.Second},
		{"it answered a call", 15 * time.Second, answered(14*time.Second, true), 0},
		{"still", 20 * time.Second, nil, 0},
		{"and a call failed, too", 31 * time.Second, failed(30 * time.Second), time.Second},
		{"and another one", 36 * time.Second, failed(35 * time.Second), 6 * time.Second},
		{"it is back", 40 * time.Second, func() { obs.Peer = &peer.Peer{ID: idB, Phase: peer.PhasePresent} }, 0},
		{"its API server is down", 50 * time.Second, answered(50*time.Second, false), 1},
		{"still down", time.Minute, answered(time.Minute, false), 10 * time.Second},
		{"up again", 61 * time.Second, answered(61*time.Second, true), 0},
	} {
		if got := look(step.at, step.change); got != step.want {
			t.Errorf("%s: quiet for %s, want %s", step.name, got, step.want)
		}
	}
	// An offer that ended during the absence of its provider can be renewed.
	look(time.Hour, func() {
		obs.Peer = &peer.Peer{ID: idB, Phase: peer.PhaseLost}
		obs.Remote.Err = errors.New("no answer")
	})
	if look(6*time.Hour+time.Minute, nil); !obs.OfferExpired {
		t.Error("it did not end")
	}
	look(6*time.Hour+time.Minute, func() { obs.Peer = &peer.Peer{ID: idB, Phase: peer.PhasePresent} })
	if obs.OfferExpired || obs.OfferLeft != offerGrace {
		t.Errorf("back: %v %s", obs.OfferExpired, obs.OfferLeft)
	}
	obs.RequestsKnown, obs.Advertisement = false, nil // our API server is away
	look(6*time.Hour+2*time.Minute, nil)
	obs.RequestsKnown, obs.Advertisement = true, offerFor(1)
	if look(6*time.Hour+time.Hour, nil); !obs.OfferExpired {
		t.Error("what was not seen for a while begins anew")
	}
	kept := newPeerStates()
	kept.peers[idB] = &m
	kept.reconnected(t0.Add(8 * time.Hour))
	if look(8*time.Hour, nil); obs.OfferExpired {
		t.Error("there was no occasion to renew it while our API server was away")
	}
}
