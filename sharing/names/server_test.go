package names

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/peer"
)

// hang bounds a test that hangs, and measures nothing.
const hang = 2 * time.Minute

const (
	barn = peer.ClusterID("barn")
	mill = peer.ClusterID("mill")
)

var (
	asked   = Addresses[0]
	barnPod = netip.MustParseAddr("10.42.0.9")
	millPod = netip.MustParseAddr("10.42.0.10")
	ownPod  = netip.MustParseAddr("10.42.0.11")
	newPod  = netip.MustParseAddr("10.42.0.12")
	farAway = netip.MustParseAddr("192.0.2.9")
	pods    = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24")}
)

// addAddresses gives this machine addresses.
func addAddresses(t *testing.T, link string, prefixes ...string) {
	t.Helper()
	l, err := netlink.LinkByName(link)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range prefixes {
		a, err := netlink.ParseAddr(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.AddrAdd(l, a); err != nil && !errors.Is(err, unix.EEXIST) {
			t.Fatal(err)
		}
	}
	if err := netlink.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
}

// service is a Server on this machine, which has the addresses of all who ask.
type service struct {
	*Server
	t *testing.T

	mu      sync.Mutex
	outside bool
	changes int
}

// patient are timeouts of a Server whose cluster DNS, in this process, may be stalled for as long as the test.
var patient = timeouts{hang, hang, hang}

// usual are those that a Server has.
var usual = New(Config{}).timeouts

func serve(t *testing.T, limits timeouts, servers ...netip.AddrPort) *service {
	t.Helper()
	addAddresses(t, "lo", "127.0.0.1/8", asked.String()+"/32", "10.42.0.9/32", "10.42.0.10/32", "10.42.0.11/32", "10.42.0.12/32", "192.0.2.9/32")
	s := &service{t: t, outside: true}
	log := new(bedtest.Log)
	s.Server = New(Config{
		Namespaces: func(id peer.ClusterID) map[string]string {
			return map[peer.ClusterID]map[string]string{
				barn: {"shop": "liqo-barn-shop", "default": "liqo-barn-default"}, mill: {"shop": "liqo-mill-shop"},
			}[id]
		},
		Outside: func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.outside },
		Changed: func() { s.mu.Lock(); defer s.mu.Unlock(); s.changes++ },
		Logger:  slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	s.timeouts = limits
	s.Set(s.now(servers))
	bedtest.Run(t, log, nil, s.Run)
	return s
}

func (s *service) now(servers []netip.AddrPort) *State {
	return &State{
		Addresses: []netip.Addr{asked}, Pods: pods, Servers: servers, Domain: "cluster.local",
		Guests: map[netip.Addr]Guest{
			barnPod: {Consumer: barn, Domain: "cluster.local"},
			millPod: {Consumer: mill, Domain: "mill.lan", Server: []netip.Addr{netip.MustParseAddr("241.7.4.1"), netip.MustParseAddr("fd07::1")}},
		}, Others: map[netip.Addr]bool{ownPod: true},
	}
}

func (s *service) await() {
	s.t.Helper()
	bedtest.Within(s.t, "guests are answered", func() error {
		if len(s.Serving()) == 0 {
			return fmt.Errorf("they are not: %v", s.Problem())
		}
		return nil
	})
}

// send asks from an address, and returns the answer.
func send(from netip.Addr, network string, q *dns.Msg) (*dns.Msg, error) {
	client := dns.Client{Net: network, UDPSize: dns.MaxMsgSize, Timeout: hang, Dialer: &net.Dialer{Timeout: hang}}
	if network == "udp" {
		client.Dialer.LocalAddr = &net.UDPAddr{IP: from.AsSlice()}
	} else {
		client.Dialer.LocalAddr = &net.TCPAddr{IP: from.AsSlice()}
	}
	got, _, err := client.Exchange(q, netip.AddrPortFrom(asked, Port).String())
	return got, err
}

func ask(t *testing.T, from netip.Addr, network, name string, kind uint16) *dns.Msg {
	t.Helper()
	got, err := send(from, network, query(name, kind))
	if err != nil {
		t.Fatalf("%s asks for %s by %s: %v", from, name, network, err)
	}
	return got
}

// connected starts BIND as the cluster DNS on a host, and returns its address.
func connected(t *testing.T, zones ...bed.Zone) netip.AddrPort {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs to be root in its namespace")
	}
	h := bed.New(t).AddHost("dns", "")
	var namespace *os.File
	if err := h.Do(func() (err error) { namespace, err = os.Open("/proc/thread-self/ns/net"); return err }); err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	link := netlink.NewLinkAttrs()
	link.Name = "dns0"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: link, PeerName: "there", PeerNamespace: netlink.NsFd(int(namespace.Fd()))}); err != nil {
		t.Fatal(err)
	}
	addAddresses(t, "dns0", "10.99.0.1/30")
	if err := h.Do(func() error {
		there, err := netlink.LinkByName("there")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr("10.99.0.2/30")
		return errors.Join(err, netlink.AddrAdd(there, address), netlink.LinkSetUp(there))
	}); err != nil {
		t.Fatal(err)
	}
	h.StartBIND(t.Context(), zones...)
	return netip.MustParseAddrPort("10.99.0.2:53")
}

