//go:build linux

package mdnscheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
)

var group = netip.AddrPortFrom(netip.AddrFrom4([4]byte{224, 0, 0, 251}), 5353)

const (
	flush = 1 << 15 // top bit of a record's class: cache-flush
	qu    = 1 << 15 // top bit of a question's class: unicast response wanted

	// quietTime is how long a responder must have been silent for its rate
	// limit (one multicast of a record a second) to be out of the way.
	quietTime = 1100 * time.Millisecond
	// startTime is how long a responder may take from its start to its second
	// announcement.
	startTime = 12 * time.Second
)

// Subject is a responder to be checked: it announces one instance of Service
// on the lab's LAN.
type Subject struct {
	Name    string
	Service string // such as "_liqo._tcp.local."
	Addr    netip.Addr
	// Quiet is how long it must have been silent before it is asked anything, so that
	// it is past its announcements; 0 means a little longer than a second.
	Quiet time.Duration
	// Start starts it afresh, with an empty memory of earlier conflicts, and
	// returns a function that stops it in its orderly way.
	Start func(ctx context.Context) (stop func() error, err error)
	// AddAddress and DelAddress change the addresses of its link.
	AddAddress, DelAddress func(prefix string)
}

// Lab is where a subject is checked.
type Lab struct {
	subject Subject
	host    *bed.Host
	addr    netip.Addr
	offLink netip.Addr // an address of ours that is on no link of the subject's
	capture *bed.Capture
	port    *net.UDPConn // source port 5353
	other   *net.UDPConn // some other source port
	away    *net.UDPConn // source port 5353 of the off-link address

	started time.Time
	stop    func() error
	learned
}

// learned is what the subject announced about itself.
type learned struct {
	ptr *dns.PTR
	srv *dns.SRV
	txt *dns.TXT
	a   []*dns.A
}

// seen is one message that crossed the LAN.
type seen struct {
	bed.Packet
	msg *dns.Msg
}

// NewLab makes a lab of a host on the subject's LAN. The host's link is called
// eth0 and gets an additional address that is off the LAN's subnet.
func NewLab(host *bed.Host, addr netip.Addr, lan *bed.LAN, subject Subject) (*Lab, error) {
	l := &Lab{subject: subject, host: host, addr: addr, offLink: netip.MustParseAddr("198.51.100.77"), capture: lan.Capture()}
	host.Link("eth0").AddAddress(l.offLink.String() + "/32")
	err := host.Do(func() error {
		var err error
		if l.port, err = listen(netip.AddrPortFrom(addr, 5353)); err != nil {
			return err
		}
		if l.other, err = listen(netip.AddrPortFrom(addr, 0)); err != nil {
			return err
		}
		l.away, err = listen(netip.AddrPortFrom(l.offLink, 5353))
		return err
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// listen opens a socket on one local address that sends multicast with the TTL
// mDNS wants. What it receives is never read: the capture sees everything.
func listen(local netip.AddrPort) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		}), err)
	}}
	conn, err := lc.ListenPacket(context.Background(), "udp4", local.String())
	if err != nil {
		return nil, err
	}
	udp := conn.(*net.UDPConn)
	p := ipv4.NewPacketConn(udp)
	ifi, err := net.InterfaceByName("eth0")
	if err != nil {
		return nil, errors.Join(err, udp.Close())
	}
	err = errors.Join(p.SetMulticastInterface(ifi), p.SetMulticastTTL(255), p.SetTTL(255), p.SetMulticastLoopback(false))
	if err != nil {
		return nil, errors.Join(err, udp.Close())
	}
	return udp, nil
}

// Close stops the subject, if it runs, and frees the sockets.
func (l *Lab) Close() error {
	err := l.halt()
	for _, c := range []*net.UDPConn{l.port, l.other, l.away} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}

// start starts the subject afresh.
func (l *Lab) start(ctx context.Context) error {
	if err := l.halt(); err != nil {
		return err
	}
	l.started = time.Now()
	var err error
	l.stop, err = l.subject.Start(ctx)
	return err
}

func (l *Lab) halt() error {
	stop := l.stop
	l.stop = nil
	if stop == nil {
		return nil
	}
	return stop()
}

