package exchange

import (
	"bytes"
	"slices"

	"liqo.io/agent/liqo/document"
)

// PlanProvider decides what a provider does, and what it answers.
func PlanProvider(obs Provider) Decision {
	d := Decision{Answer: Answer{ClusterID: obs.Self}, Present: obs.Nonce != nil || obs.Tenant != nil || len(obs.Replicated) > 0}
	switch {
	case obs.Undecided:
		d.Ready = obs.Tenant != nil && obs.Tenant.Auth != nil && !obs.Tenant.Deleting
	case obs.Wanted:
		if obs.Cut {
			obs.Network = d.cut(obs.cared(obs.Peer), obs.Connected)
		}
		obs.establish(&d)
		obs.connect(&d)
		d.tell()
	default:
		obs.undo(&d)
	}
	return d
}

// tell has the consumer told why it waits. The message is for people here: it names objects, and
// perhaps other clusters.
func (d *Decision) tell() {
	switch {
	case d.Ready && d.Connecting:
		d.Answer.Waits = "Liqo's networking there is at work, or does not run."
	case d.Ready, d.Answer.Waits != "":
	case d.Reason == ReasonWaits:
		d.Answer.Waits = "Liqo's controllers there are at work, or do not run."
	default:
		d.Answer.Waits = "Somebody has to see there what is in the way: liqo-agent peers show."
	}
}

func (obs Provider) establish(d *Decision) {
	said := obs.Consumer
	if obs.Said != nil {
		said = obs.Said.ClusterID
	}
	if !d.called(obs.Self, obs.Consumer, said, "The consumer has not said yet how Liqo calls it.") {
		return
	}
	namespace, ok := d.care(obs.Here, obs.Consumer, obs.Peer)
	if !ok {
		return
	}
	switch {
	case obs.Nonce == nil:
		d.do(Action{Verb: Apply, Kind: NonceSecret, Namespace: namespace, Name: document.NonceSecret, Cluster: obs.Consumer, Peer: obs.Peer})
		d.wait(ReasonWaits, "Liqo's controllers make a nonce.")
		return
	case obs.Nonce.Deleting || len(obs.Nonce.Nonce) == 0:
		d.wait(ReasonWaits, "Liqo's controllers have not made the nonce yet.")
		return
	}
	nonce, err := document.ParseNonce(obs.Nonce.Nonce)
	if err != nil {
		d.wait(ReasonHostile, "The nonce in Secret %s cannot be used: %v. Delete the Secret to have another one made.", obs.Nonce.Name, err)
		return
	}
	d.Answer.Nonce = nonce
	obs.admit(d, namespace, nonce)
}

// admit applies the Tenant of the consumer, and answers with its Identity.
func (obs Provider) admit(d *Decision, namespace string, nonce document.Nonce) {
	have := obs.Tenant
	if have != nil && have.Deleting {
		d.wait(ReasonWaits, "The Tenant %s is being deleted.", have.Name)
		return
	}
	if have != nil && have.Auth != nil && obs.Addresses != "" && have.Addresses != obs.Addresses {
		d.do(Action{Verb: Note, Kind: TenantObject, Namespace: namespace, Name: have.Name, Cluster: obs.Consumer, Noted: obs.Addresses})
	}
	if obs.Said == nil || obs.Said.Tenant == nil {
		// After a restart the consumer has not called yet. What is there is as it was.
		if d.Ready = have != nil && have.Auth != nil && have.Check(obs.Consumer, nonce) == nil; d.Ready {
			d.wait(ReasonReady, "Liqo gives resources of this cluster to the consumer.")
		} else {
			d.wait(ReasonWaits, "The consumer has not signed the nonce yet.")
		}
		return
	}
	want, err := document.ParseTenant(obs.Said.Tenant, obs.Consumer, nonce)
	switch {
	case err != nil && have != nil && have.Auth != nil && have.Check(obs.Consumer, nonce) == nil:
		// A call from before is no reason to doubt what was checked.
		d.Ready = true
		d.wait(ReasonReady, "Liqo gives resources of this cluster to the consumer.")
		return
	case err != nil:
		d.wait(ReasonHostile, "What the consumer says is refused: %v.", err)
		d.Answer.Waits = d.Message
		return
	case have == nil || !have.Equal(want) || have.Drained:
		if obs.Certificate != nil && (have == nil || !bytes.Equal(have.CSR, want.CSR)) {
			// Liqo gives a certificate for the first request only.
			d.remove(CertSecret, namespace, *obs.Certificate)
		}
		d.do(Action{Verb: Apply, Kind: TenantObject, Namespace: namespace, Name: string(obs.Consumer), Cluster: obs.Consumer, Peer: obs.Peer, Tenant: &want, Noted: obs.Addresses})
		d.wait(ReasonWaits, "Liqo's controllers make the consumer's certificate.")
		return
	case have.Auth == nil:
		d.wait(ReasonWaits, "Liqo's controllers make the consumer's certificate.")
		return
	}
	identity := *have.Auth
	identity.ClusterID = obs.Self
	text, err := identity.Encode()
	if err != nil {
		d.wait(ReasonHostile, "The Identity cannot be made: %v.", err)
		return
	}
	d.Answer.Identity, d.Ready = text, true
	d.wait(ReasonReady, "Liqo gives resources of this cluster to the consumer.")
}