// TestBehindBIND: guests of two consumers ask a server for names of their clusters, which it
// knows by others.
func TestBehindBIND(t *testing.T) {
	many := new(strings.Builder)
	for i := range 120 {
		fmt.Fprintf(many, "many.liqo-barn-shop.svc A 10.42.1.%d\n", i)
	}
	server := connected(t, bed.Zone{Name: "cluster.local", Text: `
kubernetes.default.svc A 10.43.0.1
secret.default.svc A 10.43.0.66
web.shop.svc A 10.43.0.67
web.liqo-barn-shop.svc A 10.43.0.7
web.liqo-mill-shop.svc A 10.43.0.8
kubernetes.liqo-barn-default.svc A 10.43.0.68
db.liqo-barn-shop.svc A 10.42.0.20
db.liqo-barn-shop.svc A 241.1.0.20
db-0.db.liqo-barn-shop.svc A 10.42.0.20
_sql._tcp.db.liqo-barn-shop.svc SRV 0 50 5432 db-0.db.liqo-barn-shop.svc
ext.liqo-barn-shop.svc CNAME www.example.com.
trap.liqo-barn-shop.svc CNAME secret.default.svc
` + many.String()}, bed.Zone{Name: "example.com", Text: "www A 192.0.2.80\ntrap CNAME secret.default.svc.cluster.local."},
		bed.Zone{Name: "43.10.in-addr.arpa", Text: "7.0 PTR web.liqo-barn-shop.svc.cluster.local.\n66.0 PTR secret.default.svc.cluster.local."})
	s := serve(t, timeouts{hang, hang, usual.unknown}, server)
	s.await()
	for _, tc := range []struct {
		from  netip.Addr
		name  string
		kind  uint16
		rcode int
		want  []string
	}{
		{barnPod, "web.shop.svc.cluster.local.", dns.TypeA, 0, []string{"web.shop.svc.cluster.local. 60 IN A 10.43.0.7"}},
		{barnPod, "wEB.Shop.svc.cluster.local.", dns.TypeA, 0, []string{"wEB.Shop.svc.cluster.local. 60 IN A 10.43.0.7"}},
		{millPod, "web.shop.svc.mill.lan.", dns.TypeA, 0, []string{"web.shop.svc.mill.lan. 60 IN A 10.43.0.8"}},
		{barnPod, "db.shop.svc.cluster.local.", dns.TypeA, 0, []string{"db.shop.svc.cluster.local. 60 IN A 10.42.0.20", "db.shop.svc.cluster.local. 60 IN A 241.1.0.20"}},
		{barnPod, "db-0.db.shop.svc.cluster.local.", dns.TypeA, 0, []string{"db-0.db.shop.svc.cluster.local. 60 IN A 10.42.0.20"}},
		{barnPod, "_sql._tcp.db.shop.svc.cluster.local.", dns.TypeSRV, 0, []string{"_sql._tcp.db.shop.svc.cluster.local. 60 IN SRV 0 50 5432 db-0.db.shop.svc.cluster.local."}},
		{barnPod, "ext.shop.svc.cluster.local.", dns.TypeA, 0, []string{"ext.shop.svc.cluster.local. 60 IN CNAME www.example.com."}},
		{barnPod, "trap.shop.svc.cluster.local.", dns.TypeA, dns.RcodeNameError, nil},
		{barnPod, "web.shop.svc.cluster.local.", dns.TypeMX, 0, nil},
		{barnPod, "none.shop.svc.cluster.local.", dns.TypeA, dns.RcodeNameError, nil},
		{barnPod, "secret.default.svc.cluster.local.", dns.TypeA, dns.RcodeNameError, nil},
		{barnPod, "kubernetes.default.svc.cluster.local.", dns.TypeA, dns.RcodeNameError, nil},
		{millPod, "kubernetes.default.svc.mill.lan.", dns.TypeA, 0, []string{"kubernetes.default.svc.mill.lan. 5 IN A 241.7.4.1"}},
		{millPod, "kubernetes.Default.svc.mill.lan.", dns.TypeAAAA, 0, []string{"kubernetes.Default.svc.mill.lan. 5 IN AAAA fd07::1"}},
		{millPod, "kubernetes.default.svc.", dns.TypeA, 0, []string{"kubernetes.default.svc. 5 IN A 241.7.4.1"}},
		{millPod, "kubernetes.default.svc.mill.lan.", dns.TypeMX, 0, nil},
		{millPod, "kubernetes.default.svc.cluster.local.", dns.TypeA, dns.RcodeNameError, nil},
		{barnPod, "web.liqo-mill-shop.svc.cluster.local.", dns.TypeA, dns.RcodeNameError, nil},
		{millPod, "web.shop.svc.cluster.local.", dns.TypeA, dns.RcodeNameError, nil},
		{millPod, "secret.default.svc.cluster.local.", dns.TypeA, dns.RcodeNameError, nil},
		{millPod, "db.shop.svc.mill.lan.", dns.TypeA, dns.RcodeNameError, nil},
		{millPod, "www.example.com.", dns.TypeA, 0, []string{"www.example.com. 60 IN A 192.0.2.80"}},
		{millPod, "trap.example.com.", dns.TypeA, dns.RcodeNameError, nil},
		{barnPod, "7.0.43.10.in-addr.arpa.", dns.TypePTR, 0, []string{"7.0.43.10.in-addr.arpa. 60 IN PTR web.shop.svc.cluster.local."}},
		{barnPod, "66.0.43.10.in-addr.arpa.", dns.TypePTR, dns.RcodeNameError, nil},
		{millPod, "7.0.43.10.in-addr.arpa.", dns.TypePTR, dns.RcodeNameError, nil},
		{ownPod, "www.example.com.", dns.TypeA, dns.RcodeRefused, nil},
		{farAway, "www.example.com.", dns.TypeA, dns.RcodeRefused, nil},
		{newPod, "www.example.com.", dns.TypeA, dns.RcodeRefused, nil},
	} {
		for _, network := range []string{"udp", "tcp"} {
			got := ask(t, tc.from, network, tc.name, tc.kind)
			said := texts(got.Answer)
			slices.Sort(said)
			if d := cmp.Diff(tc.want, said); d != "" || got.Rcode != tc.rcode {
				t.Errorf("%s asks for %s by %s: %s %s", tc.from, tc.name, network, dns.RcodeToString[got.Rcode], d)
			}
		}
	}

	// By UDP what fits, or nothing, as the server has it, and all of it by TCP.
	plain := ask(t, barnPod, "udp", "many.shop.svc.cluster.local.", dns.TypeA)
	whole := ask(t, barnPod, "tcp", "many.shop.svc.cluster.local.", dns.TypeA)
	q := query("many.shop.svc.cluster.local.", dns.TypeA)
	q.SetEdns0(4096, false)
	more, err := send(barnPod, "udp", q)
	if err != nil {
		t.Fatal(err)
	}
	if !plain.Truncated || !more.Truncated || whole.Truncated || len(whole.Answer) != 120 || more.IsEdns0() == nil || plain.IsEdns0() != nil {
		t.Errorf("%d, %d and %d records", len(plain.Answer), len(more.Answer), len(whole.Answer))
	}

	s.mu.Lock()
	s.outside = false
	s.mu.Unlock()
	if got := ask(t, barnPod, "udp", "www.example.com.", dns.TypeA); got.Rcode != dns.RcodeRefused {
		t.Errorf("a guest that may not ask outside is told %v", got)
	}
	if got := ask(t, barnPod, "udp", "web.shop.svc.cluster.local.", dns.TypeA); len(got.Answer) != 1 {
		t.Errorf("a guest that may not ask outside is told %v", got)
	}

	stats := s.Stats()
	for _, why := range []string{refusedUnknown, refusedForeign, refusedOutside} {
		if stats.Refused[why] == 0 {
			t.Errorf("nothing was refused as %s: %v", why, stats.Refused)
		}
	}
	if stats.Queries == 0 || stats.Rewritten == 0 || stats.Rewritten >= stats.Queries {
		t.Errorf("%+v", stats)
	}

	// Somebody else's DNS, or another domain, is not asked.
	wrong := s.now([]netip.AddrPort{server})
	wrong.Domain = "example.com"
	s.Set(wrong)
	bedtest.Within(t, "the wrong domain is noticed", func() error {
		if err := s.Problem(); err == nil || !strings.Contains(err.Error(), "does not know kubernetes.default.svc.example.com.: NXDOMAIN") {
			return fmt.Errorf("problem %v", err)
		}
		return nil
	})
	if len(s.Serving()) != 0 {
		t.Error("it answers all the same")
	}
	s.Set(new(State))
	bedtest.Within(t, "nothing is to be answered", func() error { return s.Problem() })

	// A query that comes before the agent knows its pod waits.
	s = serve(t, patient, server)
	s.await()
	early := make(chan error, 1)
	before := s.Stats().Queries
	go func() {
		got, err := send(newPod, "udp", query("web.shop.svc.cluster.local.", dns.TypeA))
		if err == nil && len(got.Answer) != 1 {
			err = fmt.Errorf("it is told %v", got)
		}
		early <- err
	}()
	bedtest.Within(t, "the query is there", func() error {
		if s.Stats().Queries == before {
			return errors.New("it is not")
		}
		return nil
	})
	known := s.now([]netip.AddrPort{server})
	known.Guests[newPod] = Guest{Consumer: barn, Domain: "cluster.local"}
	s.Set(known)
	if err := <-early; err != nil {
		t.Error(err)
	}
}

