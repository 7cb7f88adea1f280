package socket

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/agent/control"
)

// Every decision about a search domain reaches the backend in the form of the
// configuration file, with the name of who made it.
func TestDomains(t *testing.T) {
	m := &memory{domains: []control.Domain{{Name: "example.org", Outcome: "Found", Entries: []control.DomainEntry{{Name: "a.example.org"}}}, {Name: "example.com"}}}
	_, c := serve(t, m)
	ctx, self := t.Context(), me(t)
	known, err := c.Domains(ctx)
	if err != nil || len(known) != 2 || known[0].Name != "example.com" || known[1].Entries[0].Name != "a.example.org" {
		t.Errorf("Domains = %+v, %v", known, err)
	}
	for _, tc := range []struct {
		name string
		call func() (control.Domain, error)
		want string
	}{
		{"add", func() (control.Domain, error) { return c.AddDomain(ctx, control.DomainOptions{Name: "Example.NET."}) }, "add example.net autojoin=nil server= 0s 0s " + self},
		{"add all", func() (control.Domain, error) {
			return c.AddDomain(ctx, control.DomainOptions{Name: "example.net", Autojoin: ptr(false), Server: "tls://[2001:db8::53]:853", MinInterval: 5 * time.Second, MaxInterval: time.Hour, By: "forged"})
		}, "add example.net autojoin=false server=tls://[2001:db8::53]:853 5s 1h0m0s " + self},
		{"add short", func() (control.Domain, error) {
			return c.AddDomain(ctx, control.DomainOptions{Name: "example.net", MaxInterval: time.Second})
		},
			"add example.net autojoin=nil server= 0s 1s " + self},
		{"ask", func() (control.Domain, error) { return c.AskDomain(ctx, "EXAMPLE.net") }, "ask example.net"},
	} {
		d, err := tc.call()
		if heard := m.heard(); err != nil || len(heard) != 1 || heard[0] != tc.want {
			t.Errorf("%s: the backend heard %q, %v; want %q", tc.name, heard, err, tc.want)
		}
		if d.Name != "example.net" || d.Entries == nil || d.Ignored == nil || d.Browsed == nil {
			t.Errorf("%s answers %+v", tc.name, d)
		}
	}
	if err := c.RemoveDomain(ctx, "Example.net"); err != nil || !cmp.Equal(m.heard(), []string{"remove example.net " + self}) {
		t.Errorf("RemoveDomain: %v", err)
	}
	for name, err := range map[string]error{"remove": c.RemoveDomain(ctx, "example.net"), "ask": func() error { _, err := c.AskDomain(ctx, "-"); return err }()} {
		var e *control.Error
		if !errors.Is(err, control.ErrNotFound) || !errors.As(err, &e) || e.Try() != "liqo-agent domains list" {
			t.Errorf("%s of none: %v", name, err)
		}
	}
	if heard := m.heard(); len(heard) > 0 {
		t.Errorf("the backend heard %q", heard)
	}
	refused := &control.Error{Kind: control.ErrRefused, Message: "example.com is in the configuration file"}
	m.change(func() { m.fail = refused })
	if _, err := c.AddDomain(ctx, control.DomainOptions{Name: "example.com"}); !errors.Is(err, control.ErrRefused) || err.Error() != refused.Message {
		t.Errorf("what the backend says arrives as %v", err)
	}
}

func TestDomainsAreChecked(t *testing.T) {
	m := &memory{domains: []control.Domain{{Name: "example.com"}}}
	s, _ := serve(t, m)
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/v1/domains/example..com", ``, 400, `search domain: domain = \"example..com\": must be a domain name such as \"example.com\"`},
		{"PUT", "/v1/domains/" + strings.Repeat("x", 64), ``, 400, `must be a domain name`},
		{"PUT", "/v1/domains/%1b%5b2J", ``, 400, `must be a domain name`},
		{"PUT", "/v1/domains/https%3A%2F%2Fexample.com", ``, 400, `must be a domain name`},
		{"PUT", "/v1/domains/example.com", `{"server":"a b"}`, 400, `server = \"a b\": must be empty or a DNS server such as`},
		{"PUT", "/v1/domains/example.com", `{"server":"https://192.0.2.53"}`, 400, `must be empty or a DNS server such as`},
		{"PUT", "/v1/domains/example.com", `{"server":"` + strings.Repeat("x", 300) + `"}`, 400, `must be empty or a DNS server such as`},
		{"PUT", "/v1/domains/example.com", `{"minIntervalSeconds":-5}`, 400, `minIntervalSeconds=-5: want 1 to 86400, or 0 for the default`},
		{"PUT", "/v1/domains/example.com", `{"minIntervalSeconds":86401}`, 400, `min_interval = \"24h0m1s\": must be between 1s and 1d`},
		{"PUT", "/v1/domains/example.com", `{"maxIntervalSeconds":9223372036854775807}`, 400, `want 1 to 86400, or 0 for the default`},
		{"PUT", "/v1/domains/example.com", `{"minIntervalSeconds":60,"maxIntervalSeconds":30}`, 400, `max_interval = \"30s\": must not be shorter than min_interval, which is 1m`},
		{"PUT", "/v1/domains/example.com", `{"domain":"example.net"}`, 400, `the body is about \"example.net\", the path about \"example.com\"`},
		{"PUT", "/v1/domains/example.com", `{"by":"root"}`, 400, `unknown field \"by\"`},
		{"PUT", "/v1/domains/example.com", `{"autojoin":"yes"}`, 400, `the request's body`},
		{"DELETE", "/v1/domains/example.net", ``, 404, `\"example.net\" is not a search domain`},
		{"POST", "/v1/domains/example.net/ask", ``, 404, `is not a search domain`},
		{"PUT", "/v1/domains/Example.com", `{"domain":"example.com","autojoin":null}`, 200, `"domain":"example.com"`},
		{"DELETE", "/v1/domains/example.com.", ``, 200, `{}`},
		{"GET", "/v1/domains", ``, 200, `[]`},
	} {
		m.heard()
		status, body := raw(t, s, tc.method, tc.path, tc.body)
		if status != tc.status || !strings.Contains(body, tc.want) || !json.Valid([]byte(body)) {
			t.Errorf("%s %s %.60s: %d %s, want %d with %s", tc.method, tc.path, tc.body, status, body, tc.status, tc.want)
		}
		if heard := m.heard(); status != 200 && len(heard) > 0 {
			t.Errorf("%s %s %.60s: the backend heard %q", tc.method, tc.path, tc.body, heard)
		}
	}
}
