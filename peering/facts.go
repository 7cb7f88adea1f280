package peering

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// facts is what follows from an Observed. Plan, View and Answer all read it, so
// that what is done, what is shown and what the peer is told never disagree.
type facts struct {
	Observed
	now time.Time

	// own is the ForeignCluster that the agent made, others are those of people,
	// the oldest first. leaving are those that somebody deletes and that wait for
	// our finalizer.
	own     *api.ForeignCluster
	others  []*api.ForeignCluster
	leaving []*api.ForeignCluster
	// creating: own is not there yet and is made by this plan.
	creating bool
	// decider is the one whose spec.join and spec.trustMode count; nil for none.
	decider *api.ForeignCluster

	// trusted: the peer's key is decided to be its own, and it is not blocked.
	trusted bool
	// lost: the peer has been away for too long.
	lost bool
	// expectant: the peer's answer to what a person asked anew is about to come; what
	// it refused before is none.
	expectant bool

	shown    *api.ForeignCluster // see before
	intent   intent
	outgoing outgoing
	incoming incoming

	// secret and access are what is to be there, given what is there; nil for none.
	secret *Secret
	access *Access
}

// expects reports whether the peer refused before a person asked anew, and has not
// answered to that yet.
func (f *facts) expects() bool {
	r := f.Remote
	no := r.Denied != "" || r.Asked != nil && r.Asked.Auth != api.AuthAccepted
	return no && !r.Tried.IsZero() && f.AnewSince.After(r.Tried)
}