// establish makes sure that the subject runs, has announced itself twice, and
// has been quiet for long enough to be asked anything.
func (l *Lab) establish(ctx context.Context) error {
	if l.stop == nil {
		if err := l.start(ctx); err != nil {
			return err
		}
		if err := l.announcedTwice(); err != nil {
			return err
		}
	}
	return l.quiet(ctx)
}

// announcedTwice waits for the second complete announcement and learns from it.
func (l *Lab) announcedTwice() error {
	n := 0
	_, err := l.expect(l.started, startTime, "two announcements of an instance of "+l.subject.Service, func(s seen) bool {
		if l.learn(s) {
			n++
		}
		return n >= 2
	})
	return err
}

// learn takes what an announcement says; it reports false when s is none.
func (l *Lab) learn(s seen) bool {
	if !l.multicastAnswer(s) {
		return false
	}
	var got learned
	for _, rr := range s.msg.Answer {
		switch rr := rr.(type) {
		case *dns.PTR:
			if same(rr.Hdr.Name, l.subject.Service) && rr.Hdr.Ttl > 0 {
				got.ptr = rr
			}
		case *dns.SRV:
			if strings.HasSuffix(strings.ToLower(rr.Hdr.Name), "."+l.subject.Service) && rr.Hdr.Ttl > 0 {
				got.srv = rr
			}
		case *dns.TXT:
			if strings.HasSuffix(strings.ToLower(rr.Hdr.Name), "."+l.subject.Service) {
				got.txt = rr
			}
		}
	}
	for _, rr := range slices.Concat(s.msg.Answer, s.msg.Extra) {
		if a, ok := rr.(*dns.A); ok && got.srv != nil && same(a.Hdr.Name, got.srv.Target) {
			got.a = append(got.a, a)
		}
	}
	if got.ptr == nil || got.srv == nil || got.txt == nil {
		return false
	}
	if len(got.a) == 0 {
		// The address records may have been announced in a packet of their own.
		got.a = l.addressesOf(got.srv.Target)
	}
	if len(got.a) == 0 {
		return false
	}
	l.learned = got
	return true
}

func (l *Lab) addressesOf(host string) []*dns.A {
	var out []*dns.A
	for _, s := range l.since(l.started) {
		if !l.multicastAnswer(s) {
			continue
		}
		for _, rr := range slices.Concat(s.msg.Answer, s.msg.Extra) {
			if a, ok := rr.(*dns.A); ok && same(a.Hdr.Name, host) && a.Hdr.Ttl > 0 &&
				!slices.ContainsFunc(out, func(o *dns.A) bool { return o.A.Equal(a.A) }) {
				out = append(out, a)
			}
		}
	}
	return out
}

// quiet waits until neither side has sent anything for that long.
func (l *Lab) quiet(ctx context.Context) error {
	enough := max(quietTime, l.subject.Quiet)
	return bed.Poll(ctx, func() error {
		packets := l.capture.Packets()
		if len(packets) == 0 {
			return nil
		}
		if gap := time.Since(packets[len(packets)-1].Time); gap < enough {
			return fmt.Errorf("the last packet was %v ago", gap)
		}
		return nil
	})
}

// since returns the parseable messages captured from at on.
func (l *Lab) since(at time.Time) []seen {
	var out []seen
	for _, p := range l.capture.Packets() {
		if p.Time.Before(at) {
			continue
		}
		msg := new(dns.Msg)
		if msg.Unpack(p.Payload) == nil {
			out = append(out, seen{Packet: p, msg: msg})
		}
	}
	return out
}

// expect waits up to d for a message of the subject's that matches. Each
// message is shown to match once, in order.
func (l *Lab) expect(since time.Time, d time.Duration, what string, match func(seen) bool) (seen, error) {
	ctx, cancel := context.WithDeadline(context.Background(), since.Add(d))
	defer cancel()
	var found seen
	_, err := l.capture.WaitFor(ctx, func(p bed.Packet) bool {
		if p.Time.Before(since) || p.Src.Addr() != l.subject.Addr {
			return false
		}
		msg := new(dns.Msg)
		if msg.Unpack(p.Payload) != nil {
			return false
		}
		found = seen{Packet: p, msg: msg}
		return match(found)
	})
	if err != nil {
		return seen{}, fmt.Errorf("no %s within %v", what, d)
	}
	return found, nil
}

