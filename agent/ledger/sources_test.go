package ledger

import (
	"strings"
	"testing"

	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
)

// A peer is joined by itself as soon as one source that sees it says so.
func TestAutojoinBySource(t *testing.T) {
	lan := func(links ...string) peer.Peer {
		return peer.Peer{Source: peer.LAN, Sources: []peer.Source{peer.LAN}, Links: links}
	}
	wan := func(domains ...string) peer.Peer {
		return peer.Peer{Source: peer.WAN, Sources: []peer.Source{peer.WAN}, Domains: domains}
	}
	by := func(source peer.Source) peer.Peer { return peer.Peer{Source: source, Sources: []peer.Source{source}} }
	both := wan("no.example")
	both.Source, both.Sources, both.Links = peer.LAN, []peer.Source{peer.LAN, peer.WAN}, []string{"eth0"}
	abroad := both
	abroad.Links = []string{"wlan0"}
	unseen := func(source peer.Source) peer.Peer { return peer.Peer{Source: source} }
	for _, tc := range []struct {
		name    string
		seen    peer.Peer
		on, off string // why it is joined with the general setting on, and off; "" if it is not
	}{
		{"never seen", peer.Peer{}, "discovery.autojoin is on", ""},
		{"LAN", lan("eth0"), "discovery.autojoin is on", ""},
		{"LAN elsewhere", lan("wlan0"), "", ""},
		{"LAN at home and elsewhere", lan("wlan0", "eth0"), "discovery.autojoin is on", ""},
		{"domain that says yes", wan("yes.example"), "yes.example", "yes.example"},
		{"domain that says no", wan("no.example"), "", ""},
		{"domain without a word", wan("plain.example"), "discovery.autojoin is on", ""},
		{"one of two domains says yes", wan("no.example", "yes.example"), "yes.example", "yes.example"},
		{"manual", by(peer.Manual), "discovery.autojoin is on", ""},
		{"it called", by(peer.IncomingPeering), "discovery.autojoin is on", ""},
		{"LAN, and a domain that says no", both, "discovery.autojoin is on", ""},
		{"LAN elsewhere, and a domain that says no", abroad, "", ""},
		{"gone from the LAN", unseen(peer.LAN), "", ""},
		{"gone from a domain", unseen(peer.WAN), "", ""},
	} {
		for _, general := range []bool{true, false} {
			for _, method := range []peer.TrustMethod{peer.TrustFleet, peer.TrustOpen, peer.TrustPerson} {
				p, err := compile(Policy{Autojoin: general, Domains: map[string]bool{"yes.example": true, "no.example": false}, Strange: map[string]bool{"wlan0": true}})
				must(t, err)
				r := record{}
				r.Pin.Pin = peer.Pin{ID: barn, Fingerprint: peer.Fingerprint{1}, Method: method}
				want := tc.off
				if general {
					want = tc.on
				}
				if method == peer.TrustPerson {
					want = ""
				}
				wish, why := connectOf(barn, r, p, tc.seen)
				if (wish == peering.WishYes) != (want != "") || !strings.Contains(why, want) {
					t.Errorf("%s, autojoin %v, trusted by %s: %v (%q), want %q", tc.name, general, method, wish, why, want)
				}
			}
		}
	}
}

// A domain's word holds for those whom the configuration trusts without a reason,
// too.
func TestAutojoinUntrustedBySource(t *testing.T) {
	p, err := compile(Policy{AutojoinUntrusted: true, Domains: map[string]bool{"no.example": false}})
	must(t, err)
	r := record{}
	r.Pin.Pin = peer.Pin{ID: barn, Fingerprint: peer.Fingerprint{1}, Method: peer.TrustOpen}
	for domain, want := range map[string]peering.Wish{"no.example": peering.WishNone, "plain.example": peering.WishYes} {
		seen := peer.Peer{Source: peer.WAN, Sources: []peer.Source{peer.WAN}, Domains: []string{domain}}
		if wish, why := connectOf(barn, r, p, seen); wish != want {
			t.Errorf("%s: %v (%s)", domain, wish, why)
		}
	}
}
