package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/peer"
)

func TestResolve(t *testing.T) {
	peers := []Peer{
		{ID: "aaaa-1", Name: "barn", Verified: true},
		{ID: "aaaa-2", Name: "barn"},
		{ID: "abcd-3", Name: "silo", Alias: "abcd-9", Verified: true},
		{ID: "abcd-9", Name: "shed", Verified: true},
		{ID: "bbbb-1", Name: "twin", Verified: true},
		{ID: "bbbb-2", Name: "twin", Verified: true},
	}
	for _, tc := range []struct {
		ref, id string
		kind    error
	}{
		{"aaaa-2", "aaaa-2", nil},
		{"barn", "aaaa-1", nil},   // an impostor's name does not get in the way
		{"abcd-9", "abcd-9", nil}, // a full ID beats an alias
		{"silo", "abcd-3", nil},
		{"abcd-3", "abcd-3", nil},
		{"bbbb", "", ErrAmbiguous},
		{"twin", "", ErrAmbiguous},
		{"nobody", "", ErrNotFound},
		{"", "", ErrInvalid},
	} {
		p, err := Resolve(peers, tc.ref)
		if p.ID != tc.id || !errors.Is(err, tc.kind) {
			t.Errorf("Resolve(%q) = %q, %v; want %q, %v", tc.ref, p.ID, err, tc.id, tc.kind)
		}
	}
	many := make([]Peer, 100)
	for i := range many {
		many[i] = Peer{ID: fmt.Sprintf("c%03d", i), Name: "same"}
	}
	if _, err := Resolve(many, "same"); !strings.HasSuffix(err.Error(), "same (c007), and 92 more") {
		t.Errorf("error = %v", err)
	}
}

