package contact

import (
	"context"
	"errors"
	"fmt"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// holder is a cluster and its key.
type holder struct {
	id  peer.ClusterID
	key peer.Fingerprint
}

// target is where a lead leads to, and whom to look for there. A host that is
// known by its name is called by it.
func (l Lead) target(who holder) endpoint.Target {
	t := endpoint.Target{ID: who.id, Fingerprint: who.key}
	if host := l.Key.Vouchable(l.URL); host != "" {
		t.Hosts = []string{host}
	}
	switch {
	case l.URL != "" && len(l.Addrs) > 0:
		t.Places = []endpoint.Place{{URL: l.URL, Addrs: l.Addrs}}
	case l.URL != "":
		t.URL = l.URL
	default:
		t.Addrs = l.Addrs
	}
	return t
}

// where is the place for people.
func (l Lead) where() string {
	switch {
	case l.URL != "":
		return l.URL
	case len(l.Addrs) > 0:
		return l.Addrs[0].String()
	}
	return "a place without an address"
}

// expects reports whether an answer is of whom the lead expects.
func (l Lead) expects(res endpoint.Result) bool {
	return (l.ID == "" || res.Identity.ClusterID == l.ID) && (l.Fingerprint.IsZero() || holds(res, l.Fingerprint))
}

// allows reports whether a sighting can be of whom the lead expects.
func (l Lead) allows(s *peer.Sighting) bool {
	return (l.ID == "" || l.ID == s.ClusterID) && (l.Fingerprint.IsZero() || l.Fingerprint == s.Fingerprint)
}

// holds reports whether who answered holds a key, or one that succeeded it.
func holds(res endpoint.Result, key peer.Fingerprint) bool {
	return res.Fingerprint == key || res.Shown.Succeeds(key)
}

// whoIsThere asks the place of a lead who is there. before is who was found there
// last, if anybody was.
//
// Several clusters may be at one place: a name with several addresses. Whom the
// lead expects is looked for first, so that a stranger who answers faster does not
// hide them; if it expects nobody in particular, who was there before stays who is
// there as long as they answer; and so does, of several who claim one cluster ID,
// the one that holds the key known for it.
func (c *Contacts) whoIsThere(ctx context.Context, l Lead, before holder) (endpoint.Result, error) {
	res, err := c.cfg.Identify(ctx, l.target(holder{l.ID, l.Fingerprint}))
	if reason := reasonOf(err); reason == endpoint.ReasonWrongID || reason == endpoint.ReasonWrongKey {
		// Who is it, then?
		if other, otherErr := c.cfg.Identify(ctx, l.target(holder{})); otherErr == nil {
			res, err = other, nil
		}
	}
	if err != nil || !l.expects(res) {
		return res, err
	}
	for _, rather := range []holder{before, c.known(res.Identity.ClusterID)} {
		if rather.key.IsZero() || rather.id == res.Identity.ClusterID && holds(res, rather.key) {
			continue
		}
		if better, err := c.cfg.Identify(ctx, l.target(rather)); err == nil && l.expects(better) {
			return better, nil
		}
	}
	return res, nil
}

// known returns a cluster with the key it is known by; the zero value if none is.
func (c *Contacts) known(id peer.ClusterID) holder {
	p, _ := c.cfg.Known(id)
	if p.Fingerprint.IsZero() {
		return holder{}
	}
	return holder{id, p.Fingerprint}
}

// reasonOf returns why nobody was identified.
func reasonOf(err error) endpoint.Reason {
	var failure *endpoint.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &failure):
		return failure.Reason
	}
	return endpoint.ReasonUnreachable
}

// effect is what an answer means for the sighting that a lead has.
type effect int

const (
	keeps effect = iota // nobody answered: the recorder knows better
	gives               // who answered is seen there
	takes               // nobody is seen there whom the lead could be about
)

// verdict is what is made of an answer.
type verdict struct {
	effect  effect
	reason  Reason
	message string
}