// connect has Liqo connect the networks of the two clusters, and answers with the one of this cluster. If this
// cluster consumes the other one as well, it does so as the consumer.
func (obs Provider) connect(d *Decision) {
	if !d.Ready {
		return
	}
	c := &connection{
		self: obs.Self, other: obs.Consumer, peer: obs.Peer, namespace: obs.cared(obs.Peer), network: obs.Network, here: obs.Here, address: obs.Address,
		serves: true, silent: "The agent of the consumer has not said anything about its network.",
	}
	d.Answer.Network = c.says()
	if obs.Said != nil {
		c.said = obs.Said.Network
	}
	if !obs.Consumes {
		d.connect(c)
		return
	}
	// The answer is another one as soon as there is a gateway.
	if theirs, err := document.ParseNetwork(c.said, c.other, c.network.Taken); err == nil && theirs.Problem == "" && c.network.Problem == "" {
		own, what := obs.Connected.gateway()
		d.Connecting = own == nil || !own.made(what)
	}
}

// undo removes what the consumer has here. Its Liqo removes what it put here as long as it has
// its rights; so the Tenant goes after that, or when it took too long.
func (obs Provider) undo(d *Decision) {
	namespace := obs.cared(obs.Peer)
	if namespace == "" {
		return
	}
	d.Busy = (obs.Tenant != nil || len(obs.Replicated) > 0) && !obs.Expired
	apart := true
	if obs.Cut || !obs.Consumes && obs.Tenant == nil && len(obs.Replicated) == 0 {
		apart = d.disconnect(namespace, obs.Connected)
	}
	given := slices.ContainsFunc(obs.Replicated, func(r Replica) bool { return r.Kind == SliceObject })
	switch {
	case len(obs.Replicated) > 0 && !obs.Overdue:
		d.wait(ReasonRemoving, "The consumer's Liqo removes what it has here.")
	case obs.Tenant != nil && given && !obs.Tenant.Drained && !obs.Tenant.Deleting:
		d.do(Action{Verb: Drain, Kind: TenantObject, Namespace: namespace, Name: obs.Tenant.Name, Cluster: obs.Consumer})
		d.wait(ReasonRemoving, "Liqo removes what the consumer has here.")
	case obs.Tenant != nil && given && !obs.Tenant.Deleting && !obs.Expired:
		d.wait(ReasonRemoving, "Liqo removes what the consumer has here.") // of a Tenant that is being deleted it does not
	case obs.Tenant != nil:
		d.remove(TenantObject, namespace, obs.Tenant.Object)
		d.wait(ReasonRemoving, "Liqo takes the consumer's rights away.")
	case len(obs.Replicated) > 0:
		// What the consumer's Liqo did not remove while it had the rights to.
		for _, r := range obs.Replicated {
			d.remove(r.Kind, namespace, r.Object)
		}
		d.wait(ReasonRemoving, "What the consumer had here is being removed.")
	default:
		if obs.Certificate != nil {
			d.remove(CertSecret, namespace, *obs.Certificate)
		}
		switch {
		case !apart:
			d.wait(ReasonRemoving, "Liqo disconnects the networks of the two clusters.")
		case obs.Nonce != nil:
			d.remove(NonceSecret, namespace, obs.Nonce.Object)
		case !obs.Consumes:
			d.release(obs.Here, obs.Consumer, obs.Peer)
		}
	}
}
