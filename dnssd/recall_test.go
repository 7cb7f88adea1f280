package dnssd

import (
	"fmt"
	"net/netip"
	"testing"

	"liqo.io/agent/dnssd/resolver"
	"liqo.io/agent/internal/bubble"
)

// What was listed before the Poller began is listed until every list was answered.
func TestRecalled(t *testing.T) {
	const one, old = "box.example.com", "old.example.com"
	for _, tc := range []struct {
		name, zone, fail string
		outcome          resolver.Outcome
		want             string // instances
	}{
		{"everything is answered", "", "", resolver.Found, one},
		{"nobody is listed any more", "example.com. A 10.0.0.1\n", "", resolver.NoData, ""},
		{"nothing is answered", "", "", resolver.Timeout, one + "? " + old + "?"},
		{"one list fails, the other finds", "", "_liqo._tcp.example.com", resolver.ServerFailure, one + " " + old + "?"},
		{"what would lead further fails", "", "b._dns-sd._udp.example.com", resolver.Refused, one + " " + old + "?"},
		{"its records fail", "", one + " SRV", resolver.Timeout, one + "?"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				z := boxIn(t, "example.com")
				if tc.zone != "" {
					z.set(t, tc.zone)
				}
				if !tc.outcome.Conclusive() {
					z.failing(tc.fail, tc.outcome)
				}
				asked := 0
				p := poll(t, map[string]*zone{"": z}, func(c *Config) {
					c.Recall = func(domain string) []Instance {
						asked++
						if domain != "example.com" {
							t.Errorf("asked for %s", domain)
						}
						addrs := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:1")}
						return []Instance{{Name: old, URL: "https://old.example.com:1", Addrs: addrs}, {Name: one, URL: "https://host.example.com:1", Addrs: addrs}}
					}
				})
				p.SetDomains([]Domain{{Name: "example.com"}})
				for _, r := range p.drain() {
					if got := names(r); got != tc.want {
						t.Errorf("lists %q, want %q", got, tc.want)
					}
				}
				// They are gone once all is answered.
				z.failing(tc.fail, "")
				p.Ask("example.com")
				reports := p.drain()
				if want := map[bool]string{true: one}[tc.outcome != resolver.NoData]; len(reports) != 1 || names(reports[0]) != want {
					t.Errorf("in the end it lists %v, want %q", reports, want)
				}
				if asked != 1 {
					t.Error(fmt.Sprint("recalled ", asked, " times"))
				}
			})
		})
	}
}