func TestNewPeer(t *testing.T) {
	fp := peer.FingerprintOf([]byte("key"))
	at := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	full := NewPeer(peer.Peer{
		ID: "id", Name: "barn", Namespace: "liqo", Alias: "b", Fingerprint: fp, Phase: peer.PhasePresent, Source: peer.LAN,
		Sources: []peer.Source{peer.LAN, peer.WAN}, Domains: []string{"example.com"}, URL: "https://192.0.2.7:6447", Version: "1", Links: []string{"eth0"}, Addrs: []netip.AddrPort{netip.MustParseAddrPort("[fe80::1%eth0]:6447")},
		TTL: 120 * time.Second, Failures: 1, Conflict: &peer.Conflict{Fingerprint: fp, Addr: "192.0.2.9:6447", Since: at}, FirstSeen: at, LastSeen: at,
	})
	empty := NewPeer(peer.Peer{ID: "id", Phase: peer.PhaseUnverified})
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	for _, p := range []Peer{full, empty} {
		if err := enc.Encode(p); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"id":"id","name":"barn","alias":"b","phase":"Present","reason":"","source":"LAN","sources":["LAN","WAN"],"domains":["example.com"],"url":"https://192.0.2.7:6447","addresses":["[fe80::1%eth0]:6447"],"links":["eth0"],"fingerprint":"` + fp.String() + `","namespace":"liqo","version":"1","ttlSeconds":120,"failures":1,"verified":true,"remembered":false,"foreignCluster":"","conflict":{"fingerprint":"` + fp.String() + `","address":"192.0.2.9:6447","since":"2026-11-21T08:00:00Z"},"firstSeen":"2026-11-21T08:00:00Z","lastSeen":"2026-11-21T08:00:00Z","code":"","trust":{"mode":"Unknown","method":"","by":"","detail":"","fingerprint":""},"role":"Unknown","outgoing":{"wanted":false,"joined":false,"ending":false,"reason":"","message":"","steps":[]},"incoming":{"wanted":false,"joined":false,"ending":false,"reason":"","message":"","steps":[]},"preferences":{"autoConnect":"undecided","autoAccept":"undecided","blocked":false,"note":"","url":""},"sharing":{}}
{"id":"id","name":"","alias":"","phase":"Unverified","reason":"","source":"","sources":[],"domains":[],"url":"","addresses":[],"links":[],"fingerprint":"","namespace":"","version":"","ttlSeconds":0,"failures":0,"verified":false,"remembered":false,"foreignCluster":"","code":"","trust":{"mode":"Unknown","method":"","by":"","detail":"","fingerprint":""},"role":"Unknown","outgoing":{"wanted":false,"joined":false,"ending":false,"reason":"","message":"","steps":[]},"incoming":{"wanted":false,"joined":false,"ending":false,"reason":"","message":"","steps":[]},"preferences":{"autoConnect":"undecided","autoAccept":"undecided","blocked":false,"note":"","url":""},"sharing":{}}
`
	if diff := cmp.Diff(want, buf.String()); diff != "" {
		t.Error(diff)
	}
}

func TestCheckURL(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "https://barn.example": "https://barn.example", "https://barn.example:6447/": "https://barn.example:6447",
		"https://[2001:db8::1]:6447": "https://[2001:db8::1]:6447", "https://[fe80::1%25eth0]:6447": "https://[fe80::1%25eth0]:6447",
	} {
		got, err := CheckURL(in)
		if err != nil || got != want {
			t.Errorf("CheckURL(%q) = %q, %v; want %q", in, got, err, want)
		}
		if again, err := CheckURL(got); err != nil || again != got {
			t.Errorf("CheckURL(%q) = %q, %v: not the same a second time", got, again, err)
		}
	}
	for _, in := range []string{"barn", "barn:6447", "http://barn", "https://", "https://:6447", "https://barn:", "https://barn:0", "https://barn:65536", "https://barn:x",
		"https://barn/path", "https://barn?x=1", "https://barn?", "https://barn#x", "https://barn#", "https://user@barn", "https://ba rn", "https://\x1b", " https://barn",
		"https://" + strings.Repeat("x", peer.MaxURLLength)} {
		if got, err := CheckURL(in); !errors.Is(err, ErrInvalid) {
			t.Errorf("CheckURL(%q) = %q, %v", in, got, err)
		}
	}
}

func TestDirectionOver(t *testing.T) {
	for _, tc := range []struct {
		d    Direction
		want bool
	}{
		{Direction{}, true},
		{Direction{Reason: "Disconnected"}, true},
		{Direction{Wanted: true}, false},
		{Direction{Joined: true}, false},
		{Direction{Ending: true, Reason: ReasonDraining}, false},
	} {
		if got := tc.d.Over(); got != tc.want {
			t.Errorf("%+v: over %t", tc.d, got)
		}
	}
}

// The JSON of what is shared is a contract.
func TestSharingJSON(t *testing.T) {
	at := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	one := map[string]string{"cpu": "1"}
	provider, consumer := Provider{ID: "id", Name: "barn", Node: "id", Ready: true, Reason: "r", Message: "m", Offered: one, Pods: 2},
		Consumer{ID: "id", Name: "barn", Promised: one, Used: one, Pods: 2, Namespaces: 1, Ending: true}
	const providerJSON = `{"id":"id","name":"barn","node":"id","ready":true,"reason":"r","message":"m","offered":{"cpu":"1"},"pods":2}`
	const consumerJSON = `{"id":"id","name":"barn","promised":{"cpu":"1"},"used":{"cpu":"1"},"pods":2,"namespaces":1,"ending":true}`
	for want, value := range map[string]any{
		`{"id":"id","name":"barn","status":"Accepted","reason":"r","message":"m","decidedBy":"kubectl","expired":true,"resources":{"cpu":"1"},"labels":{"cpu":"1"},"arch":"arm64",` +
			`"os":"linux","images":["a"],"offeredAt":"2026-11-21T08:00:00Z","expiresAt":"2026-11-21T08:00:00Z","createdAt":"2026-11-21T08:00:00Z","node":"n","nodeReady":true,` +
			`"nodeReason":"r","nodeMessage":"m","pods":2}`: Advert{ID: "id", Name: "barn", Status: AdvertAccepted, Reason: "r", Message: "m", DecidedBy: "kubectl", Expired: true, Resources: one,
			Labels: one, Arch: "arm64", OS: "linux", Images: []string{"a"}, OfferedAt: at, ExpiresAt: at, CreatedAt: at, Node: "n", NodeReady: true, NodeReason: "r", NodeMessage: "m", Pods: 2},
		`{"id":"x","name":"","status":"Pending","reason":"","message":"","decidedBy":"","expired":false,"resources":{},"labels":{},"arch":"","os":"","images":[],"node":"",` +
			`"nodeReady":false,"nodeReason":"","nodeMessage":"","pods":0}`: Filled(Advert{ID: "x", Status: AdvertPending}),
		`{"offering":{"enabled":true,"percentage":50,"overcommit":100,"source":"s","pool":{"cpu":"1"},"message":"m","consumers":[` + consumerJSON + `]},` +
			`"using":{"enabled":true,"policy":"auto","maxAccepted":128,"source":"s","accepted":1,"pending":2,"refused":3,"providers":[` + providerJSON + `]}}`: Sharing{
			Offering: Offering{Enabled: true, Percentage: 50, Overcommit: 100, Source: "s", Pool: one, Message: "m", Consumers: []Consumer{consumer}},
			Using:    Using{Enabled: true, Policy: "auto", MaxAccepted: 128, Source: "s", Accepted: 1, Pending: 2, Refused: 3, Providers: []Provider{provider}}},
		`{"offering":{"enabled":false,"percentage":0,"overcommit":0,"source":"","pool":{},"message":"","consumers":[{"id":"","name":"","promised":{},"used":{},"pods":0,"namespaces":0,"ending":false}]},` +
			`"using":{"enabled":false,"policy":"","maxAccepted":0,"source":"","accepted":0,"pending":0,"refused":0,"providers":[]}}`: Filled(Sharing{Offering: Offering{Consumers: make([]Consumer, 1)}}),
		`{"provider":` + providerJSON + `,"consumer":` + consumerJSON + `}`: Filled(PeerSharing{Provider: &provider, Consumer: &consumer}),
		`{}`: PeerSharing{},
	} {
		got, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// The JSON of a domain is a contract.
func TestDomainJSON(t *testing.T) {
	at := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	full := Domain{Name: "example.com", Autojoin: new(false), Server: "192.0.2.53", MinIntervalSeconds: 30, MaxIntervalSeconds: 3600, Source: "file x",
		Ignored: []string{"command line"}, LastQuery: at, NextQuery: at.Add(time.Minute), Outcome: "Found", Message: "m", AnsweredBy: "192.0.2.53:53", Authenticated: true,
		Browsed: []string{"b.example.com"}, Entries: []DomainEntry{{Name: "n", URL: "https://n:1", ClusterID: "id", Cluster: "barn", Reason: "NoSRV", Message: "no SRV"}}}
	for want, d := range map[string]Domain{
		`{"domain":"example.com","autojoin":false,"server":"192.0.2.53","minIntervalSeconds":30,"maxIntervalSeconds":3600,"source":"file x","ignored":["command line"],` +
			`"lastQuery":"2026-11-21T08:00:00Z","nextQuery":"2026-11-21T08:01:00Z","outcome":"Found","message":"m","answeredBy":"192.0.2.53:53","authenticated":true,` +
			`"browsed":["b.example.com"],"entries":[{"name":"n","url":"https://n:1","clusterId":"id","cluster":"barn","reason":"NoSRV","message":"no SRV"}]}`: full,
		`{"domain":"x","server":"","minIntervalSeconds":0,"maxIntervalSeconds":0,"source":"","ignored":[],"outcome":"","message":"","answeredBy":"","authenticated":false,` +
			`"browsed":[],"entries":[]}`: Filled(Domain{Name: "x"}),
	} {
		got, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Error(diff)
		}
	}
}