// judge says what the answer to a lead means. Known is who holds the cluster ID
// that was answered, as far as the recorder knows.
func judge(l Lead, self, known holder, res endpoint.Result, err error) verdict {
	where, who := l.where(), res.Identity
	switch {
	case err != nil:
		return judgeError(l, err)
	case who.ClusterID == self.id && res.Fingerprint == self.key:
		return ourselves(l)
	case l.ID != "" && who.ClusterID != l.ID:
		return verdict{takes, OtherCluster, fmt.Sprintf("at %s is cluster %s (%s), not %s: correct the address, or say that it is about that cluster",
			where, who.ClusterName, who.ClusterID, l.ID)}
	case !l.expects(res):
		return verdict{takes, OtherKey, fmt.Sprintf("cluster %s (%s) at %s holds key %s, not %s: if it was set up anew, say so where the old key is given; otherwise somebody else is in its place",
			who.ClusterName, who.ClusterID, where, res.Fingerprint, l.Fingerprint)}
	case who.ClusterID == self.id:
		return verdict{gives, OtherKey, fmt.Sprintf("the cluster at %s uses the ID of this one with another key, %s: give one of the two an ID of its own", where, res.Fingerprint)}
	case !known.key.IsZero() && !holds(res, known.key):
		return verdict{gives, OtherKey, fmt.Sprintf("cluster %s (%s) is known by key %s, and who is at %s holds %s: if it was set up anew, take the new key with: liqo-agent peers trust %s; otherwise somebody pretends to be it",
			who.ClusterName, who.ClusterID, known.key, where, res.Fingerprint, who.ClusterID)}
	}
	return verdict{effect: gives}
}

func judgeError(l Lead, err error) verdict {
	where := l.where()
	switch reasonOf(err) {
	case endpoint.ReasonSelf:
		v := ourselves(l)
		if others(err) {
			// One of its addresses is ours, too. It may be at another that does not
			// answer now.
			v.effect = keeps
		}
		return v
	case endpoint.ReasonWrongID:
		return verdict{takes, OtherCluster, fmt.Sprintf("at %s is another cluster than %s: %v; correct the address, or say that it is about that cluster", where, l.ID, err)}
	case endpoint.ReasonWrongKey:
		return verdict{takes, OtherKey, fmt.Sprintf("who is at %s is not the holder of the expected key: %v", where, err)}
	case endpoint.ReasonNotTLS, endpoint.ReasonBadAnswer:
		return verdict{keeps, NoCluster, fmt.Sprintf("what answers at %s is no cluster: %v; check address and port (liqo-agent listens on 6447 unless told otherwise)", where, err)}
	}
	return verdict{keeps, Unreachable, fmt.Sprintf("nobody answers at %s: %v; check that address and port are right, that the cluster is up, and that no firewall is in between", where, err)}
}

// judgeKnown says what a lead is worth that was not asked, because it says all and
// the recorder checks it.
func judgeKnown(l Lead, p peer.Peer, known, there, sees bool) verdict {
	where := l.where()
	switch {
	case there:
		return verdict{effect: keeps}
	case known && !p.Fingerprint.IsZero() && p.Fingerprint != l.Fingerprint && !sees:
		return verdict{keeps, OtherKey, fmt.Sprintf("cluster %s (%s) is known by key %s, and %s is said to be a place where it holds %s: correct what is said, or if it was set up anew, take the new key with: liqo-agent peers trust %s",
			p.Name, l.ID, p.Fingerprint, where, l.Fingerprint, l.ID)}
	case known && p.Failures > 0:
		return verdict{keeps, Unreachable, fmt.Sprintf("cluster %s, which is said to be at %s, does not answer: %s", l.ID, where, p.Reason)}
	}
	return verdict{keeps, Asking, where + " was not asked yet"}
}

func ourselves(l Lead) verdict {
	return verdict{takes, Ourselves, l.where() + " is this cluster itself: give the address of another one"}
}

// others reports whether something else than we did not answer.
func others(err error) bool {
	var failure *endpoint.Error
	if !errors.As(err, &failure) {
		return false
	}
	for _, other := range failure.Others {
		if other.Reason != endpoint.ReasonSelf {
			return true
		}
	}
	return false
}