// hostile is a DNS server that answers as a test says.
func hostile(t *testing.T, answer func(network string, q *dns.Msg) []byte) netip.AddrPort {
	t.Helper()
	return answering(t, func(network string, q *dns.Msg) []byte {
		if strings.HasPrefix(q.Question[0].Name, "kubernetes.default.") {
			return packed(new(dns.Msg).SetReply(q))
		}
		return answer(network, q)
	})
}

// answering is a cluster DNS that answers what it is told to.
func answering(t *testing.T, answer func(network string, q *dns.Msg) []byte) netip.AddrPort {
	t.Helper()
	addAddresses(t, "lo", "127.0.0.1/8")
	var packets net.PacketConn
	var streams net.Listener
	bedtest.Within(t, "a port that is free by UDP and TCP", func() (err error) { // a connection of before may still have that by TCP
		if packets, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			return err
		}
		if streams, err = net.Listen("tcp", packets.LocalAddr().String()); err != nil {
			_ = packets.Close()
		}
		return err
	})
	for network, server := range map[string]*dns.Server{"udp": {PacketConn: packets}, "tcp": {Listener: streams}} {
		server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			if raw := answer(network, q); raw != nil {
				_, _ = w.Write(raw)
			}
		})
		begun, ended := make(chan struct{}), make(chan struct{})
		server.NotifyStartedFunc = func() { close(begun) }
		go func() {
			defer close(ended)
			_ = server.ActivateAndServe()
		}()
		<-begun // before that, Shutdown does nothing
		t.Cleanup(func() { _ = server.Shutdown(); <-ended })
	}
	return packets.LocalAddr().(*net.UDPAddr).AddrPort()
}

