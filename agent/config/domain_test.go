package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestWritten: what can be written in several ways is kept in one.
func TestWritten(t *testing.T) {
	l, err := load(t, `
[discovery]
domain = "LAN."
[[search_domain]]
domain = "Clusters.Example.COM."
server = "tls://[2001:db8::53]:853"
min_interval = "1h"
max_interval = "1d"
[[search_domain]]
domain = "_tenant.example.com"
server = "dns.example.com"
[[network]]
name = "home"
subnet = "2001:db8:7::/64"
gateway_mac = "0000.5E00.53Af"
[[network]]
name = "hall"
interface = "wlan*"
gateway_mac = "00-00-5E-00-53-AF"
advertise = false
[[network]]
name = "elsewhere"
advertise = false
discover = false
autojoin = false
`)
	if err != nil {
		t.Fatal(err)
	}
	if l.Config.Discovery.Domain != "lan" || l.Config.Discovery.TTL != 75*time.Minute {
		t.Errorf("domain %q, ttl %s", l.Config.Discovery.Domain, l.Config.Discovery.TTL)
	}
	if diff := cmp.Diff([]SearchDomain{
		{Domain: "clusters.example.com", Autojoin: true, Server: "tls://[2001:db8::53]:853", MinInterval: time.Hour, MaxInterval: day},
		{Domain: "_tenant.example.com", Autojoin: true, Server: "dns.example.com", MinInterval: 30 * time.Second, MaxInterval: time.Hour},
	}, l.Config.SearchDomains); diff != "" {
		t.Errorf("search domains (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Network{
		{Name: "home", Subnet: "2001:db8:7::/64", GatewayMAC: "00:00:5e:00:53:af", Advertise: true, Discover: true, Autojoin: true},
		{Name: "hall", Interface: "wlan*", GatewayMAC: "00:00:5e:00:53:af", Discover: true, Autojoin: true},
		{Name: "elsewhere"},
	}, l.Config.Networks); diff != "" {
		t.Errorf("networks (-want +got):\n%s", diff)
	}
	if got := l.Sources["network[2]"]; !strings.HasSuffix(got, " line 21") {
		t.Errorf("network[2] comes from %q", got)
	}
	if l, err := Load(Options{Path: write(t, ""), Set: []string{"discovery.domain=Other.LAN."}}); err != nil || l.Config.Discovery.Domain != "other.lan" {
		t.Errorf("--set: %v", err)
	}
}

func TestCheckSearchDomain(t *testing.T) {
	for _, tc := range []struct{ in, want SearchDomain }{
		{SearchDomain{Domain: "Example.com."}, SearchDomain{Domain: "example.com", MinInterval: 30 * time.Second, MaxInterval: time.Hour}},
		{SearchDomain{Domain: "a", Autojoin: true, Server: "fe80::1%eth0", MinInterval: 2 * time.Hour}, SearchDomain{Domain: "a", Autojoin: true, Server: "fe80::1%eth0", MinInterval: 2 * time.Hour, MaxInterval: 2 * time.Hour}},
		{SearchDomain{Domain: "a", MaxInterval: 10 * time.Second}, SearchDomain{Domain: "a", MinInterval: 10 * time.Second, MaxInterval: 10 * time.Second}},
		{SearchDomain{Domain: "a", MinInterval: time.Second, MaxInterval: day}, SearchDomain{Domain: "a", MinInterval: time.Second, MaxInterval: day}},
	} {
		got, err := CheckSearchDomain(tc.in)
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%+v: %v (-want +got):\n%s", tc.in, err, diff)
		}
		if again, err := CheckSearchDomain(got); err != nil || again != got {
			t.Errorf("%+v becomes %+v, %v the second time", got, again, err)
		}
	}
	for want, in := range map[string]SearchDomain{
		`domain = "": must be a domain name`:                                                        {},
		`domain = "a..b": must be a domain name`:                                                    {Domain: "a..b"},
		`domain = "\u001B[2J": must be a domain name`:                                               {Domain: "\x1b[2J"},
		`server = "a b": must be empty or a DNS server`:                                             {Domain: "a", Server: "a b"},
		`server = "tls://:853": must be empty or a DNS server`:                                      {Domain: "a", Server: "tls://:853"},
		`min_interval = "-1s": must be between 1s and 1d`:                                           {Domain: "a", MinInterval: -time.Second},
		`max_interval = "-1s": must be between 1s and 1d`:                                           {Domain: "a", MaxInterval: -time.Second},
		`max_interval = "25h": must be between 1s and 1d`:                                           {Domain: "a", MaxInterval: 25 * time.Hour},
		`max_interval = "1s": must not be shorter than min_interval, which is 2s`:                   {Domain: "a", MinInterval: 2 * time.Second, MaxInterval: time.Second},
		`domain = "` + strings.Repeat("x", 96) + `...: must be a domain name such as "example.com"`: {Domain: strings.Repeat("x", 5000)},
	} {
		if got, err := CheckSearchDomain(in); err == nil || !strings.HasPrefix(err.Error(), want) || got != (SearchDomain{}) {
			t.Errorf("%+v becomes %+v, %v; want %s", in, got, err, want)
		}
	}
}

// TestFileAndCheckAgree: what is good in the file is good elsewhere, and the other
// way round.
func TestFileAndCheckAgree(t *testing.T) {
	for _, d := range []SearchDomain{
		{Domain: "Example.com", MinInterval: time.Minute, MaxInterval: time.Minute}, {Domain: "-", MinInterval: time.Minute, MaxInterval: time.Hour},
		{Domain: "x", Server: "tls://192.0.2.53:853", MinInterval: time.Minute, MaxInterval: time.Hour}, {Domain: "x", Server: "udp://192.0.2.53", MinInterval: time.Minute, MaxInterval: time.Hour},
		{Domain: "x", MinInterval: 2 * time.Minute, MaxInterval: time.Minute}, {Domain: "x", MinInterval: time.Millisecond, MaxInterval: time.Minute},
	} {
		var text strings.Builder
		if err := (&Loaded{Config: Config{SearchDomains: []SearchDomain{d}}}).WriteTOML(&text, false); err != nil {
			t.Fatal(err)
		}
		_, part, _ := strings.Cut(text.String(), "\n[[")
		l, fileErr := load(t, "[["+part)
		checked, err := CheckSearchDomain(d)
		if (err == nil) != (fileErr == nil) {
			t.Errorf("%+v: file %v, check %v", d, fileErr, err)
		}
		if err == nil && l.Config.SearchDomains[0] != checked {
			t.Errorf("%+v: file %+v, check %+v", d, l.Config.SearchDomains[0], checked)
		}
	}
}
