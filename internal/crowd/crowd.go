//go:build linux

package crowd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

var group = &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: 5353}

const (
	flush    = 1 << 15
	hostTTL  = 120
	otherTTL = 4500
)

// Options says what the crowd is like.
type Options struct {
	// Size is the number of boxes.
	Size int
	// Skip is how many boxes of other crowds on the LAN come before these: IDs and names count on from there.
	Skip int
	// Keys is a directory in which the boxes keep their keys, so that a crowd that starts again is the same one; empty means
	// that it is another one each time.
	Keys string
	// First is the address of the first box; the others follow.
	First netip.Addr
	// Service is what they announce, such as "_liqo._tcp.local.".
	Service string
	// LossPercent of the answers are never sent.
	LossPercent int
	// Hasty boxes answer a truncated query after 20 to 120 ms like any other, as
	// some responders do, instead of after the 400 to 500 ms of RFC 6762 section
	// 7.2. Known answers that arrive in the meantime count.
	Hasty bool
	// Endpoints has every box serve GET /ids on Port.
	Endpoints bool
	Port      uint16
	// Providers has every box share its capacity with the first cluster that
	// asks, over a real endpoint. It implies Endpoints and needs the crowd to run
	// in a process on the host itself: see the program neighbours.
	Providers bool
}

// Namespace is where the crowd's sockets are opened: a *bed.Host, or the process
// itself.
type Namespace interface {
	Do(fn func() error) error
}

// Box is one simulated neighbour.
type Box struct {
	ID   peer.ClusterID
	Name string
	Addr netip.Addr

	instance, host string
	cluster        *trust.Key // nil without an endpoint
	issuer         *trust.Issuer
	answer         []byte // PTR with SRV, TXT and A as additional records
	records        []dns.RR
	silent         atomic.Bool
}

// Crowd is a set of boxes on one link of one host.
type Crowd struct {
	Boxes []*Box

	opts    Options
	host    Namespace
	conn    *ipv4.PacketConn
	raw     net.PacketConn
	ifindex int
	byName  map[string]*Box
	answers atomic.Int64
	queries atomic.Int64
	known   atomic.Int64

	mu     sync.Mutex
	rounds []*round
	wake   chan struct{}
}

// round is one query for the service type being answered: who answers when,
// and whom the querier says it knows. Continuations of a truncated query add
// to known until the answers are due.
type round struct {
	from  netip.AddrPort
	open  bool // the last packet had the TC bit
	known map[string]bool
	due   []dueAnswer // by time
}

type dueAnswer struct {
	at  time.Time
	box *Box
}

// New gives the host's eth0 an address per box and opens the crowd's socket.
func New(host Namespace, opts Options) (*Crowd, error) {
	c := &Crowd{opts: opts, host: host, byName: make(map[string]*Box), wake: make(chan struct{}, 1)}
	addr := opts.First
	for i := range opts.Size {
		b, err := newBox(opts.Skip+i, addr, opts)
		if err != nil {
			return nil, err
		}
		c.Boxes = append(c.Boxes, b)
		c.byName[strings.ToLower(b.instance)] = b
		c.byName[strings.ToLower(b.host)] = b
		addr = addr.Next()
	}
	return c, host.Do(c.open)
}

