package peer

import "testing"

func TestVouchable(t *testing.T) {
	wan := func(domain string) Key { return Key{Source: WAN, Domain: domain} }
	for _, test := range []struct {
		key  Key
		url  string
		want string
	}{
		{Key{Source: Manual}, "https://Edge.Example.com.:6447", "edge.example.com"},
		{Key{Source: Manual}, "https://192.0.2.1:6447", ""},
		{Key{Source: Manual}, "https://[fe80::1%25eth0]:6447", ""},
		{Key{Source: Manual}, "https://%zz", ""},
		{Key{Source: Manual}, "", ""},
		{wan("example.com"), "https://example.com:6447", "example.com"},
		{wan("example.com"), "https://box.farm.example.com:6447", "box.farm.example.com"},
		{wan("Example.com."), "https://BOX.example.com.:6447", "box.example.com"},
		{wan("example.com"), "https://evilexample.com:6447", ""},
		{wan("example.com"), "https://example.com.evil.net:6447", ""},
		{wan("example.com"), "https://com:6447", ""},
		{wan("farm.example.com"), "https://example.com:6447", ""},
		{wan("example.com"), "https://192.0.2.1:6447", ""},
		{wan(""), "https://evil.net:6447", ""},
		{wan("."), "https://evil.net:6447", ""},
		{Key{Source: LAN, Domain: "example.com"}, "https://box.example.com:6447", ""},
		{Key{Source: IncomingPeering, Domain: "example.com"}, "https://box.example.com:6447", ""},
	} {
		if got := test.key.Vouchable(test.url); got != test.want {
			t.Errorf("%s in %q, %s: %q, want %q", test.key.Source, test.key.Domain, test.url, got, test.want)
		}
	}
}
