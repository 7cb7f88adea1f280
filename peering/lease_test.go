package peering

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
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
	var l lease
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
	var m memo
	obs := Observed{ID: idB, Peer: &peer.Peer{ID: idB, Phase: peer.PhasePresent}, RequestsKnown: true, Advertisement: offerFor(1)}
	look := func(at time.Duration, change func()) (quiet time.Duration) {
		if change != nil {
			change()
		}
		m.share(&obs, t0.Add(at))
		return obs.Quiet
	}
	answered := func(at time.Duration, kubernetes bool) func() {
		return func() {
			obs.Remote.State, obs.Remote.Err = &endpoint.State{Kubernetes: kubernetes}, nil
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
	kept := newMemory()
	kept.peers[idB] = &m
	kept.reconnected(t0.Add(8 * time.Hour))
	if look(8*time.Hour, nil); obs.OfferExpired {
		t.Error("there was no occasion to renew it while our API server was away")
	}
}

// TestKeepalive: a node stays ready until as many checks failed as may, and these
// come one after another as is configured.
func TestKeepalive(t *testing.T) {
	w := peered(t)
	base := w.a.observe()
	base.Sharing.KeepaliveThreshold, base.Sharing.KeepaliveRetry = 3, 5*time.Second
	now := base.Remote.At.Add(time.Minute)
	for _, tc := range []struct {
		name      string
		quiet     time.Duration
		tried     time.Duration // ago
		threshold int
		ready     bool
		check     bool
		again     time.Duration
	}{
		{"there", 0, 20 * time.Second, 3, true, false, 0},
		{"the first check failed", 1, time.Second, 3, true, false, 4 * time.Second},
		{"the second one is due", 5 * time.Second, 5 * time.Second, 3, true, true, 5 * time.Second},
		{"the last one is soon", 9 * time.Second, 4 * time.Second, 3, true, false, time.Second},
		{"three failed", 10 * time.Second, 0, 3, false, false, 0},
		{"one is enough", 1, 0, 1, false, false, 0},
	} {
		obs := base.change(func(obs *Observed) {
			obs.Quiet, obs.Sharing.KeepaliveThreshold, obs.Remote.Tried = tc.quiet, tc.threshold, now.Add(-tc.tried)
		})
		d := Plan(obs, now)
		p := weigh(obs, now).provision()
		if p.Reachable != tc.ready || !p.Wanted || d.Check != tc.check || d.Again.Round(time.Second) != tc.again || p.Reachable != (p.Why == "") {
			t.Errorf("%s: %+v, check %v, again %s", tc.name, p, d.Check, d.Again)
		}
	}
	// Without a node nobody is in a hurry.
	obs := bothWays(t)
	obs.Objects, obs.Quiet = nil, time.Second
	if d := Plan(obs, now); d.Check {
		t.Error("it checks a cluster that is not used")
	}
}

// TestProvision says what is asked of whom turns peerings into nodes.
func TestProvision(t *testing.T) {
	w := peered(t)
	base := w.a.observe()
	quiet := both(unreachable, func(obs *Observed) { obs.Quiet = time.Hour })
	for _, tc := range []struct {
		name                           string
		change                         seen
		wanted, offer, gone, reachable bool
	}{
		{"joined", func(*Observed) {}, true, true, false, true},
		{"away", quiet, true, true, false, false},
		{"away, the offer ended", both(quiet, func(obs *Observed) { obs.OfferExpired = true }), true, false, false, false},
		{"there, the offer ended", func(obs *Observed) { obs.OfferExpired = true }, false, false, false, true},
		{"its API server is down", both(down, func(obs *Observed) { obs.Quiet = time.Hour }), true, true, false, false},
		{"nothing heard since the start", silent, true, true, false, true},
		{"our request got lost there", noRequest, true, true, false, true},
		{"held back there", phase(api.RequestPending, ""), true, true, false, true},
		{"refused there", phase(api.RequestRefused, ""), false, false, false, true},
		{"refused there, no node", both(noRequest, func(obs *Observed) { obs.Use = Use{} }), false, false, false, true},
		{"shut out", denied(endpoint.ReasonBlocked), false, false, false, false},
		{"shut out for long", both(denied(endpoint.ReasonBlocked), func(obs *Observed) { obs.Draining = time.Hour }), false, false, true, false},
		{"the offer is withdrawn", noOffer, false, false, false, true},
		{"not used", func(obs *Observed) { obs.Sharing.Use = false }, false, false, false, true},
		{"not used for long", func(obs *Observed) { obs.Sharing.Use, obs.Draining = false, time.Hour }, false, false, false, true},
		{"unwished", unwished, false, false, false, true},
		{"unwished for long", both(unwished, func(obs *Observed) { obs.Draining = obs.Sharing.DrainTimeout + drainSlack }), false, false, true, true},
		{"unwished, away", both(unwished, quiet), false, false, false, false},
		{"blocked", blocked, false, false, false, true},
		{"blocked, away", both(blocked, quiet), false, false, true, false},
		{"not trusted", unpinned, false, false, true, true},
		{"distrusted", distrusted, false, false, true, true},
		{"lost", both(lost, func(obs *Observed) { obs.Quiet = time.Hour }), false, false, true, false},
	} {
		p := weigh(base.change(tc.change), t0).provision()
		if p.Wanted != tc.wanted || (p.Offer != nil) != tc.offer || p.Gone != tc.gone || p.Reachable != tc.reachable || (p.Why == "") != p.Reachable {
			t.Errorf("%s: %+v", tc.name, p)
		}
		if trusts := tc.name != "not trusted" && tc.name != "distrusted"; p.Target.Fingerprint.IsZero() == trusts || p.ID != idB {
			t.Errorf("%s: target %+v", tc.name, p.Target)
		}
	}
}
