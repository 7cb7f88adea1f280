package registry

import (
	"cmp"
	"errors"
	"fmt"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
)

// effect is what an answer means for the sighting that a candidate is.
type effect int

const (
	keeps effect = iota // nobody answered: the checks know better
	gives               // who answered is seen there
	takes               // nobody is seen there whom the candidate could be about
)

// verdict is what is made of an answer.
type verdict struct {
	effect  effect
	reason  Reason
	message string
}

// judge says what the answer to a probe of a candidate means. Known is who holds the cluster ID
// that was answered, as far as it is known.
func judge(c Candidate, self holder, known peer.Fingerprint, res client.Result, err error) verdict {
	where, who := c.where(), res.Identity
	switch {
	case err != nil:
		return judgeError(c, err)
	case who.ClusterID == self.id && res.Fingerprint == self.key:
		return ourselves(c)
	case c.ClusterID != "" && who.ClusterID != c.ClusterID:
		return verdict{takes, OtherCluster, fmt.Sprintf("%s is cluster %s (%s), not %s: correct the address, or the cluster ID given with it",
			where, who.ClusterName, who.ClusterID, c.ClusterID)}
	case !c.expects(res):
		return verdict{takes, OtherKey, fmt.Sprintf("cluster %s (%s) at %s holds key %s, not %s: if it was set up anew, correct the key given with the address; otherwise somebody pretends to be it",
			who.ClusterName, who.ClusterID, where, res.Fingerprint, c.Fingerprint)}
	case who.ClusterID == self.id:
		return verdict{gives, OtherKey, fmt.Sprintf("the cluster at %s has the ID of this cluster, but another key (%s): give one of the two a new ID", where, res.Fingerprint)}
	case !known.IsZero() && !holds(res, known):
		return verdict{gives, OtherKey, fmt.Sprintf("cluster %s (%s) is known by key %s, but %s shows key %s: if it was set up anew, take the new key with: liqo-agent peers trust %s; otherwise somebody pretends to be it",
			who.ClusterName, who.ClusterID, known, where, res.Fingerprint, who.ClusterID)}
	}
	return verdict{effect: gives}
}

func judgeError(c Candidate, err error) verdict {
	where := c.where()
	switch reasonOf(err) {
	case client.ReasonSelf:
		v := ourselves(c)
		if others(err) {
			// One of its addresses is ours, too. It may be at another that does not
			// answer now.
			v.effect = keeps
		}
		return v
	case client.ReasonWrongID:
		return verdict{takes, OtherCluster, fmt.Sprintf("%s is another cluster than %s: %v; correct the address, or the cluster ID given with it", where, c.ClusterID, err)}
	case client.ReasonWrongKey:
		return verdict{takes, OtherKey, fmt.Sprintf("%s does not show the expected key: %v", where, err)}
	case client.ReasonNotTLS, client.ReasonBadAnswer:
		return verdict{keeps, NotACluster, fmt.Sprintf("%s is not the endpoint of a liqo-agent: %v; check the address and the port (6447 by default)", where, err)}
	}
	return verdict{keeps, Unreachable, fmt.Sprintf("%s does not answer: %v; check the address and the port, that the cluster is running, and that no firewall is in between", where, err)}
}

// judgeKnown says what a candidate is worth that is not probed, because it says all and
// is checked like any sighting.
func judgeKnown(c Candidate, p *peer.Peer, known peer.Fingerprint, there, carried bool) verdict {
	where := c.where()
	switch {
	case there:
		return verdict{effect: keeps}
	case p != nil && !known.IsZero() && known != c.Fingerprint && !carried:
		return verdict{keeps, OtherKey, fmt.Sprintf("cluster %s (%s) is known by key %s, but %s is listed with key %s: correct the entry, or if the cluster was set up anew, take the new key with: liqo-agent peers trust %s",
			cmp.Or(p.Name, string(p.ID)), c.ClusterID, known, where, c.Fingerprint, c.ClusterID)}
	case p != nil && p.Failures > 0:
		return verdict{keeps, Unreachable, fmt.Sprintf("cluster %s, listed at %s, does not answer: %s", c.ClusterID, where, p.Reason)}
	}
	return verdict{keeps, NotProbed, where + " has not been checked yet"}
}

func ourselves(c Candidate) verdict {
	return verdict{takes, ThisCluster, c.where() + " is this cluster itself: give the address of another one"}
}

// others reports whether something else than we did not answer.
func others(err error) bool {
	var failure *client.Error
	if !errors.As(err, &failure) {
		return false
	}
	for _, other := range failure.Others {
		if other.Reason != client.ReasonSelf {
			return true
		}
	}
	return false
}
