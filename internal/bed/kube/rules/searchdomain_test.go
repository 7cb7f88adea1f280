package rules

import (
	"strings"
	"testing"
)

// TestSearchDomains: a domain or server that nobody can ask is refused when it is
// written, with what to write instead.
func TestSearchDomains(t *testing.T) {
	r := serve(t, "searchdomains.discovery.liqo.io")
	const (
		domain = "spec.domain: domain must be the name of a DNS domain, such as example.com"
		scheme = "spec.server: server may begin with tls://, for DNS over TLS, and with no other scheme"
		server = "spec.server: server must be a host name or an IP address, with or without a port"
		port   = "spec.server: server must have a port between 1 and 65535"
	)
	long := strings.Repeat(strings.Repeat("x", 63)+".", 3) + strings.Repeat("x", 61)
	for _, tc := range []struct {
		spec string
		say  []string
	}{
		{`{"domain":"example.com","autojoin":true}`, nil},
		{`{"domain":"Example.COM."}`, nil},
		{`{"domain":"local"}`, nil},
		{`{"domain":"_sites.my-farm.example"}`, nil},
		{`{"domain":"` + long + `"}`, nil},
		{`{}`, []string{"spec.domain: Required value"}},
		{`null`, []string{"spec: Required value"}},
		{`{"domain":""}`, []string{domain}},
		{`{"domain":"x` + long + `"}`, []string{"spec.domain: may not be more than 253"}},
		{`{"domain":"exam ple.com"}`, []string{domain}},
		{`{"domain":"example..com"}`, []string{domain}},
		{`{"domain":".example.com"}`, []string{domain}},
		{`{"domain":"-example.com"}`, []string{domain}},
		{`{"domain":"example.com/x"}`, []string{domain}},
		{`{"domain":"https://example.com"}`, []string{domain}},
		{`{"domain":"` + strings.Repeat("x", 64) + `.com"}`, []string{domain}},
		{`{"domain":"grün.example"}`, []string{domain}},
		{`{"domain":"a","autojoin":"yes"}`, []string{"spec.autojoin: must be of type boolean"}},

		{`{"domain":"a","server":""}`, nil},
		{`{"domain":"a","server":"192.0.2.53"}`, nil},
		{`{"domain":"a","server":"192.0.2.53:5353"}`, nil},
		{`{"domain":"a","server":"ns.example.com"}`, nil},
		{`{"domain":"a","server":"ns.example.com:53"}`, nil},
		{`{"domain":"a","server":"2001:db8::53"}`, nil},
		{`{"domain":"a","server":"::1"}`, nil},
		{`{"domain":"a","server":"fe80::1%eth0"}`, nil},
		{`{"domain":"a","server":"[2001:db8::53]:53"}`, nil},
		{`{"domain":"a","server":"[fe80::1%eth0]:65535"}`, nil},
		{`{"domain":"a","server":"::ffff:192.0.2.53"}`, nil},
		{`{"domain":"a","server":"tls://dns.example.com"}`, nil},
		{`{"domain":"a","server":"tls://192.0.2.53:853"}`, nil},
		{`{"domain":"a","server":"tls://[2001:db8::53]:853"}`, nil},
		{`{"domain":"a","server":"https://dns.example.com"}`, []string{scheme}},
		{`{"domain":"a","server":"udp://192.0.2.53:53"}`, []string{scheme}},
		{`{"domain":"a","server":"https://dns.example.com/dns-query"}`, []string{scheme, server}},
		{`{"domain":"a","server":"192.0.2.53/24"}`, []string{server}},
		{`{"domain":"a","server":"192.0.2.53 192.0.2.54"}`, []string{server}},
		{`{"domain":"a","server":"192.0.2.53,192.0.2.54"}`, []string{server}},
		{`{"domain":"a","server":"ns:dns"}`, []string{server}},
		{`{"domain":"a","server":"-ns"}`, []string{server}},
		{`{"domain":"a","server":":53"}`, []string{server}},
		{`{"domain":"a","server":"[ns]:53"}`, []string{server}},
		{`{"domain":"a","server":"[2001:db8::53"}`, []string{server}},
		{`{"domain":"a","server":"tls://"}`, []string{server}},
		{`{"domain":"a","server":"ns:0"}`, []string{port}},
		{`{"domain":"a","server":"ns:65536"}`, []string{port}},
		{`{"domain":"a","server":"ns:"}`, []string{port}},
		{`{"domain":"a","server":"tls://[2001:db8::53]:99999999999999999999"}`, []string{port}},
		{`{"domain":"a","server":"` + strings.Repeat("n", 271) + `"}`, []string{"spec.server: may not be more than 270"}},

		{`{"domain":"a","minIntervalSeconds":1,"maxIntervalSeconds":86400}`, nil},
		{`{"domain":"a","minIntervalSeconds":60,"maxIntervalSeconds":60}`, nil},
		{`{"domain":"a","minIntervalSeconds":0}`, []string{"spec.minIntervalSeconds: should be greater than or equal to 1"}},
		{`{"domain":"a","minIntervalSeconds":86401}`, []string{"spec.minIntervalSeconds: should be less than or equal to 86400"}},
		{`{"domain":"a","maxIntervalSeconds":0}`, []string{"spec.maxIntervalSeconds: should be greater than or equal to 1"}},
		{`{"domain":"a","maxIntervalSeconds":86401}`, []string{"spec.maxIntervalSeconds: should be less than or equal to 86400"}},
		{`{"domain":"a","minIntervalSeconds":1.5}`, []string{"spec.minIntervalSeconds: must be of type int64", "<nil>: must be of type integer with format int64 in spec.minIntervalSeconds"}},
		{`{"domain":"a","minIntervalSeconds":60,"maxIntervalSeconds":30}`, []string{"spec: minIntervalSeconds must not be greater than maxIntervalSeconds"}},
	} {
		_, err := r.create(t, "a", `"spec":`+tc.spec)
		check(t, tc.spec, err, tc.say...)
	}
}
