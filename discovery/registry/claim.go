package registry

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
)

// failuresUntilLost is how many checks in a row must fail before a peer that
// still advertises itself is given up.
const failuresUntilLost = 3

// maxAddrs bounds the addresses tried in one check. A host with more usable
// addresses than this on one link is misconfigured or hostile.
const maxAddrs = 16

// secondLook is how long after a check that failed, or ended at an address that is
// only good enough, there is another: the time that a host takes to get going at a
// new address.
const secondLook = time.Second

// maxDetours is how often in a row a peer that answered at an address which is only good
// enough is looked for at its others a moment later.
const maxDetours = 3

// soonChecks is how many checks of who is seen again have to fail until one more sighting begins anew: announcements are forged easily.
const soonChecks = 8

// maxPause is about how rarely a claim is checked that does not stand.
const maxPause = 10 * time.Minute

// sighting is what a source says about a cluster now. What it points to is replaced,
// never changed.
type sighting struct {
	*peer.Sighting
	claim    *claim
	recalled bool // by an earlier run, and not said again since, see recall
}

// claim is one key's claim to be one cluster: the sightings that carry it, and
// what checking it gave. A cluster ID normally has exactly one.
type claim struct {
	job       job
	id        peer.ClusterID
	key       peer.Fingerprint
	sightings []*sighting
	fresh     []netip.AddrPort // addresses first announced on a link since the last check began, newest first
	looked    []netip.AddrPort // those that the check under way knows of

	verified bool // the endpoint proved the claim at least once
	identity peer.Identity
	protocol peer.Protocol  // what the endpoint speaks; zero before it answered
	addr     netip.AddrPort // address that last answered
	url      string
	detours  int  // checks in a row that ended at an address that is only good enough, see settle
	held     bool // somebody depends on the peer, see Registry.Hold
	failures int
	second   bool      // the next check only looks at the last failure a second time
	failedAt time.Time // the last failure that counted
	failure  string    // why the last check failed
	back     int       // failures when it was seen again, or at a new address, while it was lost; 0 if it was not
	seenAt   time.Time

	unheard bool // it was there when the last run ended, and no source has said anything of it in this one

	absence Absence // why no source sees it, while none does
}

// renew takes in that a source says something new, instead of what it said before if
// it did.
func (c *claim) renew(old *sighting, s *peer.Sighting) *sighting {
	var before []netip.AddrPort
	news := old == nil
	if old != nil {
		before = old.Addrs
	}
	for _, a := range slices.Backward(s.Addrs) {
		if s.Source != peer.LAN {
			// Only who announces itself on a link knows which of its addresses is new. That
			// a peer calls from one does not mean that it left the one where it answers.
			break
		}
		if !slices.Contains(before, a) && !slices.Contains(c.fresh, a) {
			c.fresh, news = slices.Insert(c.fresh, 0, a), true
		}
	}
	c.fresh = c.fresh[:min(len(c.fresh), maxAddrs)]
	phase, reason := c.phase()
	if old == nil {
		old = &sighting{claim: c}
		c.sightings = append(c.sightings, old)
	}
	old.Sighting, old.recalled = s, false
	c.hear(s)
	if c.verified && phase == peer.PhaseLost {
		if c.failures < failuresUntilLost {
			// A packet alone brings nobody back: lost until its endpoint answers.
			c.failures, c.failure = failuresUntilLost, "seen again, not checked yet; it was lost because "+reason
			c.second = false
		}
		if news && (c.back == 0 || c.failures-c.back >= soonChecks) {
			c.back = c.failures
		}
	}
	return old
}

// hear takes in that a source says something about the peer, or takes it back. That a peer calls us is no
// announcement.
func (c *claim) hear(s *peer.Sighting) {
	if s.Source != peer.IncomingPeering {
		c.unheard = false
	}
}

// end takes in that a source no longer sees the cluster.
func (c *claim) end(s *sighting, why Absence) {
	c.sightings = slices.DeleteFunc(c.sightings, func(o *sighting) bool { return o == s })
	c.hear(s.Sighting)
	if len(c.sightings) == 0 {
		c.absence = why
	}
}

