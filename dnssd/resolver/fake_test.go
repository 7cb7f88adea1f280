package resolver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver/wire"
	"liqo.io/agent/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// short is the timeout of tests in which a server is silent, and long that of those where none is. Where others must answer in
// a short time, see untilQuick.
const (
	short = time.Second
	long  = 20 * time.Second
)

// handler answers a question, asked over "udp", "tcp" or "tls", with any number of messages.
type handler func(q *dns.Msg, over string) [][]byte

// server is a name server on loopback that does what its handler says.
type server struct {
	t    *testing.T
	addr netip.AddrPort
	// raw, if set, gets the TCP connections instead of the handler.
	raw     func(net.Conn)
	handle  handler
	asked   atomic.Int64 // questions
	tcp     atomic.Int64 // TCP and TLS connections
	tls     *tls.Config
	mu      sync.Mutex
	seen    []*dns.Msg
	closing chan struct{}
	running sync.WaitGroup
}

// serve starts a server on an address with the port of another server, 0 for any.
func serve(t *testing.T, ip string, port uint16, handle handler, options ...func(*server)) *server {
	t.Helper()
	s := &server{t: t, handle: handle, closing: make(chan struct{})}
	for _, o := range options {
		o(s)
	}
	var udp net.PacketConn
	var tcp net.Listener
	for range 50 {
		var err error
		if udp, err = net.ListenPacket("udp", net.JoinHostPort(ip, fmt.Sprint(port))); err != nil {
			t.Fatal(err)
		}
		s.addr = udp.LocalAddr().(*net.UDPAddr).AddrPort()
		if tcp, err = net.Listen("tcp", s.addr.String()); err == nil {
			break
		}
		udp.Close()
		if port != 0 {
			t.Fatal(err)
		}
	}
	if tcp == nil {
		t.Fatal("no port is free for both UDP and TCP")
	}
	s.running.Add(2)
	go s.serveUDP(udp)
	go s.serveTCP(tcp)
	t.Cleanup(func() {
		close(s.closing)
		udp.Close()
		tcp.Close()
		s.running.Wait()
	})
	return s
}

func (s *server) serveUDP(udp net.PacketConn) {
	defer s.running.Done()
	b := make([]byte, 4096)
	for {
		n, from, err := udp.ReadFrom(b)
		if err != nil {
			return
		}
		for _, answer := range s.answer(b[:n], "udp") {
			// The asker may be gone.
			_, _ = udp.WriteTo(answer, from)
		}
	}
}

func (s *server) serveTCP(l net.Listener) {
	defer s.running.Done()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		s.tcp.Add(1)
		s.running.Add(1)
		go func() {
			defer s.running.Done()
			defer conn.Close()
			ended := make(chan struct{})
			defer close(ended)
			go func() {
				select {
				case <-s.closing:
					conn.Close()
				case <-ended:
				}
			}()
			over := "tcp"
			if s.tls != nil {
				over, conn = "tls", tls.Server(conn, s.tls)
			}
			if s.raw != nil {
				s.raw(conn)
				return
			}
			for {
				b, err := readFramed(conn)
				if err != nil {
					return
				}
				for _, answer := range s.answer(b, over) {
					if answer == nil {
						return // hang up
					}
					if _, err := conn.Write(framed(answer)); err != nil {
						return
					}
				}
			}
		}()
	}
}

func (s *server) answer(b []byte, over string) [][]byte {
	q := new(dns.Msg)
	if err := q.Unpack(b); err != nil {
		s.t.Errorf("the server got something that is no DNS message: %v", err)
		return nil
	}
	s.asked.Add(1)
	s.mu.Lock()
	s.seen = append(s.seen, q)
	s.mu.Unlock()
	return s.handle(q, over)
}

func (s *server) questions() []*dns.Msg {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*dns.Msg(nil), s.seen...)
}

func readFramed(conn net.Conn) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(conn, b)
	return b, err
}

func framed(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
}

func rr(t testing.TB, text string) dns.RR {
	t.Helper()
	r, err := dns.NewRR(text)
	if err != nil || r == nil {
		t.Fatalf("%q: %v", text, err)
	}
	return r
}

func rrs(t testing.TB, texts ...string) []dns.RR {
	t.Helper()
	var out []dns.RR
	for _, text := range texts {
		out = append(out, rr(t, text))
	}
	return out
}

// reply is an answer of a recursive server with the records, those of type SOA and NS in its authority section.
func reply(t testing.TB, q *dns.Msg, rcode int, records ...string) *dns.Msg {
	m := new(dns.Msg)
	m.SetRcode(q, rcode)
	m.Question = q.Question
	m.RecursionAvailable = true
	for _, r := range rrs(t, records...) {
		switch r.Header().Rrtype {
		case dns.TypeSOA, dns.TypeNS:
			m.Ns = append(m.Ns, r)
		default:
			m.Answer = append(m.Answer, r)
		}
	}
	return m
}