func packed(m *dns.Msg) []byte {
	raw, err := m.Pack()
	if err != nil {
		return nil
	}
	return raw
}

// TestHostileUpstream: an answer that is none to the question is no answer.
func TestHostileUpstream(t *testing.T) {
	address := func(q *dns.Msg) *dns.Msg {
		m := new(dns.Msg).SetReply(q)
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}, A: net.IPv4(10, 43, 0, 7)}}
		return m
	}
	for name, tc := range map[string]struct {
		answer func(network string, q *dns.Msg) []byte
		rcode  int
	}{
		"an answer": {func(_ string, q *dns.Msg) []byte { return packed(address(q)) }, dns.RcodeSuccess},
		"by TCP only": {func(network string, q *dns.Msg) []byte {
			m := address(q)
			m.Truncated = network == "udp"
			return packed(m)
		}, dns.RcodeSuccess},
		"truncated for ever": {func(_ string, q *dns.Msg) []byte { m := address(q); m.Truncated = true; return packed(m) }, dns.RcodeServerFailure},
		"nothing":            {func(string, *dns.Msg) []byte { return nil }, dns.RcodeServerFailure},
		"no DNS message":     {func(_ string, q *dns.Msg) []byte { return append(packed(q)[:2], 0xff, 0xff, 0, 1, 0, 9) }, dns.RcodeServerFailure},
		"a question":         {func(_ string, q *dns.Msg) []byte { return packed(q) }, dns.RcodeServerFailure},
		"another question": {func(_ string, q *dns.Msg) []byte {
			m := address(q)
			m.Question[0].Name = "secret.default.svc.cluster.local."
			return packed(m)
		}, dns.RcodeServerFailure},
		"no question": {func(_ string, q *dns.Msg) []byte { m := address(q); m.Question = nil; return packed(m) }, dns.RcodeServerFailure},
	} {
		t.Run(name, func(t *testing.T) {
			limits := patient
			if name == "nothing" {
				limits = usual
			}
			s := serve(t, limits, hostile(t, tc.answer))
			s.await()
			if got := ask(t, barnPod, "tcp", "web.shop.svc.cluster.local.", dns.TypeA); got.Rcode != tc.rcode || len(got.Answer) != 1 == (tc.rcode == dns.RcodeSuccess) {
				t.Errorf("%v", got)
			}
		})
	}
	t.Run("the second server", func(t *testing.T) {
		good := hostile(t, func(_ string, q *dns.Msg) []byte { return packed(address(q)) })
		bad := hostile(t, func(_ string, q *dns.Msg) []byte { return packed(q) })
		s := serve(t, patient, bad, good)
		s.await()
		if got := ask(t, barnPod, "tcp", "web.shop.svc.cluster.local.", dns.TypeA); len(got.Answer) != 1 {
			t.Errorf("%v", got)
		}
	})
}

