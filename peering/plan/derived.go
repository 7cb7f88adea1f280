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
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/reason"
)

// derived is what follows from an Observed. Plan, View and Answer all read it, so they never
// disagree.
type derived struct {
	Observed
	now time.Time

	// own is the ForeignCluster that the agent created, others are those of people, the
	// oldest first. terminating are those that are being deleted and have our finalizer.
	own         *api.ForeignCluster
	others      []*api.ForeignCluster
	terminating []*api.ForeignCluster
	// creating: this plan creates own.
	creating bool
	// effective is the object whose spec.join and spec.trustMode are in effect; nil for none.
	effective *api.ForeignCluster

	// trusted: the peer's key is trusted, and the peer is not blocked.
	trusted bool
	// lost: the peer has been away for too long.
	lost bool

	shown    *api.ForeignCluster // see lastShown
	intent   intent
	outgoing outgoing
	incoming incoming

	// secret and access are the desired objects, given the existing ones; nil for none.
	secret *Secret
	access *Access
}

// expectsAnswer reports whether the peer refused before a person connected again, and has not
// answered since, so that its refusal does not count.
func (d *derived) expectsAnswer() bool {
	r := d.Remote
	no := r.Denied != "" || r.Asked != nil && r.Asked.Auth != api.AuthAccepted
	return no && !r.Answered.IsZero() && d.GenerationSince.After(r.Answered)
}

// derive returns what follows from obs at that time.
func derive(obs Observed, now time.Time) *derived {
	d := &derived{Observed: obs, now: now}
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

// unwritten returns the fields that decisions read of the ForeignCluster that is about to be
// created for a peer.
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

// chooseEffective returns the effective object: the oldest one of people, or else the agent's.
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

// redundant reports whether fc is a person's object without effect, because another one is in
// effect.
func (d *derived) redundant(fc *api.ForeignCluster) bool {
	return fc != d.effective && fc != d.own && d.effective != nil
}

// author returns the object with a person's value of a field, and who set it: the effective
// one, or the one that it replaces if a person set the field only there.
func (d *derived) author(field func(fields.Owners) fields.Owner) (*api.ForeignCluster, fields.Owner) {
	owner := field(d.Owners[d.effective.Name])
	if d.superseded() && !owner.ByPerson() {
		if own := field(d.Owners[d.own.Name]); own.ByPerson() {
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
		case out != nil && out.Reason != reason.AwaitingContact && out.Reason != reason.AnotherObject, out == nil && in != nil:
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

// remoteState returns the last state that the peer reported, nil if it is not known: it
// reported none yet, its API server is down, or it denies us.
func (d *derived) remoteState() *wire.State {
	if s := d.Remote.State; s != nil && s.Kubernetes && !d.denied() {
		return s
	}
	return nil
}

// denied reports whether the peer said that it does not deal with us, and has not taken that back. What it reported
// before is void then.
func (d *derived) denied() bool {
	return d.expelled() || d.Remote.Denied == wire.ReasonOtherKey
}

// expelled reports whether the peer no longer trusts us, or blocked us, so that nothing of ours
// is left there.
func (d *derived) expelled() bool {
	return d.Remote.Denied == wire.ReasonNotTrusted || d.Remote.Denied == wire.ReasonBlocked
}

// incompatible returns a sentence if the two agents have no protocol version in common, else
// "".
func (d *derived) incompatible() string {
	if d.Remote.Denied != wire.ReasonProtocol {
		return ""
	}
	if d.Remote.Err == nil {
		return "The two agents have no protocol version in common."
	}
	return "The two agents cannot talk: " + text.Sentence(d.Remote.Err.Error()) + "."
}

// desiredSecret returns the desired Secret with the peer's identity, nil for none. An existing
// one stays until there is a valid newer certificate.
func (d *derived) desiredSecret() *Secret {
	if !d.RequestsKnown || !d.outgoing.keep && !d.outgoing.draining && !d.incoming.keep {
		return nil
	}
	have := d.Secret
	if have != nil && have.Intact && have.Fingerprint == d.Policy.Pin.Fingerprint &&
		(len(d.Remote.CA) == 0 || bytes.Equal(have.CA, d.Remote.CA)) && (d.peerNamespace() == "" || have.Namespace == d.peerNamespace()) {
		return have
	}
	// The certificate must be that of the trusted key, not one from before its rotation.
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

// peerNamespace is the namespace of Liqo in the peer, "" while that is not known.
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

// hasFinalizer reports whether fc has our finalizer.
func hasFinalizer(fc *api.ForeignCluster) bool {
	return slices.Contains(fc.Finalizers, api.FinalizerPeering)
}
