package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"

	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
)

// BenchmarkExchange is one call of a peer: on an idle connection, on a new one with
// a resumed session, and with a full handshake in which both sides show
// certificates. The figures are those of both ends together.
func BenchmarkExchange(b *testing.B) {
	them, us := endpointtest.New(b, endpointtest.IDA), endpointtest.New(b, endpointtest.IDB)
	p := servePeer(b, them, "127.0.0.1:0", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 600)) })
	target := targetOf(them, p.addr)
	for name, keep := range map[string]int{"kept": 1, "resumed": 0, "full": 0} {
		b.Run(name, func(b *testing.B) {
			c := New(Config{Issuer: us.Issuer, Keep: keep})
			defer c.Close()
			body := make([]byte, 200)
			before := endpointtest.OwnCPU(b)
			b.ReportAllocs()
			for b.Loop() {
				if name == "full" {
					c.Forget(target.Fingerprint)
				}
				if _, err := c.Exchange(context.Background(), target, Request{Method: "POST", Path: wire.PathState, Body: body}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((endpointtest.OwnCPU(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
			e, ok := c.sessions.byKey[target.Fingerprint]
			if !ok {
				b.Fatal("no session is remembered")
			}
			b.ReportMetric(float64(e.Value.(*cachedSession).size()), "B/session")
		})
	}
}

// BenchmarkMemory is what a Client remembers of one peer.
func BenchmarkMemory(b *testing.B) {
	cluster := endpointtest.New(b, endpointtest.IDA)
	s := serve(b, cluster, "127.0.0.1:0")
	c := New(Config{})
	if _, err := c.Identify(context.Background(), peer.Target{Addrs: endpointtest.Addrs(at(s, "127.0.0.1"))}); err != nil {
		b.Fatal(err)
	}
	const n = 5000
	m := newSessionCache(n)
	before := endpointtest.InUse()
	for i := range n {
		// The ticket must be another one for each peer, hence the decoding.
		session, ok := c.sessions.get(cluster.Key.Fingerprint(), 0)
		if !ok {
			b.Fatal("no session")
		}
		ticket, state, err := session.state.ResumptionState()
		if err != nil {
			b.Fatal(err)
		}
		session.state, err = tls.NewResumptionState(bytes.Clone(ticket), state)
		if err != nil {
			b.Fatal(err)
		}
		fp := peer.Fingerprint{byte(i), byte(i >> 8), 1}
		m.put(fp, session)
	}
	held := endpointtest.InUse() - before
	for b.Loop() { // memory is measured, not time
	}
	b.ReportMetric(float64(held)/n, "B/peer")
	runtime.KeepAlive(m)
}

// BenchmarkNetHTTP compares requests that are written by hand with a connection of
// net/http: a check on an idle connection, one on a new connection, and what an idle
// connection pins at both ends together. doc.go says what follows from that.
func BenchmarkNetHTTP(b *testing.B) {
	box := endpointtest.New(b, endpointtest.IDA)
	p := servePeer(b, box, "127.0.0.1:0", echo)
	c := New(Config{})
	dial := func() (*Conn, error) {
		k, failure := c.open(context.Background(), dialRequest{target: targetOf(box, p.addr)}, candidate{addr: p.addr})
		if failure != nil {
			return nil, failure
		}
		return k, nil
	}
	t := &http.Transport{DisableCompression: true, MaxResponseHeaderBytes: maxResponse, DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
		k, err := dial()
		if err != nil {
			return nil, err
		}
		return k.tls, nil
	}}
	// Each returns what asks on one connection, and ends it.
	for name, open := range map[string]func() (ask func() error, end func(), err error){
		"hand": func() (func() error, func(), error) {
			k, err := dial()
			if err != nil {
				return nil, nil, err
			}
			return func() error {
				_, _, err := requestIdentity(k.tls, "x", true)
				return err
			}, k.Close, nil
		},
		"net-http": func() (func() error, func(), error) {
			conn, err := t.NewClientConn(context.Background(), "https", p.addr.String())
			if err != nil {
				return nil, nil, err
			}
			return func() error {
				r, err := http.NewRequest(http.MethodGet, "https://x"+wire.PathIDs, nil)
				if err != nil {
					return err
				}
				resp, err := conn.RoundTrip(r)
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
				if err != nil {
					return err
				}
				_, err = wire.ParseIdentity(body)
				return err
			}, func() { _ = conn.Close() }, nil
		},
	} {
		must := func(b *testing.B, err error) {
			if err != nil {
				b.Fatal(err)
			}
		}
		b.Run("idle/"+name, func(b *testing.B) {
			ask, end, err := open()
			must(b, err)
			defer end()
			before := endpointtest.OwnCPU(b)
			b.ReportAllocs()
			for b.Loop() {
				must(b, ask())
			}
			b.ReportMetric(float64((endpointtest.OwnCPU(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
		})
		b.Run("new/"+name, func(b *testing.B) {
			before := endpointtest.OwnCPU(b)
			b.ReportAllocs()
			for b.Loop() {
				ask, end, err := open()
				must(b, err)
				must(b, ask())
				end()
			}
			b.ReportMetric(float64((endpointtest.OwnCPU(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
		})
		b.Run("memory/"+name, func(b *testing.B) {
			const conns = 200
			before := endpointtest.InUse()
			for range conns {
				ask, end, err := open()
				must(b, err)
				must(b, ask())
				defer end()
			}
			held := endpointtest.InUse() - before
			for b.Loop() { // memory is measured, not time
			}
			b.ReportMetric(float64(held)/conns, "B/connection")
		})
	}
}