// phase decides where the claim stands.
func (c *claim) phase() (peer.Phase, string) {
	unseen := len(c.sightings) == 0
	switch {
	case !c.verified && unseen:
		return peer.PhaseLost, c.absence.Reason
	case !c.verified:
		return peer.PhaseUnverified, cmp.Or(c.failure, "not checked yet")
	case unseen && c.absence.Evidence == Withdrawn:
		return peer.PhaseLost, c.absence.Reason
	case unseen && c.absence.Evidence == Expired && c.failures > 0:
		return peer.PhaseLost, fmt.Sprintf("%s, and its endpoint does not answer: %s", c.absence.Reason, c.failure)
	case c.failures >= failuresUntilLost:
		return peer.PhaseLost, fmt.Sprintf("%d or more checks in a row failed: %s", failuresUntilLost, c.failure)
	case c.failures > 0:
		return peer.PhaseUnreachable, c.failure
	}
	return peer.PhasePresent, ""
}

// settle records the outcome of a check. It reports whether the check ended at an address that is only good enough, so
// that another one is due in a moment.
func (c *claim) settle(res client.Result, err error, now time.Time) (detour bool) {
	if err != nil {
		c.detours = 0
		c.failure = err.Error()
		if c.second {
			// The same silence, looked at twice.
			c.second = false
			return false
		}
		c.failures++
		c.failedAt = now
		c.second = c.verified && c.failures == 1
		return false
	}
	c.verified, c.second = true, false
	c.failures, c.failure, c.back = 0, "", 0
	c.identity, c.protocol = res.Identity, res.Protocol
	outdone := c.outdone(res.Addr)
	if outdone || c.onlyLocal(res.Addr) {
		c.detours++
		detour = c.detours <= maxDetours
	} else {
		c.detours = 0
	}
	if !outdone || !detour {
		c.addr, c.url = res.Addr, res.URL
	}
	c.seenAt = now
	c.fresh = slices.DeleteFunc(c.fresh, func(a netip.AddrPort) bool { return slices.Contains(c.looked, a) })
	if c.held && len(c.sightings) == 0 {
		// It need not announce itself to those who depend on it.
		c.absence = Absence{}
	}
	return detour
}

// nextCheck says when to check again after an outcome: every interval while
// the claim stands, and ever more rarely while it does not, so that a dead
// endpoint behind a living responder costs little. Who answered before and does
// not now is looked at once more in a moment. Strangers, and those who are seen
// again after they were lost, are checked again in a moment, and then ever more
// rarely: hosts get going at a new address, and many at once keep each other
// waiting. Zero means never.
func (c *claim) nextCheck(now time.Time, interval time.Duration) time.Time {
	phase, _ := c.phase()
	if phase == peer.PhaseLost && len(c.sightings) == 0 && !c.held {
		return time.Time{}
	}
	wait := interval
	switch {
	case c.second:
		wait = min(interval, secondLook)
	case phase == peer.PhaseUnverified:
		wait = backoff(secondLook, c.failures, maxPause)
	case phase == peer.PhaseLost && c.back > 0:
		wait = backoff(secondLook, c.failures-c.back, maxPause)
		if c.held {
			wait = min(wait, interval)
		}
	case phase == peer.PhaseLost && !c.held:
		wait = backoff(interval, c.failures, maxPause)
	}
	from := now
	if c.failures > 0 {
		// A second look does not put off the next check.
		from = c.failedAt
	}
	return from.Add(spread(wait))
}

// outdone reports whether a check that ended at an address says little about the one that answered before, which is as
// good and still announced. Of several addresses that are tried a moment after each other the first to answer wins, and any
// host is slow for a moment.
func (c *claim) outdone(at netip.AddrPort) bool {
	return at != c.addr && !slices.Contains(c.fresh, at) && slices.Contains(c.addrs(), c.addr) &&
		(!c.addr.Addr().IsLinkLocalUnicast() || at.Addr().IsLinkLocalUnicast())
}

// onlyLocal reports whether an address is a link-local one although the peer has others, as happens right after one of
// them changed. A link-local address works, but means nothing to people and other hosts.
func (c *claim) onlyLocal(at netip.AddrPort) bool {
	return at.Addr().IsLinkLocalUnicast() && slices.ContainsFunc(c.addrs(), func(a netip.AddrPort) bool { return !a.Addr().IsLinkLocalUnicast() })
}

