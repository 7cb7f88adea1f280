package client

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
)

func TestPlacesComeFirst(t *testing.T) {
	b, us, ca := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), newAuthority(t)
	ca.name(t, b)
	named, plain := servePeer(t, b, "127.0.0.1:0", echo), servePeer(t, b, "127.0.0.1:0", echo)
	url := fmt.Sprintf("https://localhost:%d", named.addr.Port())
	elsewhere := fmt.Sprintf("https://localhost:%d", plain.addr.Port())
	dead := peer.Place{URL: "https://gone.example:1", Addrs: endpointtest.Addrs(endpointtest.DeadPort(t))}
	known := func(places []peer.Place, Addrs ...netip.AddrPort) peer.Target {
		return peer.Target{ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), Places: places, Addrs: Addrs, Hosts: []string{"localhost"}}
	}
	for name, test := range map[string]struct {
		target    peer.Target
		url, host string
		at        netip.AddrPort
	}{
		"looked up, before an address":    {known([]peer.Place{{URL: url}}, plain.addr), url, "localhost", named.addr},
		"a slash more":                    {known([]peer.Place{{URL: url + "/"}}, plain.addr), url, "localhost", named.addr},
		"known addresses, called by name": {known([]peer.Place{{URL: url, Addrs: endpointtest.Addrs(named.addr)}}, plain.addr), url, "localhost", named.addr},
		"only by its name's addresses":    {known([]peer.Place{{URL: "https://localhost:1", Addrs: endpointtest.Addrs(named.addr)}}), "https://localhost:1", "localhost", named.addr},
		"two places":                      {known([]peer.Place{{URL: elsewhere}, {URL: url}}), elsewhere, "localhost", plain.addr},
		"a dead one":                      {known([]peer.Place{dead, {URL: url}}, plain.addr), url, "localhost", named.addr},
		"all dead, then an address":       {known([]peer.Place{dead, {URL: "https://127.0.0.1:1"}}, plain.addr), "https://" + plain.addr.String(), "", plain.addr},
		"one that is no URL":              {known([]peer.Place{{URL: "http://x"}, {URL: "https://x:0", Addrs: endpointtest.Addrs(named.addr)}}, plain.addr), "https://" + plain.addr.String(), "", plain.addr},
		"nobody known":                    {peer.Target{Places: []peer.Place{{URL: url, Addrs: endpointtest.Addrs(named.addr)}}, Hosts: []string{"localhost"}}, url, "localhost", named.addr},
	} {
		c := patient(Config{Issuer: us.Issuer, Roots: ca.roots(), Keep: 1})
		if got := mustIdentify(t, c, test.target); got.URL != test.url || got.Addr != test.at || got.Shown.Name != test.host || got.Fingerprint != b.Key.Fingerprint() {
			t.Errorf("%s: %+v", name, got)
		}
		if test.target.ID != "" {
			if got := mustExchange(t, c, test.target, Request{Method: "GET", Path: "/"}).Result; got.URL != test.url || got.Addr != test.at {
				t.Errorf("%s: exchanged with %+v", name, got)
			}
		}
		c.Close()
	}

	c := patient(Config{Issuer: us.Issuer, Roots: ca.roots()})
	var e *Error
	if _, err := c.Identify(t.Context(), known([]peer.Place{dead, {URL: "no URL"}})); !errors.As(err, &e) || e.Reason != ReasonUnreachable || len(e.Others) != 1 {
		t.Errorf("%v", err)
	}
}

func TestKeptConnectionToAPlace(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	s := serve(t, b, "127.0.0.1:0")
	other := at(serve(t, b, "127.0.0.1:0"), "127.0.0.1")
	url := fmt.Sprintf("https://localhost:%d", at(s, "127.0.0.1").Port())
	for name, place := range map[string]peer.Place{
		"looked up": {URL: url}, "with addresses": {URL: url, Addrs: endpointtest.Addrs(at(s, "127.0.0.1"))},
	} {
		before := accepted(s)
		c := patient(Config{Keep: 1})
		target := peer.Target{ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), Places: []peer.Place{place}, Addrs: endpointtest.Addrs(other)}
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
