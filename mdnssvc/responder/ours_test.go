package responder

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// What was ours counts as ours for as long as our own packets may come late, and not for ever: an address that we gave up
// may be another host's by then, and that host may have our name.
func Test9_WhatWasOursMayBeAnothers(t *testing.T) {
	const said = host + " 120 IN A 192.168.1.10"
	b := established(t, 1)
	b.links(oneLink(netip.MustParsePrefix("192.168.1.11/24"))...)
	b.run(pastOurs - time.Second)
	b.receive(otherAddr, answers(t, said))
	if len(b.conflicts) != 0 {
		t.Errorf("conflicts %q with what we said a moment ago", b.conflicts)
	}
	b.run(time.Minute)
	b.receive(otherAddr, answers(t, said))
	if !slices.Equal(b.conflicts, []string{host}) || b.r.Established() {
		t.Errorf("conflicts %q, established %v", b.conflicts, b.r.Established())
	}
}