// target builds what to check: the sources in the order of their rank. Within
// one, addresses that are new come first, because a peer that just announced one
// has most likely left the others; then the one that last answered; then the
// rest. The one that last answered is tried in any case: whoever announces other
// addresses for a peer need not be that peer.
func (c *claim) target() peer.Target {
	t := peer.Target{ID: c.id, Fingerprint: c.key}
	add := func(a netip.AddrPort) {
		if a.IsValid() && len(t.Addrs) < maxAddrs && !slices.Contains(t.Addrs, a) {
			t.Addrs = append(t.Addrs, a)
		}
	}
	for _, s := range c.ordered() {
		if host := s.Key().Vouchable(s.URL); host != "" {
			t.Hosts = append(t.Hosts, host)
		}
		switch named := s.URL != "" && s.Source != peer.IncomingPeering; {
		case named && len(t.Addrs) == 0 && len(t.Places) < maxAddrs:
			t.Places = append(t.Places, peer.Place{URL: s.URL, Addrs: s.Addrs})
			continue
		case s.URL != "" && t.URL == "":
			t.URL = s.URL
		}
		group := c.addrsOf(s.Source)
		for _, a := range c.fresh {
			if slices.Contains(group, a) {
				add(a)
			}
		}
		if slices.Contains(group, c.addr) && !c.addr.Addr().IsLinkLocalUnicast() {
			add(c.addr)
		}
		for _, a := range group {
			add(a)
		}
	}
	if len(t.Addrs) == maxAddrs && !slices.Contains(t.Addrs, c.addr) {
		t.Addrs = t.Addrs[:maxAddrs-1]
	}
	add(c.addr)
	if len(t.Addrs) == 0 && t.URL == "" && len(t.Places) == 0 {
		t.URL = c.url
	}
	return t
}

// ranking orders sources by how much their word counts: a person's goes before
// what is seen, what a peer says of itself on a link before what a domain says of
// it, and last comes that it called.
var ranking = [...]peer.Source{peer.Manual, peer.LAN, peer.WAN, peer.IncomingPeering}

func rankOf(s peer.Source) int { return slices.Index(ranking[:], s) }

// ordered returns the sightings of this run, those of the best source first, in a
// stable order.
func (c *claim) ordered() []*peer.Sighting {
	out := make([]*peer.Sighting, 0, len(c.sightings))
	for _, s := range c.sightings {
		if !s.recalled {
			out = append(out, s.Sighting)
		}
	}
	slices.SortFunc(out, func(a, b *peer.Sighting) int {
		return cmp.Or(cmp.Compare(rankOf(a.Source), rankOf(b.Source)), a.Key().Compare(b.Key()))
	})
	return out
}

// addrs returns every address any source gives now, those of the best source
// first, sorted.
func (c *claim) addrs() []netip.AddrPort {
	var out []netip.AddrPort
	for _, source := range ranking {
		for _, a := range c.addrsOf(source) {
			if !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

// addrsOf returns every address that a source gives now, in this run, sorted.
func (c *claim) addrsOf(source peer.Source) []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range c.sightings {
		if s.Source == source && !s.recalled {
			out = append(out, s.Addrs...)
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}

// fill writes what the claim knows into a peer's view. It replaces lists and changes
// none.
func (c *claim) fill(p *peer.Peer) {
	p.Phase, p.Reason = c.phase()
	p.Failures = c.failures
	sightings := c.ordered()
	p.Links, p.Sources, p.Domains = nil, nil, nil
	for _, s := range sightings {
		note(&p.Links, s.Link)
		note(&p.Sources, s.Source)
		note(&p.Domains, s.Domain)
	}
	slices.Sort(p.Domains)
	if len(sightings) > 0 {
		best := sightings[0]
		p.Source, p.Version, p.TTL = best.Source, "", 0
		for _, s := range sightings {
			p.Version, p.TTL = cmp.Or(p.Version, s.Version), cmp.Or(p.TTL, s.TTL)
		}
		p.Addrs = c.addrs()
		if !c.verified {
			p.Name, p.Namespace = best.ClusterName, best.Namespace
		}
	}
	if c.verified {
		p.Fingerprint = c.key
		p.Name, p.Namespace = c.identity.ClusterName, c.identity.GuestNamespace
		p.URL = c.url
		if c.protocol.Newest > 0 {
			p.Version = strconv.Itoa(c.protocol.Newest)
		}
		if len(p.Addrs) == 0 && c.addr.IsValid() {
			p.Addrs = []netip.AddrPort{c.addr}
		}
	}
	if c.seenAt.After(p.LastSeen) {
		p.LastSeen = c.seenAt
	}
}

// note adds a value to a list unless it is zero or there already.
func note[T comparable](list *[]T, value T) {
	var zero T
	if value != zero && !slices.Contains(*list, value) {
		*list = append(*list, value)
	}
}
