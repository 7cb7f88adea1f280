package contact

import (
	"cmp"
	"context"
	"slices"
	"time"

	"liqo.io/agent/agent/recorder"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// entry is a lead and what became of it. It belongs to the goroutine in Run.
type entry struct {
	key   peer.Key
	state *State // as published; never changed, only replaced

	// What the recorder is to know, and what it was told. Sightings are not changed.
	want  *peer.Sighting // nil: nobody is seen there
	told  *peer.Sighting
	why   recorder.Absence // why nobody is
	lost  bool             // the recorder forgot it: it did not have room
	again bool             // it is to be told once more
	dirty bool             // it is to be told

	before holder         // whom the lead led to last
	proved bool           // want is what somebody answered, not what the lead says
	about  peer.ClusterID // whom the lead is about, see Contacts.byID
	there  bool           // the recorder sees them
	since  time.Time      // when somebody answered last
	vain   int            // how often in a row they did and the recorder did not see them

	attempt *attempt // under way, nil when none is
	waiting bool     // it is to be asked again as soon as that has ended

	due   time.Time // when its turn is; zero: never
	fresh bool      // it goes before those that had their turn
	queue *queue    // of the schedule, nil: it is in none
	pos   int       // in queue
}

// attempt is one asking of a lead's place.
type attempt struct {
	entry  *entry
	group  *group
	cancel context.CancelFunc
}

// outcome is how it ended.
type outcome struct {
	attempt *attempt
	result  endpoint.Result
	err     error
}

// isSaid reports whether a lead says all that a sighting needs.
func (l Lead) isSaid() bool { return l.ID != "" && !l.Fingerprint.IsZero() }

// isAsked reports whether the place of a lead is asked. A person wants to know
// whether the URL is right even if the rest is known.
func (l Lead) isAsked() bool { return !l.isSaid() || sideOf(l.Key) == persons }

// sighting is what a lead says by itself.
func (l Lead) sighting() *peer.Sighting {
	return &peer.Sighting{
		Source: l.Key.Source, Link: l.Key.Link, Domain: l.Key.Domain, Instance: l.Key.Instance,
		ClusterID: l.ID, ClusterName: l.ClusterName, Namespace: l.Namespace, Fingerprint: l.Fingerprint,
		Version: l.Version, Addrs: l.Addrs, URL: l.URL, TTL: l.TTL,
	}
}

// answered is the sighting that an answer makes of a lead.
func (l Lead) answered(res endpoint.Result) *peer.Sighting {
	s := l.sighting()
	s.ClusterID, s.Fingerprint = res.Identity.ClusterID, res.Fingerprint
	s.ClusterName, s.Namespace = res.Identity.ClusterName, res.Identity.GuestNamespace
	return s
}

// described is the sighting that e has, with what its lead says now that has
// nothing to do with where it leads; nil if there is none.
func (e *entry) described(l Lead) *peer.Sighting {
	if e.want == nil {
		return nil
	}
	s := *e.want
	s.Version, s.TTL = l.Version, l.TTL
	if l.isSaid() && !e.proved {
		s.ClusterName, s.Namespace = l.ClusterName, l.Namespace
	}
	return &s
}

// equal reports whether two leads say the same.
func (l Lead) equal(o Lead) bool {
	return l.samePlace(o) && l.sameExpectation(o) && l.ClusterName == o.ClusterName && l.Namespace == o.Namespace &&
		l.Version == o.Version && l.TTL == o.TTL
}

// samePlace reports whether two leads lead to the same place. DNS gives the
// addresses of a host in any order.
func (l Lead) samePlace(o Lead) bool {
	if l.URL != o.URL || len(l.Addrs) != len(o.Addrs) {
		return false
	}
	return slices.Equal(l.Addrs, o.Addrs) || slices.Equal(sorted(l.Addrs), sorted(o.Addrs))
}

// sameExpectation reports whether two leads expect the same cluster.
func (l Lead) sameExpectation(o Lead) bool { return l.ID == o.ID && l.Fingerprint == o.Fingerprint }

// look returns whether the recorder sees whom a lead is about, with the key that
// it leads to, and whether it does so by the source of the lead. A key that a lead
// only says may have been succeeded by another one: then the recorder sees the
// cluster by the same source all the same.
func (c *Contacts) look(e *entry) (there, sees bool) {
	p, ok := c.cfg.Known(e.about)
	sees = ok && slices.Contains(p.Sources, e.key.Source) && (e.key.Domain == "" || slices.Contains(p.Domains, e.key.Domain))
	if e.want != nil && e.want == e.told && !sees && (!ok || p.Fingerprint == e.want.Fingerprint) {
		e.lost = true
	}
	there = ok && p.Phase == peer.PhasePresent && (e.want == nil || p.Fingerprint == e.want.Fingerprint || !e.proved && sees)
	return there, sees
}

// tell says what the recorder is to know from now on of a lead that expects a
// certain cluster, "" for any.
func (c *Contacts) tell(e *entry, expects peer.ClusterID, want *peer.Sighting, why recorder.Absence) {
	if want != nil && e.want != nil && want.Equal(*e.want) {
		want = e.want
	}
	e.want, e.why = want, why
	if e.want != e.told {
		c.mark(e)
	}
	if want != nil {
		expects = want.ClusterID
	}
	c.index(e, expects)
}

// remind has the recorder told again what it forgot.
func (c *Contacts) remind(e *entry) {
	if e.lost {
		e.again = true
		c.mark(e)
	}
}

func (c *Contacts) mark(e *entry) {
	if !e.dirty {
		e.dirty = true
		c.dirty = append(c.dirty, e)
	}
}

// flush tells the recorder what it is to know.
func (c *Contacts) flush(ctx context.Context) error {
	for len(c.dirty) > 0 {
		e := c.dirty[0]
		switch {
		case e.want != nil && (e.again || e.want != e.told):
			if err := c.cfg.Recorder.See(ctx, *e.want); err != nil {
				return err
			}
		case e.want == nil && e.told != nil:
			if err := c.cfg.Recorder.Unsee(ctx, e.key, e.why); err != nil {
				return err
			}
		}
		e.told, e.lost, e.again, e.dirty = e.want, false, false, false
		c.dirty = c.dirty[1:]
	}
	c.dirty = nil
	return nil
}

// index keeps Contacts.byID.
func (c *Contacts) index(e *entry, about peer.ClusterID) {
	if e.about == about {
		return
	}
	if all := c.byID[e.about]; len(all) > 1 {
		delete(all, e)
	} else {
		delete(c.byID, e.about)
	}
	if e.about = about; about == "" {
		return
	}
	if c.byID[about] == nil {
		c.byID[about] = make(map[*entry]struct{})
	}
	c.byID[about][e] = struct{}{}
}

// compareKeys orders leads for people.
func compareKeys(a, b peer.Key) int {
	return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Link, b.Link),
		cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Instance, b.Instance))
}
