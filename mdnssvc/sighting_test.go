package mdnssvc

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/mdnssvc/browser"
	"liqo.io/agent/mdnssvc/wire"
	"liqo.io/agent/peer"
)

const testID = "0558de48-097b-4b7d-ba04-6bd2a0f9d24f"

func sighted(t testing.TB, pairs [][2]string) Event {
	t.Helper()
	txt, err := wire.EncodeTXT(pairs)
	if err != nil {
		t.Fatal(err)
	}
	return Event{
		Kind: browser.Found, Link: "eth0",
		Instance: browser.Instance{
			Name: testID, Port: 6447, TXT: txt, TTL: 2 * time.Minute,
			Addrs: []netip.Addr{netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("fe80::2%eth0")},
		},
	}
}

func TestSightingOfOurOwnTXT(t *testing.T) {
	id := peer.Identity{ClusterID: testID, ClusterName: "Halle 3 / Süd", GuestNamespace: "liqo-guests"}
	s, err := Sighting(sighted(t, TXT(id, fingerprint)))
	if err != nil {
		t.Fatal(err)
	}
	want := peer.Sighting{
		Source: peer.LAN, Link: "eth0", Instance: testID, ClusterID: testID, ClusterName: "Halle 3 / Süd",
		Namespace: "liqo-guests", Fingerprint: fingerprint, Version: "1", TTL: 2 * time.Minute,
		Addrs: []netip.AddrPort{netip.MustParseAddrPort("10.77.0.2:6447"), netip.MustParseAddrPort("[fe80::2%eth0]:6447")},
	}
	if !s.Equal(want) {
		t.Errorf("Sighting = %+v, want %+v", s, want)
	}
}

func TestSightingChecksEveryKey(t *testing.T) {
	good := map[string]string{"txtvers": "1", "id": testID, "name": "barn", "ns": "liqo", "fp": fingerprint.String(), "v": "1"}
	for _, tc := range []struct {
		name, key, value string // value "-": the key is left out
		err              string // "" = accepted
		check            func(peer.Sighting) bool
	}{
		{"all good", "id", testID, "", nil},
		{"no record version", "txtvers", "-", "", nil},
		{"newer record version", "txtvers", "2", `"txtvers"`, nil},
		{"empty record version", "txtvers", "", `"txtvers"`, nil},
		{"no ID", "id", "-", `"id"`, nil},
		{"empty ID", "id", "", `"id"`, nil},
		{"ID that is no label", "id", "../../etc", `"id"`, nil},
		{"no fingerprint", "fp", "-", `"fp"`, nil},
		{"short fingerprint", "fp", "abcd", `"fp"`, nil},
		{"zero fingerprint", "fp", strings.Repeat("0", 64), `"fp"`, nil},
		{"no name", "name", "-", "", func(s peer.Sighting) bool { return s.ClusterName == testID[:8] }},
		{"empty name", "name", "", `"name"`, nil},
		{"terminal escape", "name", "\x1b[2J", `"name"`, nil},
		{"no namespace", "ns", "-", "", func(s peer.Sighting) bool { return s.Namespace == "liqo" }},
		{"bad namespace", "ns", "Kube System", `"ns"`, nil},
		{"no protocol version", "v", "-", "", func(s peer.Sighting) bool { return s.Version == "1" }},
		{"newer protocol version", "v", "2.1-rc", "", func(s peer.Sighting) bool { return s.Version == "2.1-rc" }},
		{"bad protocol version", "v", "1\n2", `"v"`, nil},
		{"long protocol version", "v", strings.Repeat("1", 17), `"v"`, nil},
		{"unknown key", "colour", "green", "", nil},
		{"keys in capitals", "ID", testID, "", nil},
	} {
		var pairs [][2]string
		for key, value := range good {
			if !strings.EqualFold(key, tc.key) {
				pairs = append(pairs, [2]string{key, value})
			}
		}
		if tc.value != "-" {
			pairs = append(pairs, [2]string{tc.key, tc.value})
		}
		s, err := Sighting(sighted(t, pairs))
		switch {
		case tc.err == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
			t.Errorf("%s: error %v does not name %s", tc.name, err, tc.err)
		case tc.check != nil && !tc.check(s):
			t.Errorf("%s: %+v", tc.name, s)
		}
	}
	e := sighted(t, TXT(peer.Identity{ClusterID: testID, ClusterName: "barn", GuestNamespace: "liqo"}, fingerprint))
	e.Instance.Port = 0
	if _, err := Sighting(e); err == nil || !strings.Contains(err.Error(), "port 0") {
		t.Errorf("port 0: %v", err)
	}
	e.Instance.Port, e.Instance.Addrs = 1, nil
	if _, err := Sighting(e); err == nil || !strings.Contains(err.Error(), "address") {
		t.Errorf("no address: %v", err)
	}
}

// FuzzSighting feeds TXT records byte for byte as they come from the network.
func FuzzSighting(f *testing.F) {
	id := peer.Identity{ClusterID: testID, ClusterName: "barn", GuestNamespace: "liqo"}
	join := func(pairs [][2]string) string {
		var list []string
		for _, p := range pairs {
			list = append(list, p[0]+"="+p[1])
		}
		return strings.Join(list, "\x00")
	}
	good := TXT(id, fingerprint)
	f.Add(join(good))
	f.Add(join(good[:3]))
	f.Add("txtvers=2\x00" + join(good[1:]))
	f.Add("ID=" + testID + "\x00id=other\x00fp=" + fingerprint.String())
	f.Add("id\x00=\x00fp=\x00name=\xff\xfe")
	f.Add("")
	f.Fuzz(func(t *testing.T, raw string) {
		var txt []string
		for s := range strings.SplitSeq(raw, "\x00") {
			var b strings.Builder
			for i := range len(s) {
				// The escaped form of any byte at all.
				b.WriteString(`\` + string([]byte{'0' + s[i]/100, '0' + s[i]/10%10, '0' + s[i]%10}))
			}
			txt = append(txt, b.String())
		}
		e := Event{Link: "eth0", Instance: browser.Instance{Name: "x", Port: 1, TXT: txt, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}}
		s, err := Sighting(e)
		if err != nil {
			if !s.Equal(peer.Sighting{}) {
				t.Errorf("an error came with a sighting: %+v", s)
			}
			return
		}
		// What was accepted survives being announced again.
		again, err := wire.EncodeTXT(append(TXT(peer.Identity{ClusterID: s.ClusterID, ClusterName: s.ClusterName, GuestNamespace: s.Namespace}, s.Fingerprint)[:5],
			[2]string{peer.TXTProtocolKey, s.Version}))
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		e.Instance.TXT = again
		if s2, err := Sighting(e); err != nil || !s2.Equal(s) {
			t.Errorf("%+v became %+v, %v", s, s2, err)
		}
	})
}