func newBox(i int, addr netip.Addr, opts Options) (*Box, error) {
	b := &Box{
		ID:   peer.ClusterID(fmt.Sprintf("%08x-5eed-4a00-8000-%012x", i+1, i+1)),
		Name: fmt.Sprintf("crowd-%d", i+1),
		Addr: addr,
	}
	b.instance = string(b.ID) + "." + opts.Service
	b.host = string(b.ID) + ".local."
	fingerprint := peer.FingerprintOf([]byte(b.ID))
	if opts.Providers || opts.Endpoints {
		key, err := loadKey(opts.Keys, b.Name)
		if err != nil {
			return nil, err
		}
		b.cluster, fingerprint = key, key.Fingerprint()
		b.issuer = trust.NewIssuer(key, func() peer.ClusterID { return b.ID })
	}
	hdr := func(name string, t uint16, ttl uint32, class uint16) dns.RR_Header {
		return dns.RR_Header{Name: name, Rrtype: t, Class: class, Ttl: ttl}
	}
	b.records = []dns.RR{
		&dns.PTR{Hdr: hdr(opts.Service, dns.TypePTR, otherTTL, dns.ClassINET), Ptr: b.instance},
		&dns.SRV{Hdr: hdr(b.instance, dns.TypeSRV, hostTTL, dns.ClassINET|flush), Port: opts.Port, Target: b.host},
		&dns.TXT{Hdr: hdr(b.instance, dns.TypeTXT, otherTTL, dns.ClassINET|flush), Txt: []string{
			"txtvers=1", "id=" + string(b.ID), "name=" + b.Name, "ns=liqo", "fp=" + fingerprint.String(), "v=1"}},
		&dns.A{Hdr: hdr(b.host, dns.TypeA, hostTTL, dns.ClassINET|flush), A: net.IP(addr.AsSlice())},
	}
	var err error
	b.answer, err = pack(b.records[:1], b.records[1:])
	return b, err
}

func pack(answer, extra []dns.RR) ([]byte, error) {
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}, Compress: true, Answer: answer, Extra: extra}
	return m.Pack()
}

// open runs inside the host.
func (c *Crowd) open() error {
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	c.ifindex = link.Attrs().Index
	for _, b := range c.Boxes {
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.IP(b.Addr.AsSlice()), Mask: net.CIDRMask(16, 32)}, Flags: unix.IFA_F_NOPREFIXROUTE}
		if err := netlink.AddrAdd(link, addr); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("address %s: %w", b.Addr, err)
		}
	}
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error {
		var err error
		return errors.Join(rc.Control(func(fd uintptr) {
			err = errors.Join(
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20))
		}), err)
	}}
	if c.raw, err = lc.ListenPacket(context.Background(), "udp4", "0.0.0.0:5353"); err != nil {
		return err
	}
	c.conn = ipv4.NewPacketConn(c.raw)
	ifi := &net.Interface{Index: c.ifindex, Name: "eth0"}
	return errors.Join(c.conn.JoinGroup(ifi, group), c.conn.SetMulticastInterface(ifi),
		c.conn.SetMulticastTTL(255), c.conn.SetMulticastLoopback(false))
}

// Answers returns how many answers to queries for the service were sent or
// lost on purpose.
func (c *Crowd) Answers() int64 { return c.answers.Load() }

// Queries returns how many packets asked for the service, and how many of all
// packets of those queries carried known answers.
func (c *Crowd) Queries() (asked, withKnown int64) { return c.queries.Load(), c.known.Load() }

// Silence has a box answer nothing any more, as if its cable had been cut; its
// endpoint is not touched.
func (c *Crowd) Silence(i int) { c.Boxes[i].silent.Store(true) }

// Announce multicasts a box's records unasked.
func (c *Crowd) Announce(i int) error {
	b, err := pack(c.Boxes[i].records, nil)
	if err != nil {
		return err
	}
	return c.send(c.Boxes[i], b, group)
}

// Goodbye multicasts a box's PTR record with TTL 0 (RFC 6762 section 10.1) and
// silences it.
func (c *Crowd) Goodbye(i int) error {
	ptr := dns.Copy(c.Boxes[i].records[0])
	ptr.Header().Ttl = 0
	b, err := pack([]dns.RR{ptr}, nil)
	if err != nil {
		return err
	}
	c.Silence(i)
	return c.send(c.Boxes[i], b, group)
}

func (c *Crowd) send(b *Box, packet []byte, to net.Addr) error {
	_, err := c.conn.WriteTo(packet, &ipv4.ControlMessage{Src: net.IP(b.Addr.AsSlice()), IfIndex: c.ifindex}, to)
	return err
}