func pack(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	m.Compress = true
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// says answers everything with the same records.
func says(t testing.TB, rcode int, records ...string) handler {
	return func(q *dns.Msg, _ string) [][]byte { return [][]byte{pack(t, reply(t, q, rcode, records...))} }
}

// zone answers with the records of the name that is asked for, NXDOMAIN without.
func zone(t testing.TB, records ...string) handler {
	return func(q *dns.Msg, _ string) [][]byte {
		m := reply(t, q, dns.RcodeNameError)
		for _, r := range rrs(t, records...) {
			if !strings.EqualFold(r.Header().Name, q.Question[0].Name) {
				continue
			}
			m.Rcode = dns.RcodeSuccess
			if typ := r.Header().Rrtype; typ == q.Question[0].Qtype || typ == dns.TypeCNAME {
				m.Answer = append(m.Answer, r)
			}
		}
		return [][]byte{pack(t, m)}
	}
}

func silent(*dns.Msg, string) [][]byte { return nil }

// asking returns a resolver for one server.
func asking(t *testing.T, s *server, change ...func(*Config)) *Resolver {
	t.Helper()
	cfg := Config{Server: s.addr.String(), Timeout: long, Attempts: 1, ResolvConf: filepath.Join(t.TempDir(), "none")}
	for _, c := range change {
		c(&cfg)
	}
	return open(t, cfg)
}

func open(t *testing.T, cfg Config) *Resolver {
	t.Helper()
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func timeout(d time.Duration) func(*Config) { return func(c *Config) { c.Timeout = d } }

// system returns a resolver that finds the servers in a resolv.conf. All have the port of the first.
func system(t *testing.T, options string, servers []*server, change ...func(*Config)) *Resolver {
	t.Helper()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	text := "search example.org\noptions " + options + "\n"
	for _, s := range servers {
		text += "nameserver " + s.addr.Addr().String() + "\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := Config{ResolvConf: file, Timeout: long}
	for _, c := range change {
		c(&cfg)
	}
	r := open(t, cfg)
	r.port = servers[0].addr.Port()
	return r
}

// several starts servers at 127.0.0.2, 127.0.0.3 and so on, with one port.
func several(t *testing.T, handlers ...handler) []*server {
	t.Helper()
	var all []*server
	var port uint16
	for i, h := range handlers {
		s := serve(t, fmt.Sprintf("127.0.0.%d", 2+i), port, h)
		all, port = append(all, s), s.addr.Port()
	}
	return all
}

// untilQuick tries something with the timeout short, and anew with longer ones while it returns false because
// this machine was not quick enough for what had to come in time.
func untilQuick(t *testing.T, try func(d time.Duration) bool) {
	t.Helper()
	for d := short; !try(d); d *= 4 {
		if d > long/4 {
			t.Fatalf("not even within %v", d)
		}
	}
}

// look looks a name up and fails if the outcome is another one, or the answer contradicts itself.
func look(t *testing.T, r *Resolver, name string, qtype uint16, want Outcome) Answer {
	t.Helper()
	a, quick := lookQuickly(t, r, name, qtype, want)
	if !quick {
		t.Fatalf("%s %s: %s (%v), want %s", name, wire.TypeName(qtype), a.Outcome, a.Err, want)
	}
	return a
}

// lookQuickly is look, but returns false if the outcome is another one and not all servers answered in time.
func lookQuickly(t *testing.T, r *Resolver, name string, qtype uint16, want Outcome) (Answer, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	a := r.Lookup(ctx, name, qtype)
	if a.Outcome != want && errors.Is(a.Err, context.DeadlineExceeded) {
		t.Logf("%s %s: %s (%v), want %s", name, wire.TypeName(qtype), a.Outcome, a.Err, want)
		return a, false
	}
	if a.Outcome != want {
		t.Fatalf("%s %s: %s (%v), want %s", name, wire.TypeName(qtype), a.Outcome, a.Err, want)
	}
	if a.Outcome.Conclusive() != (a.Err == nil) || (a.Outcome == Found) != (len(a.Records) > 0) {
		t.Fatalf("%s %s: contradicts itself: %+v", name, wire.TypeName(qtype), a)
	}
	return a, true
}

func texts(records []dns.RR) []string {
	var out []string
	for _, r := range records {
		out = append(out, strings.Join(strings.Fields(r.String()), " "))
	}
	return out
}

// authority is a certificate authority with a certificate for some names.
func authority(t *testing.T, names ...string) (*x509.CertPool, *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(long)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatal(errors.New("never: " + what))
		}
		time.Sleep(time.Millisecond)
	}
}
