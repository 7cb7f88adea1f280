package connect

import (
	"errors"
	"fmt"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/network"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/sharing/connectivity"
	"liqo.io/agent/sharing/spec"
)

// How often, a second and at once, the State of a peer changes: it is written to objects, and a
// path may come and go all day.
const (
	changeRate, changeBurst = 1.0 / 60, 4
	changePeers             = 4096 // of whom that is remembered
)

// stated is the State of a peer.
type stated struct {
	now       spec.Network
	connected bool        // there was a connection since the agent started
	again     *time.Timer // for when it may be another; nil for none
}

// State returns the state of the network to a peer, as objects show it. A short interruption is
// left out, and so is one too many when it changes often; what is said about a state stays, too,
// as long as that does, because errors differ from one try to the next.
func (c *Connect) State(id peer.ClusterID) spec.Network {
	shares, problem := c.rules.Shares(id), c.rules.Problem()
	status, wanted := c.engine.Status(id)
	return c.state(id, shares, problem, status, wanted, c.engine.Problem())
}

// Seen is the network to a peer, as problems are judged by.
type Seen struct {
	State spec.Network
	Since time.Time     // of the present state of the path
	Why   string        // no packets pass, "" while nothing is known to be wrong
	Moved *network.Move // the last change of addresses, nil for none
}

// Seen returns the network to a peer.
func (c *Connect) Seen(id peer.ClusterID) Seen {
	status, _ := c.engine.Status(id)
	out := Seen{State: c.State(id), Since: status.Since, Moved: status.Moved}
	if status.Problem != nil {
		out.Why = text.Line(status.Problem.Error(), maxWhy)
	}
	return out
}

func (c *Connect) state(id peer.ClusterID, shares bool, problem *connectivity.Problem, status network.Status, wanted bool, unable error) spec.Network {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.stated[id]
	if !shares {
		if known != nil {
			stop(&known.again)
			delete(c.stated, id)
		}
		if known := c.shown[id]; known != nil {
			stop(&known.again)
			delete(c.shown, id)
		}
		return spec.Network{}
	}
	if known == nil {
		known = &stated{now: spec.Network{Enabled: true, Status: api.ConditionUnknown, Reason: reason.Connecting, Message: "The networks are being connected."}}
		c.stated[id] = known
	}
	stop(&known.again)
	later := func(wait time.Duration) spec.Network {
		known.again = time.AfterFunc(wait, func() { c.cfg.Changed(id) })
		return known.now
	}
	known.connected = known.connected || status.State == network.Connected
	if wait := grace(known.connected) - time.Since(status.Since); problem == nil && unable == nil && wanted && status.State == network.Connecting && wait > 0 {
		return later(wait)
	}
	next := describe(problem, status, wanted, unable)
	alike := next
	if alike.Status != api.ConditionTrue { // which has the addresses, and no errors
		alike.Message = known.now.Message
	}
	if alike == known.now {
		return alike
	}
	// That there is a connection is not held back: until it is told, the node takes no pods. It is as rare as its loss, and
	// the first one as joining.
	if next.Status == api.ConditionTrue {
		if known.now.Status == api.ConditionFalse {
			c.changes.Owe(id, 1, time.Now())
		}
	} else if wait := c.changes.Take(id, time.Now()); wait > 0 {
		return later(wait)
	}
	known.now = next
	return later(0) // who asks here need not be who shows it
}

// absence returns the reason why there can be no network to a peer, "" if there can, or that is not known. With one, it is
// not that a network is down.
func absence(status network.Status) string {
	var refused *wire.Refused
	switch errors.As(status.Problem, &refused); {
	case status.Unable:
		return reason.NotPossibleHere
	case refused != nil && refused.Reason == wire.ReasonNoNetwork, errors.Is(status.Problem, network.ErrLeft):
		return reason.NotWanted
	case refused != nil && refused.Reason == wire.ReasonNoSuchPath:
		return reason.PeerWithoutNetwork
	}
	return ""
}

// describe returns the state of the network to a peer with which resources are shared.
func describe(problem *connectivity.Problem, status network.Status, wanted bool, unable error) spec.Network {
	out := spec.Network{Enabled: true, Status: api.ConditionFalse}
	switch why := absence(status); {
	case problem != nil && problem.Reason == connectivity.ReasonUnknown:
		out.Status, out.Reason, out.Message = api.ConditionUnknown, reason.Connecting, problem.Message
	case problem != nil:
		out.Enabled, out.Reason, out.Message = false, problem.Reason, problem.Message
	case unable != nil:
		out.Reason, out.Message = reason.NotPossibleHere, fmt.Sprintf("This machine cannot connect networks: %v.", unable)
	case !wanted:
		out.Status, out.Reason, out.Message = api.ConditionUnknown, reason.Connecting, "The networks are being connected."
	case status.State == network.Connected:
		out.Status, out.Reason = api.ConditionTrue, reason.Connected
		out.Message = fmt.Sprintf("The networks are connected. Here, its pods have addresses in %s; there, pods of this cluster have addresses in %s.",
			network.Prefixes(status.Blocks.Theirs), network.Prefixes(status.Blocks.Ours))
	case why == reason.NotWanted:
		out.Reason, out.Message = why, "The cluster does not connect its network with this one. To see why, run there: liqo-agent network list"
	case why == reason.PeerWithoutNetwork:
		out.Reason, out.Message = why, "The agent of the cluster is too old to connect networks: update it."
	case len(status.Blocks.Theirs) > 0:
		out.Reason, out.Message = reason.NetworkDown, because("No packets pass between the networks of the two clusters", status.Problem)
	default:
		out.Reason, out.Message = reason.CannotConnect, because("The networks of the two clusters cannot be connected", status.Problem)
	}
	return out
}

// maxWhy bounds an error in a message, in bytes: it may have words of the peer.
const maxWhy = 300

func because(what string, why error) string {
	if why == nil {
		return what + "."
	}
	return what + ": " + text.Line(why.Error(), maxWhy) + "."
}

// grace is how long a path may be without a connection.
func grace(connected bool) time.Duration {
	if connected {
		return graceLater
	}
	return graceAtFirst
}

// stop stops a timer, if there is one.
func stop(t **time.Timer) {
	if *t != nil {
		(*t).Stop()
		*t = nil
	}
}