// weigh derives everything that can be said about a cluster before single
// objects are looked at.
func weigh(obs Observed, now time.Time) *facts {
	f := &facts{Observed: obs, now: now}
	f.expectant = f.expects()
	f.own, f.others = obs.sort()
	slices.SortFunc(f.others, func(a, b *api.ForeignCluster) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for _, fc := range obs.Objects {
		if fc.ClusterID() == string(obs.ID) && fc.DeletionTimestamp != nil && hasFinalizer(fc) {
			f.leaving = append(f.leaving, fc)
		}
	}
	if f.own == nil && len(f.others) == 0 && !obs.nameTaken() && (obs.present() || obs.RequestsKnown && obs.Standing.Ask != nil) {
		f.own, f.creating = virtual(obs.subject()), true
	}
	f.decider = f.choose()
	f.shown = f.before()

	s := obs.Standing
	f.trusted = s.Pin != nil && !s.Distrusted && !s.Blocked
	f.lost = !obs.Reachable() && obs.LostAfter > 0 && obs.Away >= obs.LostAfter && (obs.Peer != nil || obs.Settled)
	f.intent = f.intend()
	f.outgoing = f.consume()
	f.incoming = f.serve()
	f.secret = f.identity()
	f.access = f.permit()
	return f
}

// virtual returns the ForeignCluster that is about to be made for a peer, as far
// as it matters.
func virtual(p *peer.Peer) *api.ForeignCluster {
	fc := &api.ForeignCluster{}
	fc.Name = string(p.ID)
	fc.Labels = api.AgentLabels(cmp.Or(api.DiscoveryType(p.Source), api.DiscoveryLAN))
	fc.Spec.ClusterIdentity = &api.ClusterIdentity{ClusterID: string(p.ID)}
	return fc
}

// live returns the objects that stay unless this plan deletes them, people's
// first.
func (f *facts) live() []*api.ForeignCluster {
	out := slices.Clone(f.others)
	if f.own != nil && f.own.DeletionTimestamp == nil {
		out = append(out, f.own)
	}
	return out
}

// choose returns the object whose spec.join and spec.trustMode count: the oldest of
// people's, and without any the agent's.
func (f *facts) choose() *api.ForeignCluster {
	if live := f.live(); len(live) > 0 {
		return live[0]
	}
	return nil
}

// replaced reports whether a person's object takes the place of the agent's.
func (f *facts) replaced() bool {
	return len(f.others) > 0 && f.own != nil && f.own.DeletionTimestamp == nil
}

// spare reports whether fc is a person's object beside another one that counts.
func (f *facts) spare(fc *api.ForeignCluster) bool {
	return fc != f.decider && fc != f.own && f.decider != nil
}

// voice returns the object that says what a person wants of a field, and who set
// it: the one that counts, unless nobody did there, and somebody did in the one
// whose place it takes.
func (f *facts) voice(field func(Owners) Owner) (*api.ForeignCluster, Owner) {
	owner := field(f.Owners[f.decider.Name])
	if f.replaced() && !owner.byPerson() {
		if own := field(f.Owners[f.own.Name]); own.byPerson() {
			return f.own, own
		}
	}
	return f.decider, owner
}

// before returns what was shown about the peering until now: an object of which
// nothing was shown yet knows nothing about what there was.
func (f *facts) before() *api.ForeignCluster {
	candidates := append(f.live(), f.leaving...)
	if f.decider != nil {
		candidates = append([]*api.ForeignCluster{f.decider}, candidates...)
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

// heard returns what the peer said last, nil while nothing is known: it said
// nothing yet, its API server is down, or it does not talk to us any more.
func (f *facts) heard() *endpoint.State {
	if s := f.Remote.State; s != nil && s.Kubernetes && !f.denied() {
		return s
	}
	return nil
}

// denied reports whether the peer said in its last answer that it wants nothing
// to do with us. Whatever it said before does not hold any more.
func (f *facts) denied() bool {
	switch f.Remote.Denied {
	case endpoint.ReasonNotTrusted, endpoint.ReasonBlocked, endpoint.ReasonOtherKey:
		return true
	}
	return false
}

// incompatible says that the peer and we cannot talk to each other, and what to do
// about it; "" when we can.
func (f *facts) incompatible() string {
	if f.Remote.Denied != endpoint.ReasonProtocol {
		return ""
	}
	if f.Remote.Err == nil {
		return "The two agents speak no version of the protocol in common."
	}
	return "The two agents cannot talk: " + sentence(f.Remote.Err.Error()) + "."
}

// identity returns the Secret that is to be there. One that cannot be made better
// stays.
func (f *facts) identity() *Secret {
	if !f.RequestsKnown || !f.outgoing.keep && !f.outgoing.draining && !f.incoming.keep {
		return nil
	}
	have := f.Secret
	if have != nil && have.Intact && have.Fingerprint == f.Standing.Pin.Fingerprint &&
		(len(f.Remote.CA) == 0 || bytes.Equal(have.CA, f.Remote.CA)) && (f.peerNamespace() == "" || have.Namespace == f.peerNamespace()) {
		return have
	}
	// The certificate must be that of the key which is trusted now: what was shown
	// before its rotation is worth nothing.
	ca := f.Remote.CA
	cert, err := x509.ParseCertificate(ca)
	if err != nil || peer.FingerprintOf(cert.RawSubjectPublicKeyInfo) != f.Standing.Pin.Fingerprint {
		return have
	}
	namespace := f.peerNamespace()
	if namespace == "" && have != nil {
		namespace = have.Namespace
	}
	return &Secret{Fingerprint: f.Standing.Pin.Fingerprint, CA: ca, Namespace: namespace, Intact: true}
}

// peerNamespace is where Liqo lives in the peer, "" while that is not known.
func (f *facts) peerNamespace() string {
	if f.Peer == nil {
		return ""
	}
	return f.Peer.Namespace
}

// stored reports whether the Secret, as it will be, holds the trusted key.
func (f *facts) stored() bool {
	return f.secret != nil && f.Standing.Pin != nil && f.secret.Fingerprint == f.Standing.Pin.Fingerprint
}

// permit returns what the peer may do here, nil for nothing.
func (f *facts) permit() *Access {
	if !f.RequestsKnown {
		return f.Access
	}
	want := Access{Advertisement: f.outgoing.keep || f.outgoing.draining, Intact: true}
	if f.trusted {
		heard := f.heard()
		want.Request = f.Standing.Asked || !f.lost && (f.incoming.stays || f.incoming.missing || heard != nil && heard.Consumes)
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
