package endpoint

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
)

func TestPlacesComeFirst(t *testing.T) {
	b, us, ca := newBox(t, idA), newBox(t, idB), newAuthority(t)
	ca.name(t, b)
	named, plain := servePeer(t, b, "127.0.0.1:0", echo), servePeer(t, b, "127.0.0.1:0", echo)
	url := fmt.Sprintf("https://localhost:%d", named.addr.Port())
	elsewhere := fmt.Sprintf("https://localhost:%d", plain.addr.Port())
	dead := Place{URL: "https://gone.example:1", Addrs: addrs(deadPort(t))}
	known := func(places []Place, addrs ...netip.AddrPort) Target {
		return Target{ID: idA, Fingerprint: b.key.Fingerprint(), Places: places, Addrs: addrs, Hosts: []string{"localhost"}}
	}
	for name, test := range map[string]struct {
		target    Target
		url, host string
		at        netip.AddrPort
	}{
		"looked up, before an address":    {known([]Place{{URL: url}}, plain.addr), url, "localhost", named.addr},
		"a slash more":                    {known([]Place{{URL: url + "/"}}, plain.addr), url, "localhost", named.addr},
		"known addresses, called by name": {known([]Place{{URL: url, Addrs: addrs(named.addr)}}, plain.addr), url, "localhost", named.addr},
		"only by its name's addresses":    {known([]Place{{URL: "https://localhost:1", Addrs: addrs(named.addr)}}), "https://localhost:1", "localhost", named.addr},
		"two places":                      {known([]Place{{URL: elsewhere}, {URL: url}}), elsewhere, "localhost", plain.addr},
		"a dead one":                      {known([]Place{dead, {URL: url}}, plain.addr), url, "localhost", named.addr},
		"all dead, then an address":       {known([]Place{dead, {URL: "https://127.0.0.1:1"}}, plain.addr), "https://" + plain.addr.String(), "", plain.addr},
		"one that is no URL":              {known([]Place{{URL: "http://x"}, {URL: "https://x:0", Addrs: addrs(named.addr)}}, plain.addr), "https://" + plain.addr.String(), "", plain.addr},
		"nobody known":                    {Target{Places: []Place{{URL: url, Addrs: addrs(named.addr)}}, Hosts: []string{"localhost"}}, url, "localhost", named.addr},
	} {
		c := NewClient(ClientConfig{Issuer: us.issuer, Roots: ca.roots(), Keep: 1})
		if got := mustIdentify(t, c, test.target); got.URL != test.url || got.Addr != test.at || got.Shown.Name != test.host || got.Fingerprint != b.key.Fingerprint() {
			t.Errorf("%s: %+v", name, got)
		}
		if test.target.ID != "" {
			if got := mustExchange(t, c, test.target, Request{Method: "GET", Path: "/"}).Result; got.URL != test.url || got.Addr != test.at {
				t.Errorf("%s: exchanged with %+v", name, got)
			}
		}
		c.Close()
	}

	c := NewClient(ClientConfig{Issuer: us.issuer, Roots: ca.roots()})
	var e *Error
	if _, err := c.Identify(t.Context(), known([]Place{dead, {URL: "no URL"}})); !errors.As(err, &e) || e.Reason != ReasonUnreachable || len(e.Others) != 1 {
		t.Errorf("%v", err)
	}
}

func TestKeptConnectionToAPlace(t *testing.T) {
	b := newBox(t, idA)
	s := b.serve(t, "127.0.0.1:0", nil)
	other := at(b.serve(t, "127.0.0.1:0", nil), "127.0.0.1")
	url := fmt.Sprintf("https://localhost:%d", at(s, "127.0.0.1").Port())
	for name, place := range map[string]Place{
		"looked up": {URL: url}, "with addresses": {URL: url, Addrs: addrs(at(s, "127.0.0.1"))},
	} {
		before := accepted(s)
		c := NewClient(ClientConfig{Keep: 1})
		target := Target{ID: idA, Fingerprint: b.key.Fingerprint(), Places: []Place{place}, Addrs: addrs(other)}
		for range 3 {
			if got := mustIdentify(t, c, target); got.URL != url {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if n := accepted(s) - before; n != 1 {
			t.Errorf("%s: %d connections for 3 checks", name, n)
		}
		// Where it is kept to is not the first choice any more.
		target.Places = nil
		if got := mustIdentify(t, c, target); got.Addr != other {
			t.Errorf("%s: %+v", name, got)
		}
		c.Close()
	}
}