// Run answers queries until ctx ends.
func (c *Crowd) Run(ctx context.Context) error {
	var all sync.WaitGroup
	failed := make(chan error, 2)
	all.Go(func() { failed <- c.answerDue(ctx) })
	switch {
	case c.opts.Providers:
		all.Go(func() { failed <- c.provide(ctx) })
	case c.opts.Endpoints:
		all.Go(func() { failed <- c.serve(ctx) })
	}
	stop := context.AfterFunc(ctx, func() { c.raw.Close() })
	defer stop()
	buf := make([]byte, 9000)
	var err error
	for {
		var n int
		var from net.Addr
		if n, from, err = c.raw.ReadFrom(buf); err != nil {
			break
		}
		msg := new(dns.Msg)
		if msg.Unpack(buf[:n]) == nil && !msg.Response {
			c.receive(msg, from.(*net.UDPAddr).AddrPort())
		}
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil
	}
	close(failed)
	for e := range failed {
		err = errors.Join(err, e)
	}
	return err
}

func (c *Crowd) receive(m *dns.Msg, from netip.AddrPort) {
	knows := make(map[string]bool)
	for _, rr := range m.Answer {
		if ptr, ok := rr.(*dns.PTR); ok && ptr.Hdr.Ttl >= otherTTL/2 {
			knows[strings.ToLower(ptr.Ptr)] = true
		}
	}
	asksType := false
	for _, q := range m.Question {
		if strings.EqualFold(q.Name, c.opts.Service) && (q.Qtype == dns.TypePTR || q.Qtype == dns.TypeANY) {
			asksType = true
			continue
		}
		if b := c.byName[strings.ToLower(q.Name)]; b != nil && !b.silent.Load() {
			c.answerQuestion(b, q)
		}
	}
	if asksType {
		c.queries.Add(1)
	}
	if len(knows) > 0 {
		c.known.Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if asksType {
		c.rounds = append(c.rounds, c.newRound(from, m.Truncated, knows))
	} else if len(knows) > 0 {
		for _, r := range c.rounds {
			if r.open && r.from == from {
				for k := range knows {
					r.known[k] = true
				}
				r.open = m.Truncated
			}
		}
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// newRound draws when each box will answer.
func (c *Crowd) newRound(from netip.AddrPort, truncated bool, knows map[string]bool) *round {
	now := time.Now()
	base, spread := 20*time.Millisecond, 100*time.Millisecond
	if truncated && !c.opts.Hasty {
		base = 400 * time.Millisecond
	}
	r := &round{from: from, open: truncated, known: knows, due: make([]dueAnswer, 0, len(c.Boxes))}
	for _, b := range c.Boxes {
		if !b.silent.Load() && !knows[strings.ToLower(b.instance)] {
			r.due = append(r.due, dueAnswer{at: now.Add(base + rand.N(spread)), box: b})
		}
	}
	slices.SortFunc(r.due, func(a, b dueAnswer) int { return a.at.Compare(b.at) })
	return r
}

// answerQuestion answers a question for a box's own records at once, as unique
// records may be.
func (c *Crowd) answerQuestion(b *Box, q dns.Question) {
	var found []dns.RR
	for _, rr := range b.records {
		if h := rr.Header(); strings.EqualFold(h.Name, q.Name) && (q.Qtype == h.Rrtype || q.Qtype == dns.TypeANY) {
			found = append(found, rr)
		}
	}
	if len(found) == 0 {
		return
	}
	packet, err := pack(found, nil)
	if err == nil && !c.lost() {
		// A packet that cannot be sent is a lost one, which is what happens
		// on a real link too.
		_ = c.send(b, packet, group)
	}
}

func (c *Crowd) lost() bool { return rand.IntN(100) < c.opts.LossPercent }

// answerDue sends the answers of all rounds when they are due.
func (c *Crowd) answerDue(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := c.sendDue()
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-timer.C:
		}
	}
}

func (c *Crowd) sendDue() (wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	wait = time.Hour
	for _, r := range c.rounds {
		for len(r.due) > 0 && !r.due[0].at.After(now) {
			b := r.due[0].box
			r.due = r.due[1:]
			if r.known[strings.ToLower(b.instance)] || b.silent.Load() {
				continue
			}
			c.answers.Add(1)
			if !c.lost() {
				_ = c.send(b, b.answer, group) // see answerQuestion
			}
		}
		if len(r.due) > 0 {
			wait = min(wait, r.due[0].at.Sub(now))
		}
	}
	c.rounds = slices.DeleteFunc(c.rounds, func(r *round) bool { return len(r.due) == 0 })
	return wait
}
