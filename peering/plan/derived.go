package plan

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// derived is what follows from an Observed. Plan, View and Answer all read it, so
// that what is done, what is shown and what the peer is told never disagree.
type derived struct {
	Observed
	now time.Time

	// own is the ForeignCluster that the agent made, others are those of people,
	// the oldest first. terminating are those with a deletion timestamp that wait for
	// our finalizer.
	own         *api.ForeignCluster
	others      []*api.ForeignCluster
	terminating []*api.ForeignCluster
	// creating: own does not exist yet, and this plan creates it.
	creating bool
	// effective is the object whose spec.join and spec.trustMode count; nil for none.
	effective *api.ForeignCluster

	// trusted: the peer's key is trusted, and the peer is not blocked.
	trusted bool
	// lost: the peer has been away for too long.
	lost bool
	// answerPending: a person asked again, and the peer has not answered that yet; its
	// earlier refusal does not count.
	answerPending bool

	shown    *api.ForeignCluster // see lastShown
	intent   intent
	outgoing outgoing
	incoming incoming

	// secret and access are the desired objects, given the existing ones; nil for none.
	secret *Secret
	access *Access
}

// expectsAnswer reports whether the peer refused before a person asked again, and has
// not answered since.
func (d *derived) expectsAnswer() bool {
	r := d.Remote
	no := r.Denied != "" || r.Asked != nil && r.Asked.Auth != api.AuthAccepted
	return no && !r.Tried.IsZero() && d.GenerationSince.After(r.Tried)
}

