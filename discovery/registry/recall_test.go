package registry

import (
	"slices"
	"testing"
	"time"

	"liqo.io/agent/peer"
)

const recalledAt = "https://a.example.com:6447"

// recalled is what a domain led to when the last run ended.
func recalled() peer.Sighting {
	return peer.Sighting{Source: peer.WAN, Domain: "example.com", Instance: "a.example.com", URL: recalledAt, ClusterID: "a", ClusterName: "name of a",
		Namespace: "liqo", Fingerprint: keyOf("a"), TTL: time.Hour}
}

// again is a registry that begins where another one ended, which knew cluster a by
// sightings. The cluster answers at its last address.
func again(t *testing.T, joined bool, seen []peer.Sighting, test func(t *testing.T, b *bed)) {
	t.Helper()
	within(t, func(cfg *Config) {
		cfg.Remembered = []peer.Peer{{ID: "a", Name: "name of a", Namespace: "liqo", Fingerprint: keyOf("a"), Phase: peer.PhasePresent, URL: recalledAt}}
		cfg.Seen = map[peer.ClusterID][]peer.Sighting{"a": seen}
		cfg.Joined = func(peer.ClusterID) bool { return joined }
	}, func(t *testing.T, b *bed) {
		b.world.put(recalledAt, boxOf("a"))
		wait(2 * interval)
		b.stands("a", peer.PhasePresent)
		test(t, b)
	})
}

// stands checks where a cluster stands, and by which sources.
func (b *bed) stands(id peer.ClusterID, want peer.Phase, sources ...peer.Source) {
	b.t.Helper()
	p, _ := b.Peer(id)
	if p.Phase != want || !slices.Equal(p.Sources, sources) {
		b.t.Errorf("%s is %s (%s), seen by %v; want %s, %v", id, p.Phase, p.Reason, p.Sources, want, sources)
	}
}

var gone = Absence{Reason: "the search domain example.com was removed", Evidence: Withdrawn}

// What a domain or a person said in an earlier run is taken back in this one, whether it
// was said again or not.
func TestTakenBackAfterARestart(t *testing.T) {
	given := peer.Sighting{Source: peer.Manual, Instance: "cluster/a", URL: recalledAt, ClusterID: "a", Fingerprint: keyOf("a")}
	for _, s := range []peer.Sighting{recalled(), given} {
		t.Run(string(s.Source), func(t *testing.T) {
			again(t, false, []peer.Sighting{s}, func(t *testing.T, b *bed) {
				b.DropCandidate(s.Key(), gone)
				soon()
				b.stands("a", peer.PhaseLost)
				if p, _ := b.Peer("a"); p.Reason != gone.Reason {
					t.Errorf("lost because %s", p.Reason)
				}
			})
		})
	}
	unknown := Candidate{Source: peer.WAN, Domain: "example.com", Instance: "a.example.com", URL: recalledAt}
	for name, c := range map[string]Candidate{"says who it is": Candidate(recalled()), "does not": unknown} {
		t.Run("listed again, and it "+name, func(t *testing.T) {
			again(t, false, []peer.Sighting{recalled()}, func(t *testing.T, b *bed) {
				b.SetCandidate(c)
				soon()
				b.stands("a", peer.PhasePresent, peer.WAN)
				if n := len(b.world.called(recalledAt)); n > 1 || n > 0 && name == "says who it is" {
					t.Errorf("asked %d times", n)
				}
				b.reason(c.Key(), "")
				b.DropCandidate(c.Key(), gone)
				soon()
				b.stands("a", peer.PhaseLost)
			})
		})
	}
}

// One of two lists is not enough.
func TestTakenBackByOneOfTwo(t *testing.T) {
	other := recalled()
	other.Domain = "example.net"
	again(t, false, []peer.Sighting{recalled(), other}, func(t *testing.T, b *bed) {
		b.DropCandidate(recalled().Key(), gone)
		wait(2 * interval)
		b.stands("a", peer.PhasePresent)
		b.DropCandidate(other.Key(), gone)
		soon()
		b.stands("a", peer.PhaseLost)
	})
}

// Another cluster is at the place by now.
func TestAnotherOneAfterARestart(t *testing.T) {
	again(t, false, []peer.Sighting{recalled()}, func(t *testing.T, b *bed) {
		b.world.put(recalledAt, boxOf("b"))
		b.SetCandidate(Candidate{Source: peer.WAN, Domain: "example.com", Instance: "a.example.com", URL: recalledAt})
		wait(2 * interval)
		b.stands("a", peer.PhaseLost)
		b.stands("b", peer.PhasePresent, peer.WAN)
	})
}

// Whoever was announced on a link, too, or is joined, stays as long as its endpoint
// answers.
func TestNotTakenBackAfterARestart(t *testing.T) {
	announced := peer.Sighting{Source: peer.LAN, Link: "eth0", Instance: "a", ClusterID: "a", Fingerprint: keyOf("a")}
	for name, tc := range map[string]struct {
		joined bool
		seen   []peer.Sighting
	}{"announced": {false, []peer.Sighting{announced, recalled()}}, "joined": {true, []peer.Sighting{recalled()}}} {
		t.Run(name, func(t *testing.T) {
			again(t, tc.joined, tc.seen, func(t *testing.T, b *bed) {
				b.DropCandidate(recalled().Key(), gone)
				wait(5 * interval)
				b.stands("a", peer.PhasePresent)
				b.world.put(recalledAt)
				wait(5 * interval)
				b.stands("a", peer.PhaseLost)
			})
		})
	}
}