// refuse waits for d and fails if a message of the subject's matches. A check
// of silence has to sit it out: there is no condition to wait for.
func (l *Lab) refuse(since time.Time, d time.Duration, what string, match func(seen) bool) error {
	s, err := l.expect(since, d, what, match)
	if err == nil {
		return fmt.Errorf("%s after %v: %v", what, s.Time.Sub(since).Round(time.Millisecond), s.msg.Answer)
	}
	return nil
}

// sending says how a message leaves the lab.
type sending int

const (
	multicast       sending = iota // from port 5353 to the group
	legacy                         // from another port to the group
	direct                         // from port 5353 to the subject's own address
	fromBeyond                     // from port 5353 of an off-link address to the subject's own address
	groupFromBeyond                // from there to the group
)

// send sends a message and returns when it did.
func (l *Lab) send(m *dns.Msg, how sending) (time.Time, error) {
	m.Compress = true
	b, err := m.Pack()
	if err != nil {
		return time.Time{}, err
	}
	return l.sendRaw(b, how)
}

func (l *Lab) sendRaw(b []byte, how sending) (time.Time, error) {
	conn, to := l.port, group
	switch how {
	case legacy:
		conn = l.other
	case direct:
		to = netip.AddrPortFrom(l.subject.Addr, 5353)
	case fromBeyond:
		conn, to = l.away, netip.AddrPortFrom(l.subject.Addr, 5353)
	case groupFromBeyond:
		conn = l.away
	}
	at := time.Now()
	_, err := conn.WriteToUDPAddrPort(b, to)
	return at, err
}

// ask sends a query and waits for the answer that matches.
func (l *Lab) ask(ctx context.Context, m *dns.Msg, how sending, d time.Duration, what string, match func(seen) bool) (seen, time.Time, error) {
	if err := l.establish(ctx); err != nil {
		return seen{}, time.Time{}, err
	}
	at, err := l.send(m, how)
	if err != nil {
		return seen{}, at, err
	}
	s, err := l.expect(at, d, what, match)
	return s, at, err
}

// multicastAnswer reports whether s is a response of the subject's to the group.
func (l *Lab) multicastAnswer(s seen) bool {
	return s.Src.Addr() == l.subject.Addr && s.Dst == group && s.msg.Response
}

// unicastAnswer reports whether s is a response of the subject's to the lab.
func (l *Lab) unicastAnswer(s seen) bool {
	return s.Src.Addr() == l.subject.Addr && s.Dst.Addr() == l.addr && s.msg.Response
}

// probe reports whether s is a probe of the subject's.
func (l *Lab) probe(s seen) bool {
	return s.Src.Addr() == l.subject.Addr && !s.msg.Response && len(s.msg.Ns) > 0
}

// query builds a query for one name.
func query(name string, qtype uint16, more ...func(*dns.Msg)) *dns.Msg {
	m := &dns.Msg{Question: []dns.Question{{Name: name, Qtype: qtype, Qclass: dns.ClassINET}}}
	for _, f := range more {
		f(m)
	}
	return m
}

func wantUnicast(m *dns.Msg) {
	for i := range m.Question {
		m.Question[i].Qclass |= qu
	}
}

func truncated(m *dns.Msg) { m.Truncated = true }

func knows(rrs ...dns.RR) func(*dns.Msg) {
	return func(m *dns.Msg) { m.Answer = append(m.Answer, rrs...) }
}

// withTTL returns a copy of rr with another TTL and no cache-flush bit, as a
// querier would list it.
func withTTL(rr dns.RR, ttl uint32) dns.RR {
	c := dns.Copy(rr)
	c.Header().Ttl = ttl
	c.Header().Class &^= flush
	return c
}

// response builds a response that carries the given records.
func response(rrs ...dns.RR) *dns.Msg {
	return &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}, Answer: rrs}
}

// same compares names as RFC 6762 section 16 wants it.
func same(a, b string) bool { return strings.EqualFold(a, b) }

// has returns the record of a name and type in rrs, nil when there is none.
func has(rrs []dns.RR, name string, rrtype uint16) dns.RR {
	for _, rr := range rrs {
		if h := rr.Header(); h.Rrtype == rrtype && same(h.Name, name) && h.Ttl > 0 {
			return rr
		}
	}
	return nil
}