// TestPending: whether guests are answered is not known while the cluster DNS does not answer, or has no address, and is
// once it says that it is not that of this cluster.
func TestPending(t *testing.T) {
	for name, tc := range map[string]struct {
		rcode            int // -1: no answer
		serving, pending bool
	}{
		"silent":      {-1, false, true},
		"starts":      {dns.RcodeServerFailure, false, true},
		"of another":  {dns.RcodeNameError, false, false},
		"of this one": {dns.RcodeSuccess, true, false},
		"refuses us":  {dns.RcodeRefused, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			limits := patient
			if tc.rcode < 0 {
				limits = usual
			}
			s := serve(t, limits, answering(t, func(_ string, q *dns.Msg) []byte {
				if tc.rcode < 0 {
					return nil
				}
				return packed(new(dns.Msg).SetRcode(q, tc.rcode))
			}))
			ctx, cancel := context.WithTimeout(t.Context(), hang)
			defer cancel()
			if err := bed.Poll(ctx, func() error {
				if s.Problem() == nil && len(s.Serving()) == 0 {
					return errors.New("the cluster DNS was not asked")
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if serving := len(s.Serving()) > 0; serving != tc.serving || s.Pending() != tc.pending {
				t.Errorf("serving: %v, pending: %v, %v", serving, s.Pending(), s.Problem())
			}
		})
	}
	s := New(Config{})
	for _, pending := range []bool{true, false} {
		s.Set(&State{Starting: pending})
		if s.Pending() != pending {
			t.Errorf("starting: %v, pending: %v", pending, s.Pending())
		}
	}
}

// TestLargeAnswers: a guest that asks by UDP costs no more than a datagram of the cluster DNS, and few large answers are
// read at a time for one consumer: whoever has a domain can have names in it with answers that take megabytes of memory.
func TestLargeAnswers(t *testing.T) {
	began, goOn := make(chan bool, perConsumer), make(chan bool)
	s := serve(t, patient, hostile(t, func(network string, q *dns.Msg) []byte {
		m := new(dns.Msg).SetReply(q)
		if m.Truncated = network == "udp"; !m.Truncated {
			began <- true
			<-goOn
		}
		return packed(m)
	}))
	s.await()
	for _, name := range []string{"web.shop.svc.cluster.local.", "www.example.com."} {
		if got := ask(t, barnPod, "udp", name, dns.TypeA); !got.Truncated || got.Rcode != dns.RcodeSuccess || len(began) != 0 {
			t.Errorf("%v, and %d questions by TCP", got, len(began))
		}
	}
	answers := make(chan error, connsPerConsumer+1)
	large := func(from netip.Addr) {
		_, err := send(from, "tcp", query("www.example.com.", dns.TypeA))
		answers <- err
	}
	for range connsPerConsumer {
		go large(barnPod)
	}
	for range largePerConsumer {
		<-began
	}
	go large(millPod)
	<-began // another consumer does not wait for it
	if len(began) != 0 {
		t.Errorf("%d more than %d large answers at a time", len(began), largePerConsumer)
	}
	close(goOn)
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

// TestHostileGuest: what is no query gets no answer, or the least one.
func TestHostileGuest(t *testing.T) {
	s := serve(t, patient, hostile(t, func(_ string, q *dns.Msg) []byte { return packed(new(dns.Msg).SetReply(q)) }))
	s.await()
	response := packed(new(dns.Msg).SetReply(query("a.", dns.TypeA)))
	broken := packed(query("web.shop.svc.cluster.local.", dns.TypeA))[:20]
	for name, raw := range map[string][]byte{"empty": {}, "short": {1, 2, 3}, "an answer": response, "long": append(packed(query("a.", dns.TypeA)), make([]byte, maxQuery)...)} {
		if got := s.handle(t.Context(), barnPod, raw, false); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	m := new(dns.Msg)
	if err := m.Unpack(s.handle(t.Context(), barnPod, broken, false)); err != nil || m.Rcode != dns.RcodeFormatError || !m.Response {
		t.Errorf("%v %v", m, err)
	}

	// One that asks without end uses up what is its own.
	taken := 0
	for range 2 * perGuest {
		if release, ok := s.admit(barnPod); ok {
			taken++
			defer release()
		}
	}
	if taken != perGuest {
		t.Errorf("%d queries of a guest at a time", taken)
	}
	if release, ok := s.admit(millPod); !ok {
		t.Error("another guest has to wait for it")
	} else {
		release()
	}
	if s.Stats().Refused[refusedRate] != perGuest {
		t.Errorf("%v", s.Stats().Refused)
	}
	drained := false
	for range 4 * burst {
		release, ok := s.admit(ownPod)
		if !ok {
			drained = true
			break
		}
		release()
	}
	if !drained {
		t.Error("a source may ask as fast as it likes")
	}
	// Nor may all guests of a consumer together.
	many := s.now(nil)
	sources := make([]netip.Addr, 10)
	for i := range sources {
		sources[i] = netip.AddrFrom4([4]byte{10, 42, 1, byte(i)})
		many.Guests[sources[i]] = Guest{Consumer: "crowd", Domain: "cluster.local"}
	}
	s.Set(many)
	drained = false
	for i := range len(sources) * burst {
		release, ok := s.admit(sources[i%len(sources)])
		if !ok {
			drained = true
			break
		}
		release()
	}
	if release, ok := s.admit(millPod); !ok || !drained {
		t.Errorf("all guests of a consumer are limited: %v; those of another are answered: %v", drained, ok)
	} else {
		release()
	}
	var conns []net.Conn
	for range connsPerConsumer + 1 {
		c, err := (&net.Dialer{Timeout: hang, LocalAddr: &net.TCPAddr{IP: millPod.AsSlice()}}).Dial("tcp", netip.AddrPortFrom(asked, Port).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	last := conns[connsPerConsumer]
	if err := last.SetDeadline(time.Now().Add(hang)); err != nil {
		t.Fatal(err)
	}
	if n, err := last.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v: more connections than allowed", n, err)
	}
}

// TestPortTaken: somebody else on the port is an error that says so.
func TestPortTaken(t *testing.T) {
	server := hostile(t, func(string, *dns.Msg) []byte { return nil })
	addAddresses(t, "lo", asked.String()+"/32")
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", Port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := New(Config{Changed: func() {}, Logger: slog.New(slog.DiscardHandler)})
	s.Set(&State{Addresses: []netip.Addr{asked}, Servers: []netip.AddrPort{server}, Domain: "cluster.local"})
	if err := s.Run(t.Context()); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("Run = %v", err)
	}
	if !errors.Is(s.Problem(), unix.EADDRINUSE) || s.Pending() {
		t.Errorf("pending: %v, %v", s.Pending(), s.Problem())
	}
}

// TestDomain: the certificate of an API server says how its cluster is called.
func TestDomain(t *testing.T) {
	addAddresses(t, "lo", "127.0.0.1/8")
	for want, names := range map[string][]string{
		"corp.example":  {"kubernetes", "kubernetes.default.svc", "kubernetes.default.svc.Corp.example"},
		"cluster.local": {"kubernetes", "kubernetes.default.svc", "api.example.com", "kubernetes.default.svc.-no-domain-"},
	} {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		api := httptest.NewUnstartedServer(http.NotFoundHandler())
		api.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
		api.StartTLS()
		defer api.Close()
		got, err := Domain(t.Context(), &rest.Config{Host: api.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
		if got != want || err != nil {
			t.Errorf("%v: %q %v, want %q", names, got, err, want)
		}
		api.Close()
		if got, err := Domain(t.Context(), &rest.Config{Host: api.URL}); err == nil {
			t.Errorf("%q without an API server", got)
		}
	}
}
