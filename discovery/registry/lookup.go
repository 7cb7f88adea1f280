package registry

import (
	"context"
	"errors"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
)

// target is where a candidate is, and whom to look for there. A host that is
// known by its name is called by it.
func (c Candidate) target(who holder) peer.Target {
	t := peer.Target{ID: who.id, Fingerprint: who.key}
	if host := c.Key().Vouchable(c.URL); host != "" {
		t.Hosts = []string{host}
	}
	switch {
	case c.URL != "" && len(c.Addrs) > 0:
		t.Places = []peer.Place{{URL: c.URL, Addrs: c.Addrs}}
	case c.URL != "":
		t.URL = c.URL
	default:
		t.Addrs = c.Addrs
	}
	return t
}

// where is the place for people.
func (c Candidate) where() string {
	switch {
	case c.URL != "":
		return c.URL
	case len(c.Addrs) > 0:
		return c.Addrs[0].String()
	}
	return "an entry without an address"
}

// expects reports whether an answer is of whom the candidate expects.
func (c Candidate) expects(res client.Result) bool {
	return (c.ClusterID == "" || res.Identity.ClusterID == c.ClusterID) && (c.Fingerprint.IsZero() || holds(res, c.Fingerprint))
}

// holds reports whether who answered holds a key, or one that succeeded it.
func holds(res client.Result, key peer.Fingerprint) bool {
	return res.Fingerprint == key || res.Shown.Succeeds(key)
}

// whoIsThere asks the place of a candidate who is there. before is who was found there
// last, if anybody was.
//
// Several clusters may be at one place: a name with several addresses. Whom the
// candidate expects is looked for first, so that a stranger who answers faster does not
// hide them; if it expects nobody in particular, who was there before stays who is
// there as long as they answer; and so does, of several who claim one cluster ID,
// the one that holds the key known for it.
func (r *Registry) whoIsThere(ctx context.Context, c *Candidate, before holder) (client.Result, error) {
	res, err := r.cfg.Lookup(ctx, c.target(holder{c.ClusterID, c.Fingerprint}))
	if reason := reasonOf(err); reason == client.ReasonWrongID || reason == client.ReasonWrongKey {
		// Who is it, then?
		if other, otherErr := r.cfg.Lookup(ctx, c.target(holder{})); otherErr == nil {
			res, err = other, nil
		}
	}
	if err != nil || !c.expects(res) {
		return res, err
	}
	is := func(who holder) bool { return who.id == res.Identity.ClusterID && holds(res, who.key) }
	known := r.views.key(before.id)
	if !known.key.IsZero() && is(known) {
		return res, nil
	}
	for i, rather := range []holder{known, before, r.views.key(res.Identity.ClusterID)} {
		if rather.key.IsZero() || is(rather) || i > 0 && rather == known {
			continue
		}
		if better, err := r.cfg.Lookup(ctx, c.target(rather)); err == nil && c.expects(better) {
			return better, nil
		}
	}
	return res, nil
}

// reasonOf returns why nobody was identified.
func reasonOf(err error) client.Reason {
	var failure *client.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &failure):
		return failure.Reason
	}
	return client.ReasonUnreachable
}
