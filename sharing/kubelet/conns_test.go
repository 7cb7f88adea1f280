package kubelet

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"os"
	"testing"
	"time"

	"liqo.io/agent/internal/attack"
)

// TestConnections goes through what conns counts, without a network.
func TestConnections(t *testing.T) {
	a := newConns(nil)
	from := func(source string) (c, out *conn) {
		c = &conn{TCPConn: &net.TCPConn{}, all: a, source: netip.MustParseAddr(source)}
		return c, a.admit(c)
	}
	check := func(what string, strangers, proven int) {
		t.Helper()
		sum, callers := 0, 0
		for _, n := range a.sources {
			sum += n
		}
		for _, n := range a.callers {
			callers += n
		}
		if a.strangers.Len() != strangers || sum != strangers || a.proven != proven || callers != proven {
			t.Errorf("%s: %d strangers (%d by source), %d of callers (%d by caller); want %d and %d", what, a.strangers.Len(), sum, a.proven, callers, strangers, proven)
		}
	}
	var greedy, modest []*conn
	for i := range maxStrangers {
		if i%8 == 0 {
			c, _ := from("192.0.2.1")
			modest = append(modest, c)
			continue
		}
		c, _ := from("192.0.2.2")
		greedy = append(greedy, c)
	}
	check("as many as may be", maxStrangers, 0)
	if _, out := from("192.0.2.3"); out != greedy[0] {
		t.Error("somebody else than the first of those who have most made room")
	}
	check("one more", maxStrangers, 0)
	_ = greedy[0].Close()
	check("closed after it made room", maxStrangers, 0)
	greedy[0].belongs("somebody")
	check("proven after it made room", maxStrangers, 0)
	_ = greedy[1].Close()
	_ = greedy[1].Close()
	check("closed twice", maxStrangers-1, 0)

	modest[0].belongs("a")
	modest[0].belongs("a")
	modest[1].belongs("b")
	check("two of callers", maxStrangers-3, 2)
	modest[0].belongs("")
	check("one may do nothing after all", maxStrangers-2, 1)
	(*conn)(nil).belongs("a")

	// However many connections a caller has, others can come and prove who they are.
	for _, name := range []string{"greedy", "greedier"} {
		for range maxConns {
			c, _ := from("192.0.2.9")
			c.belongs(name)
		}
	}
	if a.callers["greedy"] != connsPerCaller || a.proven != maxConns-spareConns || a.strangers.Len() > maxStrangers {
		t.Errorf("%v, %d strangers", a.callers, a.strangers.Len())
	}
	var safe *conn
	for range 3 * maxConns {
		c, out := from("192.0.2.10")
		if out == nil && a.strangers.Len()+a.proven > maxConns {
			t.Fatal("too many connections")
		}
		if out != nil && out.caller != "" {
			t.Fatal("the connection of a caller made room")
		}
		safe = c
	}
	_ = modest[1].Close()
	safe.belongs("c")
	if a.callers["c"] != 1 {
		t.Error("there is no place for another caller")
	}
}

// TestAttackIdleConnections: however many connections strangers hold, whoever can
// prove who it is gets in, and keeps the connections that it has.
func TestAttackIdleConnections(t *testing.T) {
	ca := newAuthority(t)
	h := newHandler(t, t.Context(), provider{})
	server := httptest.NewUnstartedServer(h)
	h.gate.pool.Store(ca.pool())
	server.Listener = newConns(server.Listener)
	server.Config.ConnContext = withConn
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that were closed
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)

	cert, key := issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "admin"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca.cert, ca.key)
	client := server.Client()
	transport := client.Transport.(*http.Transport)
	transport.TLSClientConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}
	ask := func() string {
		reused := false
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }})
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/metrics/resource", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		_, _ = io.Copy(io.Discard, answer.Body)
		if reused {
			return answer.Status + " on the same connection"
		}
		return answer.Status
	}
	var held []net.Conn
	hold := func(from string) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		for range 2 * maxConns {
			c, err := dialer.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			held = append(held, c)
		}
	}
	hold("127.0.0.1")
	attack.Attempt{What: "keep the API server out of the kubelet API by 256 connections that say nothing", As: "stranger on the LAN",
		Want: "200 OK"}.Saw(t, ask())
	hold("127.0.0.1")
	hold("127.0.0.2")
	attack.Attempt{What: "push out the API server's connection by 512 more, from two addresses", As: "stranger on the LAN",
		Want: "200 OK on the same connection"}.Saw(t, ask())
	got := ""
	for deadline := time.Now().Add(2 * time.Minute); got != "half of the places" && time.Now().Before(deadline); {
		open := 0
		for _, c := range held {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				open++
			}
		}
		if got = fmt.Sprintf("%d places", open); open <= maxStrangers {
			got = "half of the places"
		}
	}
	attack.Attempt{What: "hold all places of the kubelet API", As: "stranger on the LAN", Want: "half of the places"}.Saw(t, got)
}
