package decisions

import (
	"context"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/attack"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

const days = 24 * time.Hour

// certifyFor gives the box a certificate of the fleet that is good from now on.
func (f fleet) certifyFor(b *box, lasts int, now time.Time) {
	b.t.Helper()
	cert, err := trust.SignFleet(f.certPEM, f.keyPEM, b.id, b.key.PublicPEM(), lasts, now)
	must(b.t, err)
	b.fleet = parsePEM(b.t, cert)
}

func ofFleets(fleets ...fleet) Policy {
	p := asks()
	for _, f := range fleets {
		p.Fleet = append(p.Fleet, f.cert)
	}
	return p
}

// newFleetFor is newFleet with an authority that is good for so many years.
func newFleetFor(t testing.TB, years int) fleet {
	t.Helper()
	certPEM, keyPEM, err := trust.NewFleetCA("test fleet", years, time.Now())
	must(t, err)
	return fleet{certPEM, keyPEM, parsePEM(t, certPEM)}
}

// trusts fails unless a call of the box has that standing, and the decision store shows it.
func (b *bed) trusts(when string, box *box, want endpoint.AccessLevel) {
	b.t.Helper()
	if got := b.Admit(box.id, box.shown()); got != want {
		b.t.Errorf("%s: admitted as %v, want %v", when, got, want)
	}
	pin := b.Policy(box.id).Pin
	if suspended := pin != nil && !pin.Suspended.IsZero(); suspended != (want == endpoint.Suspended) {
		b.t.Errorf("%s: shown as %+v", when, pin)
	}
}

// Trust by a certificate of a fleet is suspended when that ends, keeps everything that
// was decided, also over a restart, and is back as soon as a newer one is shown.
func TestFleetCertificateEnds(t *testing.T) {
	ctx := context.Background()
	f, box := newFleet(t), newBox(t, barn)
	f.certifyFor(box, 10, epoch)
	b := newBed(t, ofFleets(f))
	b.Proved(ctx, barn, box.shown())
	must(t, b.Accept(ctx, barn, peer.Fingerprint{}, "alice"))
	end := box.fleet.NotAfter.UTC()
	if pin := b.Policy(barn).Pin; pin == nil || !pin.NotAfter.Equal(end) || !pin.NotBefore.Equal(box.fleet.NotBefore) {
		t.Fatalf("%+v, want the end %v", pin, end)
	}

	if next := b.Lapse(ctx); !next.Equal(end) {
		t.Errorf("the next certificate ends on %v, want %v", next, end)
	}
	b.pass(end.Sub(epoch) - time.Second)
	b.quiet("a certificate that is good", func() { b.Lapse(ctx) })
	b.trusts("a second before", box, endpoint.Known)
	b.changes(barn)

	b.pass(time.Second)
	if next := b.Lapse(ctx); !next.IsZero() {
		t.Errorf("another one ends on %v", next)
	}
	b.trusts("after its end", box, endpoint.Suspended)
	if b.changes(barn) == 0 {
		t.Error("nobody was told")
	}
	b.quiet("a suspension that goes on", func() { b.Lapse(ctx) })
	if answer := b.Ask(ctx, box.caller("10.0.0.1"), box.ask()); answer.Auth != api.AuthRefused || answer.Reason != wire.ReasonCertificateEnded {
		t.Errorf("it asks: %+v", answer)
	}
	b.Proved(ctx, barn, box.shown())
	b.restart(ofFleets(f))
	b.trusts("after a restart", box, endpoint.Suspended)
	if b.Policy(barn).Accept.Phase != api.RequestAccepted {
		t.Error("what was decided is gone")
	}

	f.certifyFor(box, 10, b.clock())
	b.Proved(ctx, barn, box.shown())
	b.trusts("with a newer one, at a check", box, endpoint.Known)
	b.pass(11 * days)
	b.Lapse(ctx)
	b.trusts("after the end of the newer one", box, endpoint.Suspended)
	f.certifyFor(box, 10, b.clock())
	b.trusts("with a newer one, in a call", box, endpoint.Known)
	b.restart(ofFleets(f))
	b.trusts("after another restart", box, endpoint.Known)
	if got, want := b.history(barn), "trusted accepted trust-suspended trust-resumed trust-suspended trust-resumed"; got != want {
		t.Errorf("history %s, want %s", got, want)
	}
}

// A certificate that is not shown any more counts until the end that was kept, and a
// person's word takes its place.
func TestFleetCertificateNotShown(t *testing.T) {
	ctx := context.Background()
	f, box := newFleet(t), newBox(t, barn)
	f.certifyFor(box, 10, epoch)
	b := newBed(t, ofFleets(f))
	b.Proved(ctx, barn, box.shown())
	box.fleet = nil
	b.pass(9 * days)
	b.Lapse(ctx)
	b.trusts("not shown any more", box, endpoint.Known)
	box.rotate() // the certificate is over the old key
	b.trusts("with a new key", box, endpoint.Known)
	b.pass(2 * days)
	b.Lapse(ctx)
	b.trusts("after the end that was kept", box, endpoint.Suspended)
	must(t, b.Trust(ctx, barn, box.fp(), "alice"))
	b.trusts("by a person", box, endpoint.Known)
	b.quiet("trust by a person", func() { b.Lapse(ctx) })
}

// A certificate does not count for longer than that of the authority that made it.
func TestFleetAuthorityEnds(t *testing.T) {
	ctx := context.Background()
	f, box := newFleetFor(t, 1), newBox(t, barn)
	f.certifyFor(box, 300, epoch)
	b := newBed(t, ofFleets(f))
	b.Proved(ctx, barn, box.shown())
	longer := *f.cert
	longer.NotAfter = f.cert.NotAfter.AddDate(5, 0, 0) // the same key, certified anew
	shorter := *f.cert
	shorter.NotAfter = epoch.Add(10 * days)
	short, long := ofFleets(f), ofFleets(f)
	short.Fleet, long.Fleet = []*x509.Certificate{&shorter}, []*x509.Certificate{&shorter, &longer}
	must(t, b.SetPolicy(ctx, short))
	if pin := b.Policy(barn).Pin; !pin.NotAfter.Equal(shorter.NotAfter) {
		t.Errorf("ends on %v, the authority on %v", pin.NotAfter, shorter.NotAfter)
	}
	b.pass(11 * days)
	b.Lapse(ctx)
	b.trusts("after the authority's end", box, endpoint.Suspended)
	must(t, b.SetPolicy(ctx, long))
	b.trusts("with the authority's new certificate", box, endpoint.Known)
}

// A fleet that gets a new authority certifies its clusters anew, and then drops the old
// one: trust goes over to the new one before.
func TestFleetGetsANewAuthority(t *testing.T) {
	ctx := context.Background()
	old, next, box := newFleet(t), newFleet(t), newBox(t, barn)
	old.certifyFor(box, 10, epoch)
	b := newBed(t, ofFleets(old, next))
	b.Proved(ctx, barn, box.shown())
	next.certifyFor(box, 20, epoch)
	b.Proved(ctx, barn, box.shown())
	must(t, b.SetPolicy(ctx, ofFleets(next)))
	b.trusts("without the old authority", box, endpoint.Known)
	if got := b.history(barn); got != "trusted" {
		t.Errorf("history %s", got)
	}
}

// Agents before this one did not keep when certificates end: the next check tells, and
// until then the authority's end counts.
func TestFleetCertificateOfUnknownEnd(t *testing.T) {
	ctx := context.Background()
	f, box := newFleet(t), newBox(t, barn)
	f.certifyFor(box, 10, epoch)
	b := newBed(t, ofFleets(f))
	must(t, b.store.SetRuling(ctx, barn, state.Ruling{Pin: state.Pin{
		Pin:   peer.Pin{ID: barn, Fingerprint: box.fp(), Method: peer.TrustFleet, By: "fleet CA", At: epoch},
		Basis: peer.FingerprintOf(f.cert.RawSubjectPublicKeyInfo),
	}}))
	b.restart(ofFleets(f))
	b.pass(11 * days)
	if next := b.Lapse(ctx); !next.Equal(f.cert.NotAfter) {
		t.Errorf("ends on %v, and the authority on %v", next, f.cert.NotAfter)
	}
	bare := newBox(t, barn)
	bare.key = box.key
	b.trusts("before a certificate was shown", bare, endpoint.Known)
	b.Proved(ctx, barn, box.shown())
	b.trusts("once one was shown that has ended", box, endpoint.Suspended)
}

// With a clock that cannot be believed nothing ends, and nothing comes back but what
// shows a newer certificate.
func TestNothingEndsByAWrongClock(t *testing.T) {
	ctx := context.Background()
	f, box := newFleet(t), newBox(t, barn)
	f.certifyFor(box, 10, epoch)
	b := newBed(t, ofFleets(f))
	believed := false
	b.cfg.ClockTrusted = func(about peer.ClusterID) bool {
		if about != barn {
			t.Errorf("asked about %q", about)
		}
		b.Partner(about) // no lock is held
		return believed
	}
	b.Proved(ctx, barn, box.shown())
	b.pass(11 * days)
	b.Lapse(ctx)
	b.trusts("by a wrong clock", box, endpoint.Known)
	believed = true
	b.Lapse(ctx)
	b.trusts("by a right one", box, endpoint.Suspended)
	believed = false
	b.Lapse(ctx)
	b.pass(-5 * days)
	b.Lapse(ctx)
	b.trusts("suspended before the clock went wrong", box, endpoint.Suspended)
	believed = true
	b.Lapse(ctx)
	b.trusts("a right clock says that it has not ended", box, endpoint.Known)
	b.pass(5 * days)
	b.Lapse(ctx)
	b.trusts("again", box, endpoint.Suspended)
	believed = false
	f.certifyFor(box, 10, b.clock())
	b.trusts("with a newer one, by a wrong clock", box, endpoint.Known)
}

// Who has nothing but a certificate of the fleet that has ended stays outside, whatever
// else it shows.
func TestAttackEndedFleetCertificate(t *testing.T) {
	ctx := context.Background()
	const thief = "trusted peer"
	f, stranger, box, other := newFleet(t), newFleet(t), newBox(t, barn), newBox(t, silo)
	f.certifyFor(box, 10, epoch)
	ended := box.fleet
	b := newBed(t, ofFleets(f))
	b.Proved(ctx, barn, box.shown())
	b.pass(11 * days)
	b.Lapse(ctx)
	names := map[endpoint.AccessLevel]string{
		endpoint.Known: "let in", endpoint.Stranger: "may ask to be let in", endpoint.Suspended: "403 CertificateEnded", endpoint.Blocked: "403 Blocked",
	}
	try := func(what string) {
		t.Helper()
		attack.Attempt{What: what, As: thief, Want: "403 CertificateEnded"}.Saw(t, names[b.Admit(barn, box.shown())])
		if b.Proved(ctx, barn, box.shown()); b.Policy(barn).Pin.Suspended.IsZero() {
			t.Errorf("%s: a check brings it back", what)
		}
	}
	try("go on with a certificate of the fleet that has ended")
	box.fleet = nil
	try("show no certificate of the fleet, after it has ended")
	stranger.certifyFor(box, 1000, b.clock())
	try("show a newer certificate of another authority of the same name")
	f.certifyFor(other, 1000, b.clock())
	box.fleet = other.fleet
	try("show the newer certificate of another cluster of the fleet")
	const utcTime = "060102150405Z"
	later := strings.Replace(string(ended.Raw), ended.NotAfter.UTC().Format(utcTime), b.clock().AddDate(1, 0, 0).UTC().Format(utcTime), 1)
	forged, err := x509.ParseCertificate([]byte(later))
	must(t, err)
	if !forged.NotAfter.After(b.clock()) {
		t.Fatalf("forged until %v", forged.NotAfter)
	}
	box.fleet = forged
	try("say a later end without the authority's having signed it")
	box.fleet = ended
	box.rotate()
	try("rotate the key after the certificate has ended")
	if got := b.history(barn); strings.Contains(got, "resumed") {
		t.Errorf("history %s", got)
	}
}

// A key that was rotated away is neither offered to be trusted nor taken for a sign of
// trouble right after, and later it is no key to trust.
func TestRotationIsQuiet(t *testing.T) {
	ctx := context.Background()
	box := newBox(t, barn)
	b := newBed(t, asks())
	must(t, b.Trust(ctx, barn, box.fp(), "alice"))
	old, late := box.fp(), box.caller("10.0.0.1")
	b.sees(barn, old)
	box.rotate()
	b.trusts("with the new key", box, endpoint.Known)
	if s := b.Policy(barn); s.Pin.Fingerprint != box.fp() || !slices.Equal(s.Former, []peer.Fingerprint{old}) {
		t.Errorf("pinned %s, before %v", s.Pin.Fingerprint, s.Former)
	}
	b.Ask(ctx, late, box.ask())
	if got := b.history(barn); got != "trusted key-rotated" {
		t.Errorf("a call that was on its way: history %s", got)
	}
	if keys := b.shownKeys(barn); len(keys) != 0 {
		t.Errorf("offered to be trusted: %v", keys)
	}
	b.pass(2 * lateAfter)
	if answer := b.Ask(ctx, late, box.ask()); answer.Reason != wire.ReasonOtherKey {
		t.Errorf("with the old key later: %+v", answer)
	}
	if got := b.history(barn); got != "trusted key-rotated key-refused" {
		t.Errorf("with the old key later: history %s", got)
	}
	if keys := b.shownKeys(barn); len(keys) != 0 {
		t.Errorf("offered to be trusted later: %v", keys)
	}
	for range maxFormer + 3 {
		box.rotate()
		b.Admit(barn, box.shown())
	}
	if former := b.Policy(barn).Former; len(former) != maxFormer {
		t.Errorf("%d former keys are known", len(former))
	}
	must(t, b.Trust(ctx, barn, old, "alice"))
	if former := b.Policy(barn).Former; len(former) != 0 {
		t.Errorf("a person trusts a key that is taken for a former one: %v", former)
	}
}