// derive returns what follows from obs at a time.
func derive(obs Observed, now time.Time) *derived {
	d := &derived{Observed: obs, now: now}
	d.answerPending = d.expectsAnswer()
	d.own, d.others = obs.classify()
	slices.SortFunc(d.others, func(a, b *api.ForeignCluster) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for _, fc := range obs.Objects {
		if fc.ClusterID() == string(obs.ID) && fc.DeletionTimestamp != nil && hasFinalizer(fc) {
			d.terminating = append(d.terminating, fc)
		}
	}
	if d.own == nil && len(d.others) == 0 && !obs.nameTaken() && (obs.present() || obs.RequestsKnown && obs.Policy.Ask != nil) {
		d.own, d.creating = unwritten(obs.subject()), true
	}
	d.effective = d.chooseEffective()
	d.shown = d.lastShown()

	s := obs.Policy
	d.trusted = s.Pin != nil && !s.Distrusted && !s.Blocked
	d.lost = !obs.Reachable() && obs.LostAfter > 0 && obs.Away >= obs.LostAfter && (obs.Peer != nil || obs.Settled)
	d.intent = d.deriveIntent()
	d.outgoing = d.deriveOutgoing()
	d.incoming = d.deriveIncoming()
	d.secret = d.desiredSecret()
	d.access = d.desiredAccess()
	return d
}

// unwritten returns the ForeignCluster that is about to be created for a peer, as far
// as decisions read it.
func unwritten(p *peer.Peer) *api.ForeignCluster {
	fc := &api.ForeignCluster{}
	fc.Name = string(p.ID)
	fc.Labels = api.AgentLabels(cmp.Or(api.DiscoveryType(p.Source), api.DiscoveryLAN))
	fc.Spec.ClusterIdentity = &api.ClusterIdentity{ClusterID: string(p.ID)}
	return fc
}

// live returns the objects that stay unless this plan deletes them, people's
// first.
func (d *derived) live() []*api.ForeignCluster {
	out := slices.Clone(d.others)
	if d.own != nil && d.own.DeletionTimestamp == nil {
		out = append(out, d.own)
	}
	return out
}

// chooseEffective returns the object whose spec.join and spec.trustMode count: the oldest of
// people's, and without any the agent's.
func (d *derived) chooseEffective() *api.ForeignCluster {
	if live := d.live(); len(live) > 0 {
		return live[0]
	}
	return nil
}

// superseded reports whether a person's object replaces the agent's.
func (d *derived) superseded() bool {
	return len(d.others) > 0 && d.own != nil && d.own.DeletionTimestamp == nil
}

// redundant reports whether fc is a person's object without effect, because another
// one counts.
func (d *derived) redundant(fc *api.ForeignCluster) bool {
	return fc != d.effective && fc != d.own && d.effective != nil
}

// author returns the object that says what a person wants of a field, and who set
// it: the one that counts, unless nobody did there, and somebody did in the one
// whose place it takes.
func (d *derived) author(field func(Owners) Owner) (*api.ForeignCluster, Owner) {
	owner := field(d.Owners[d.effective.Name])
	if d.superseded() && !owner.byPerson() {
		if own := field(d.Owners[d.own.Name]); own.byPerson() {
			return d.own, own
		}
	}
	return d.effective, owner
}

// lastShown returns what was shown about the peering until now: an object of which
// nothing was shown yet knows nothing about what there was.
func (d *derived) lastShown() *api.ForeignCluster {
	candidates := append(d.live(), d.terminating...)
	if d.effective != nil {
		candidates = append([]*api.ForeignCluster{d.effective}, candidates...)
	}
	var part *api.ForeignCluster // one that shows only how we are consumed
	for _, fc := range candidates {
		out, in := fc.Condition(api.ConditionOutgoingPeering), fc.Condition(api.ConditionIncomingPeering)
		switch {
		case out != nil && out.Reason != ReasonAwaitingContact && out.Reason != ReasonAnotherObject, out == nil && in != nil:
			return fc
		case in != nil && part == nil:
			part = fc
		}
	}
	if part != nil {
		return part
	}
	return &api.ForeignCluster{}
}

// remoteState returns what the peer said last, nil while nothing is known: it said
// nothing yet, its API server is down, or it does not talk to us any more.
func (d *derived) remoteState() *wire.State {
	if s := d.Remote.State; s != nil && s.Kubernetes && !d.denied() {
		return s
	}
	return nil
}

// denied reports whether the peer said in its last answer that it wants nothing
// to do with us. Whatever it said before does not hold any more.
func (d *derived) denied() bool {
	return d.expelled() || d.Remote.Denied == wire.ReasonOtherKey
}

// expelled reports whether the peer says that it knows nothing of us any more, and so that
// nothing of ours is left there.
func (d *derived) expelled() bool {
	return d.Remote.Denied == wire.ReasonNotTrusted || d.Remote.Denied == wire.ReasonBlocked
}

// incompatible says that the peer and we cannot talk to each other, and what to do
// about it; "" when we can.
func (d *derived) incompatible() string {
	if d.Remote.Denied != wire.ReasonProtocol {
		return ""
	}
	if d.Remote.Err == nil {
		return "The two agents have no protocol version in common."
	}
	return "The two agents cannot talk: " + text.Sentence(d.Remote.Err.Error()) + "."
}

// desiredSecret returns the desired Secret with the peer's identity, nil for none. An
// existing one stays while nothing better is known.
func (d *derived) desiredSecret() *Secret {
	if !d.RequestsKnown || !d.outgoing.keep && !d.outgoing.draining && !d.incoming.keep {
		return nil
	}
	have := d.Secret
	if have != nil && have.Intact && have.Fingerprint == d.Policy.Pin.Fingerprint &&
		(len(d.Remote.CA) == 0 || bytes.Equal(have.CA, d.Remote.CA)) && (d.peerNamespace() == "" || have.Namespace == d.peerNamespace()) {
		return have
	}
	// The certificate must be that of the key which is trusted now: what was shown
	// before its rotation is worth nothing.
	ca := d.Remote.CA
	cert, err := x509.ParseCertificate(ca)
	if err != nil || peer.FingerprintOf(cert.RawSubjectPublicKeyInfo) != d.Policy.Pin.Fingerprint {
		return have
	}
	namespace := d.peerNamespace()
	if namespace == "" && have != nil {
		namespace = have.Namespace
	}
	return &Secret{Fingerprint: d.Policy.Pin.Fingerprint, CA: ca, Namespace: namespace, Intact: true}
}

// peerNamespace is where Liqo lives in the peer, "" while that is not known.
func (d *derived) peerNamespace() string {
	if d.Peer == nil {
		return ""
	}
	return d.Peer.Namespace
}

// identityStored reports whether the Secret, as it will be, holds the trusted key.
func (d *derived) identityStored() bool {
	return d.secret != nil && d.Policy.Pin != nil && d.secret.Fingerprint == d.Policy.Pin.Fingerprint
}

// desiredAccess returns the access that the peer is to have here, nil for none.
func (d *derived) desiredAccess() *Access {
	if !d.RequestsKnown {
		return d.Access
	}
	want := Access{Advertisement: d.outgoing.keep || d.outgoing.draining, Intact: true}
	if d.trusted {
		state := d.remoteState()
		want.Request = d.Policy.Asked || !d.lost && (d.incoming.stays || d.incoming.missing || state != nil && state.Consumes)
	}
	if !want.Request && !want.Advertisement {
		return nil
	}
	return &want
}

// hasFinalizer reports whether fc waits for its peering to be undone.
func hasFinalizer(fc *api.ForeignCluster) bool {
	return slices.Contains(fc.Finalizers, api.FinalizerPeering)
}
