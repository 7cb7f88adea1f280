package plan

import (
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/liqo/exchange"
	"liqo.io/agent/peering/reason"
)

// View is the state of the peering with one cluster, for people.
type View struct {
	// Role is what the cluster is to us.
	Role api.Role
	// Engine is what peers the two and why, a sentence; "" without Liqo.
	Engine string
	// Outgoing is our consuming its resources, Incoming its consuming ours.
	Outgoing, Incoming Direction
}

// Direction is the state of a peering in one direction.
type Direction struct {
	// Wanted: the consumer wants it, as far as known.
	Wanted bool
	// Joined: it is established.
	Joined bool
	// Ending: it is no longer wanted, and something of it is left.
	Ending bool
	// Reason and Message are those of the condition OutgoingPeering or IncomingPeering, or
	// reason.Unknown; "" if there never was a peering.
	Reason, Message string
	// Since is when the condition last changed between true and false; zero while it
	// is not shown.
	Since time.Time
	// Steps are its steps, in order.
	Steps []Step
}

// Step is one step of a peering.
type Step struct {
	// Name is one word for programs. It never changes.
	Name string
	// Text is what happened, or is to happen, in a few words.
	Text string
	// Done: it happened.
	Done bool
}

// The names of steps.
const (
	StepReachable      = "reachable"
	StepTrusted        = "trusted"
	StepLetIn          = "let-in"
	StepIdentity       = "identity"
	StepRequested      = "requested"
	StepAccepted       = "accepted"
	StepOffered        = "offered"
	StepOfferAccepted  = "offer-accepted"
	MessageNoAPIServer = "The API server of this cluster does not answer, or there is none: a peering needs one."
)

// View returns the state of the peering. It agrees with the conditions that Plan writes.
func (obs Observed) View() View {
	f := derive(obs, time.Time{})
	v := View{Role: f.role()}
	if engine := f.engineVerdict(); engine != nil {
		v.Engine = engine.message
	}
	v.Outgoing = f.direction(api.ConditionOutgoingPeering, f.outgoing.verdict, f.outgoing.joined)
	v.Outgoing.Wanted = f.intent.wanted
	v.Outgoing.Steps = f.outgoingSteps()
	v.Incoming = f.direction(api.ConditionIncomingPeering, f.incoming.verdict, f.incoming.joined)
	v.Incoming.Wanted = f.incoming.stays || f.incoming.missing
	v.Incoming.Steps = f.incomingSteps()
	v.Outgoing.Ending, v.Incoming.Ending = f.ending()
	return v
}

// ending reports which of the two peerings are no longer wanted and not over yet. What is left
// at a peer that does not answer does not count. Without an API server, the decision store
// tells.
func (d *derived) ending() (outgoing, incoming bool) {
	if !d.RequestsKnown {
		return d.Policy.LastJoined && !d.intent.wanted, d.Policy.LastServed && d.Policy.Ended != ""
	}
	outgoing, incoming = d.leftHere()
	if between := d.leftovers(); between.Reachable {
		outgoing, incoming = between.Outgoing, between.Incoming
	}
	return outgoing && !d.intent.wanted, incoming && !d.incoming.stays && !d.incoming.missing
}

func (d *derived) direction(condition string, v *verdict, joined bool) Direction {
	shown := Direction{Joined: joined}
	switch {
	case !d.RequestsKnown:
		shown.Reason, shown.Message = reason.Unknown, MessageNoAPIServer
	case v != nil:
		shown.Reason, shown.Message = v.reason, v.message
		if c := d.shown.Condition(condition); c != nil && c.Status == v.status {
			shown.Since = c.LastTransitionTime.Time
		}
	}
	return shown
}

// outgoingSteps returns the steps of the outgoing peering.
func (d *derived) outgoingSteps() []Step {
	out, active := d.outgoing, d.outgoing.active
	steps := []Step{
		{StepReachable, "(remote) the cluster answers", d.answers()},
		{StepTrusted, "(local) its key is trusted", d.trusted && !d.suspendedHere()},
		{StepLetIn, "(remote) this cluster has access", out.letIn},
		{StepIdentity, "(local) its identity is stored", active && d.identityStored()},
		{StepRequested, "(remote) the PeeringRequest exists", out.requested},
		{StepAccepted, "(remote) the PeeringRequest is accepted", out.accepted},
	}
	if out.liqo {
		return append(steps, d.liqoSteps()...)
	}
	return append(steps,
		Step{StepOffered, "(local) its Advertisement exists", out.offer != nil},
		Step{StepOfferAccepted, "(local) its Advertisement is accepted", out.offer != nil && out.offer.AdvertisementStatus == api.AdvertisementAccepted},
	)
}

// incomingSteps returns the steps of the incoming peering.
func (d *derived) incomingSteps() []Step {
	in, state := d.incoming, d.remoteState()
	serves := in.keep && in.serves
	offered := in.joined
	if serves && state != nil && !d.denied() {
		offered = state.Advertisement != nil
	}
	steps := []Step{
		{StepReachable, "(remote) the cluster answers", d.answers()},
		{StepTrusted, "(local) its key is trusted", d.trusted && !d.suspendedHere()},
		{StepRequested, "(local) its PeeringRequest is there", in.stays},
		{StepAccepted, "(local) its PeeringRequest is accepted", in.serves},
		{StepIdentity, "(local) its identity is stored", serves && d.identityStored()},
	}
	if in.liqo {
		return append(steps, Step{exchange.StepTenant, "(local) Tenant status is filled", in.joined})
	}
	return append(steps,
		Step{StepOffered, "(remote) our Advertisement is there", offered},
		Step{StepOfferAccepted, "(remote) our Advertisement is accepted", in.joined},
	)
}

// Answer returns the state of the peerings that we report to the peer.
func (obs Observed) Answer() wire.State {
	state := wire.State{Identity: obs.Self.Identity, Kubernetes: obs.RequestsKnown}
	if !obs.RequestsKnown {
		return state
	}
	state.TakesResources = true
	state.Engine = obs.answeredEngine()
	f := derive(obs, time.Time{})
	if req := obs.Request; req != nil {
		state.Request = &wire.RequestState{
			UID: string(req.UID), Generation: req.Generation, Phase: req.Status.Phase, Reason: req.Status.Reason, Message: req.Status.Message, Spec: req.Spec,
		}
	} else if state.Ended = obs.Policy.Ended; state.Ended == "" && f.incoming.endedHere {
		// The decision store is told a moment later. A peer that asked meanwhile, and was not told
		// so, would make the request again.
		state.Ended = endedHere
	}
	if adv := obs.Advertisement; adv != nil {
		state.Advertisement = &wire.OfferState{
			UID: string(adv.UID), Generation: adv.Generation, Status: adv.Status.AdvertisementStatus, Message: adv.Status.Message, Spec: adv.Spec,
		}
	}
	// Also without an object, and while the peer is lost: we still want the peering, so our
	// request at the peer should stay.
	state.Consumes = f.intent.wanted && f.trusted || f.outgoing.draining && !f.requestEnded()
	state.AdvertisementWelcome = f.outgoing.keep || f.outgoing.draining
	return state
}
