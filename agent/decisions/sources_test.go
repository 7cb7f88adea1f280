package decisions

import (
	"strings"
	"testing"

	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/state"
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
				if (wish == plan.Yes) != (want != "") || !strings.Contains(why, want) {
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
	for domain, want := range map[string]plan.Tristate{"no.example": plan.Unset, "plain.example": plan.Yes} {
		seen := peer.Peer{Source: peer.WAN, Sources: []peer.Source{peer.WAN}, Domains: []string{domain}}
		if wish, why := connectOf(barn, r, p, seen); wish != want {
			t.Errorf("%s: %v (%s)", domain, wish, why)
		}
	}
}

// TestUnjoined: who is not joined although somebody said that those like it are has a
// reason, and nobody else has: that the default is on says nothing.
func TestUnjoined(t *testing.T) {
	wan := peer.Peer{Name: "barn", Source: peer.WAN, Sources: []peer.Source{peer.WAN}, Domains: []string{"yes.example"}}
	lan := peer.Peer{Name: "barn", Source: peer.LAN, Sources: []peer.Source{peer.LAN}, Links: []string{"eth0"}}
	silent := peer.Peer{Source: peer.WAN, Sources: []peer.Source{peer.WAN}, Domains: []string{"no.example"}}
	domains := map[string]bool{"yes.example": true, "no.example": false}
	set, usual := Policy{Autojoin: true, AutojoinSet: true, Domains: domains}, Policy{Autojoin: true, Domains: domains}
	pinned := func(m peer.TrustMethod) record {
		r := record{}
		r.Pin.Pin = peer.Pin{ID: barn, Fingerprint: peer.Fingerprint{1}, Method: m}
		return r
	}
	with := func(r record, edit func(*record)) record { edit(&r); return r }
	for _, tc := range []struct {
		name   string
		seen   peer.Peer
		policy Policy
		r      record
		reason string
		says   string
	}{
		{"the domain says yes, the key is not trusted", wan, usual, record{}, ReasonNobodyVouches, "autojoin is on for the search domain yes.example, but nobody vouches for its key"},
		{"the domain says yes, a person trusts it", wan, usual, pinned(peer.TrustPerson), ReasonOnlyPeople, "liqo-agent peers connect barn"},
		{"the domain says yes, an invite trusts it", wan, usual, pinned(peer.TrustInvite), ReasonOnlyPeople, "a person's word"},
		{"the domain says yes, it was disconnected", wan, usual, with(pinned(peer.TrustFleet), func(r *record) { r.Preferences.AutoConnect = state.No }),
			ReasonDecidedOtherwise, "that it was disconnected is remembered."},
		{"the domain says yes, it is blocked", wan, usual, with(record{}, func(r *record) { r.Preferences.Blocked = state.Yes }), ReasonDecidedOtherwise, "it is blocked"},
		{"the domain says yes, it is distrusted", wan, usual, with(record{}, func(r *record) { r.Distrust.By = "alice" }), ReasonDecidedOtherwise, "as not trusted"},
		{"the domain says yes, the fleet vouches", wan, usual, pinned(peer.TrustFleet), "", ""},
		{"the domain says yes, somebody connected", wan, usual, with(pinned(peer.TrustPerson), func(r *record) { r.Preferences.AutoConnect = state.Yes }), "", ""},
		{"the file says yes", lan, set, record{}, ReasonNobodyVouches, "discovery.autojoin is on"},
		{"nobody said anything", lan, usual, record{}, "", ""},
		{"the domain says no", silent, set, record{}, "", ""},
		{"it was never seen", peer.Peer{}, set, record{}, "", ""},
	} {
		p, err := compile(tc.policy)
		must(t, err)
		got := unjoined(barn, tc.r, p, tc.seen)
		if got.Reason != tc.reason || !strings.Contains(got.Message, tc.says) || (got.Message == "") != (tc.reason == "") {
			t.Errorf("%s: %+v, want %s", tc.name, got, tc.reason)
		}
	}
}
