package mdnssvc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/ifwatch"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/mdnssvc/browser"
	"liqo.io/agent/mdnssvc/wire"
)

// tap is what a LAN hears from one host.
type tap struct {
	t       *testing.T
	capture *bed.Capture
	from    []netip.Addr
}

func tapOn(t *testing.T, lan *bed.LAN, l *bed.Link) *tap {
	t.Helper()
	p := &tap{t: t, capture: lan.Capture()}
	for _, a := range l.Addresses() {
		p.from = append(p.from, a.Addr())
	}
	return p
}

// heard returns the messages since a moment, oldest first.
func (p *tap) heard(since time.Time) (list []*dns.Msg) {
	p.t.Helper()
	if n, err := p.capture.Dropped(); n > 0 || err != nil {
		p.t.Fatalf("the capture lost %d packets: %v", n, err)
	}
	for _, packet := range p.capture.Packets() {
		if packet.Time.Before(since) || !slices.Contains(p.from, packet.Src.Addr()) {
			continue
		}
		m, drop := wire.Decode(packet.Payload)
		if drop != "" {
			p.t.Fatalf("a packet to %v is %s", packet.Dst, drop)
		}
		list = append(list, m)
	}
	return list
}

// await waits until so many messages of a kind were heard since a moment.
func (p *tap) await(since time.Time, what string, n int, is func(*dns.Msg) bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if err := bed.Poll(ctx, func() error {
		if got := count(p.heard(since), is); got < n {
			return fmt.Errorf("heard %d times %s, want %d", got, what, n)
		}
		return nil
	}); err != nil {
		p.t.Fatal(err)
	}
}

func count(list []*dns.Msg, is func(*dns.Msg) bool) (n int) {
	for _, m := range list {
		if is(m) {
			n++
		}
	}
	return n
}

func isProbe(m *dns.Msg) bool    { return !m.Response && len(m.Ns) > 0 }
func isQuestion(m *dns.Msg) bool { return !m.Response && len(m.Ns) == 0 }
func isAnything(*dns.Msg) bool   { return true }
func isGoodbye(m *dns.Msg) bool {
	return m.Response && !slices.ContainsFunc(m.Answer, func(rr dns.RR) bool { return rr.Header().Ttl > 0 })
}

// isNews is an announcement or answer.
func isNews(m *dns.Msg) bool { return m.Response && !isGoodbye(m) }

func show(list []*dns.Msg) string {
	var b strings.Builder
	for _, m := range list {
		fmt.Fprintf(&b, "\n%v", m)
	}
	return b.String()
}

// member reports whether a host is a member of the mDNS groups on a link.
func member(t *testing.T, h *bed.Host, link string) (v4, v6 bool) {
	t.Helper()
	if err := h.Do(func() error {
		six, err := os.ReadFile("/proc/thread-self/net/igmp6")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(six)) {
			f := strings.Fields(line)
			v6 = v6 || f[1] == link && f[2] == "ff0200000000000000000000000000fb"
		}
		four, err := os.ReadFile("/proc/thread-self/net/igmp")
		if err != nil {
			return err
		}
		device := ""
		for line := range strings.Lines(string(four)) {
			if f := strings.Fields(line); !strings.HasPrefix(line, "\t") {
				device = f[1]
			} else {
				v4 = v4 || device == link && f[0] == "FB0000E0"
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return v4, v6
}

// pester asks a box, from a neighbour of its, by all ways there are: an ordinary
// resolver's question to the group, and one to the box directly.
func pester(t *testing.T, from *bed.Host, link string, to *bed.Link) {
	t.Helper()
	q := new(dns.Msg)
	q.SetQuestion("_liqo._tcp.local.", dns.TypePTR)
	raw := packed(t, q)
	var box netip.Addr
	for _, a := range to.Addresses() {
		if a.Addr().Is4() {
			box = a.Addr()
		}
	}
	c := stranger(t, from, link, "0.0.0.0:0")
	for _, dst := range []netip.Addr{groups[wire.IPv4], box} {
		if _, err := c.WriteTo(raw, nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, wire.Port))); err != nil {
			t.Fatal(err)
		}
	}
}

var nothing, listening, speaking = Use{}, Use{Browse: true}, Use{Advertise: true}

// TestSilence takes a box through everything a link can be used for, beside a
// link that is used for everything all the time and must not notice.
func TestSilence(t *testing.T) {
	lan := bed.New(t)
	home, away := lan.LAN(), lan.AddLAN("away")
	host := lan.AddHost("box", "10.77.0.1/24")
	ha := lan.AddHost("a", "10.77.0.2/24")
	hosts := make([]*bed.Host, 3)
	for i, name := range []string{"b", "c", "d"} {
		hosts[i] = lan.AddHost(name, "")
		hosts[i].AddLink(away, "eth1", fmt.Sprintf("10.78.0.%d/24", i+2))
	}
	onAway := map[string]Use{"eth0": nothing} // the neighbours there have no business at home
	host.AddLink(away, "eth1", "10.78.0.1/24")
	atHome, atAway := tapOn(t, home, host.Link("eth0")), tapOn(t, away, host.Link("eth1"))

	a := startBox(t, ha, Config{})
	a.advertise(1)
	b := startBoxWith(t, hosts[0], Config{}, onAway)
	b.advertise(2)
	b.awaitStats("name won", func(s Stats) bool { return s.Established })

	// Silent from the start.
	start := time.Now()
	box := startBoxWith(t, host, Config{}, map[string]Use{"eth1": nothing})
	box.advertise(3)
	a.awaitInstance("eth0", "box", nil)
	box.awaitInstance("eth0", "a", nil)
	pester(t, hosts[0], "eth1", host.Link("eth1"))
	pester(t, ha, "eth0", host.Link("eth0"))
	atHome.await(start, "probes", 3, isProbe)
	atHome.await(start, "questions", 2, isQuestion)
	atHome.await(start, "announcements and answers", 4, isNews)
	if got := atAway.heard(start); len(got) > 0 {
		t.Fatalf("not silent from the start: %s", show(got))
	}
	if v4, v6 := member(t, host, "eth1"); v4 || v6 {
		t.Error("member of a group on a silent link")
	}
	if v4, v6 := member(t, host, "eth0"); !v4 || !v6 {
		t.Error("not a member of the groups at home") // the check itself works
	}
	steady := time.Now()

	// Everything.
	box.uses(nil)
	b.awaitInstance("eth1", "box", hasAddr("10.78.0.1"))
	box.awaitInstance("eth1", "b", nil)
	box.awaitStats("name won", func(s Stats) bool { return s.Established })

	// Listening: what is known stays known, new neighbours are found, and we are gone.
	box.uses(map[string]Use{"eth1": listening})
	b.awaitLost("eth1", "box", browser.ReasonGoodbye)
	atAway.await(start, "goodbyes, one for each IP version", 2, isGoodbye)
	quiet := time.Now()
	c := startBoxWith(t, hosts[1], Config{}, onAway)
	c.advertise(4)
	c.awaitInstance("eth1", "b", nil)
	box.awaitInstance("eth1", "c", nil)
	pester(t, hosts[1], "eth1", host.Link("eth1"))
	box.advertise(33) // told at home, twice by each IP version
	a.awaitInstance("eth0", "box", func(e Event) bool { return e.Instance.Port == 33 })
	atHome.await(quiet, "the change", 4, isNews)
	if got := atAway.heard(quiet); count(got, isQuestion) != len(got) {
		t.Errorf("a link that is only listened on is told: %s", show(got))
	}
	if reason := box.lostBy("eth1", "b"); reason != "" {
		t.Errorf("b was lost although the link is browsed on all the time: %s", reason)
	}

	// Speaking: nothing is asked or known any more, and we are back.
	speak := time.Now()
	box.uses(map[string]Use{"eth1": speaking})
	unasked := box.obeyed()
	box.awaitLost("eth1", "b", browser.ReasonDiscoveryOff)
	box.awaitLost("eth1", "c", browser.ReasonDiscoveryOff)
	b.awaitInstance("eth1", "box", func(e Event) bool { return e.Instance.Port == 33 })
	b.advertise(22)
	c.awaitInstance("eth1", "b", func(e Event) bool { return e.Instance.Port == 22 })
	atAway.await(speak, "announcements", 4, isNews)
	if got := count(atAway.heard(unasked), isQuestion); got > 0 {
		t.Errorf("%d questions on a link that is not browsed on", got)
	}

	// Everything again, and then nothing: goodbye, and not a packet more.
	box.uses(nil)
	box.awaitInstance("eth1", "b", nil)
	end := time.Now()
	box.uses(map[string]Use{"eth1": nothing})
	obeyed := box.obeyed()
	box.awaitLost("eth1", "b", browser.ReasonDiscoveryOff)
	b.awaitLost("eth1", "box", browser.ReasonGoodbye)
	c.awaitLost("eth1", "box", browser.ReasonGoodbye)
	atAway.await(end, "goodbyes", 2, isGoodbye)
	silent := time.Now()
	// Until it obeys, the box may say what it was about to say.
	got := atAway.heard(end)
	if got = got[slices.IndexFunc(got, isGoodbye):]; count(got, isGoodbye) != len(got) {
		t.Errorf("said more than goodbye: %s", show(got))
	}
	// The groups are left when the goodbyes are on their way.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := bed.Poll(ctx, func() error {
		if v4, v6 := member(t, host, "eth1"); v4 || v6 {
			return errors.New("still a member of a group on a link that is used for nothing")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	// What is switched for all links does not wake one up.
	box.svc.Browse(false)
	box.awaitLost("eth0", "a", browser.ReasonDiscoveryOff)
	box.svc.Browse(true)
	box.awaitInstance("eth0", "a", nil)
	box.svc.Advertise(nil)
	a.awaitLost("eth0", "box", browser.ReasonGoodbye)
	box.advertise(3)
	a.awaitInstance("eth0", "box", func(e Event) bool { return e.Instance.Port == 3 })
	d := startBoxWith(t, hosts[2], Config{}, onAway)
	d.advertise(5)
	d.awaitInstance("eth1", "b", nil)
	pester(t, hosts[0], "eth1", host.Link("eth1"))
	pester(t, ha, "eth0", host.Link("eth0"))
	box.awaitStats("names won", func(s Stats) bool { return s.Established })
	atHome.await(silent, "probes", 6, isProbe)
	atHome.await(silent, "questions", 2, isQuestion)
	atHome.await(silent, "announcements by both IP versions", 4, isNews)
	if got := atAway.heard(obeyed); len(got) > 0 {
		t.Errorf("not silent any more: %s", show(got))
	}

	// All that time nobody at home was disturbed.
	if got := atHome.heard(steady); count(got, func(m *dns.Msg) bool { return isProbe(m) }) > 6 {
		t.Errorf("probes at home: %s", show(got))
	}
	for _, m := range atHome.heard(steady) {
		for _, rr := range slices.Concat(m.Answer, m.Ns, m.Extra) {
			if rr, ok := rr.(*dns.A); ok && rr.A.String() == "10.78.0.1" {
				t.Errorf("an address of another link was told at home: %v", m)
			}
		}
	}
	if got := box.svc.Stats(); got.InstanceName != "box" || got.Drops[DropSendFailed] > 0 || got.Drops[DropOffLink] > 0 {
		t.Errorf("stats = %+v", got)
	}
}

// TestOtherLinksDoNotNotice switches one link on and off while another is in the
// middle of winning its names, and when it has won them.
func TestOtherLinksDoNotNotice(t *testing.T) {
	lan := bed.New(t)
	away := lan.AddLAN("away")
	host, ha := lan.AddHost("box", "10.77.0.1/24"), lan.AddHost("a", "10.77.0.2/24")
	host.AddLink(away, "eth1", "10.78.0.1/24")
	atHome, atAway := tapOn(t, lan.LAN(), host.Link("eth0")), tapOn(t, away, host.Link("eth1"))
	a := startBox(t, ha, Config{})
	box := startBox(t, host, Config{})
	start := time.Now()
	box.advertise(1)
	atHome.await(start, "a probe", 1, isProbe)
	for range 5 {
		box.uses(map[string]Use{"eth1": nothing})
		box.uses(nil)
	}
	a.awaitInstance("eth0", "box", nil)
	atHome.await(start, "announcements", 4, isNews)
	// The names on eth1 are won as well. The statistics of the first iteration that
	// knows of the last switch are there when a later one gives a sign of life.
	box.obeyed()
	box.obeyed()
	box.awaitStats("name won everywhere", func(s Stats) bool { return s.Established })
	for i := range 3 {
		since := time.Now()
		box.uses(map[string]Use{"eth1": nothing})
		atAway.await(since, fmt.Sprintf("goodbyes of round %d", i), 2, isGoodbye)
		since = time.Now()
		box.uses(nil)
		atAway.await(since, "announcements", 2, isNews)
	}
	got := atHome.heard(start)
	// Answers to questions of a's may be among them, but announcing anew would
	// make 12 more.
	if count(got, isProbe) != 6 || count(got, isGoodbye) != 0 || count(got, isNews) > 8 {
		t.Errorf("home noticed: %d probes, %d goodbyes, %d announcements, want 6, 0, about 4: %s",
			count(got, isProbe), count(got, isGoodbye), count(got, isNews), show(got))
	}
	if reason := a.lostBy("eth0", "box"); reason != "" {
		t.Errorf("lost at home: %s", reason)
	}
}

// TestSilenceOutlivesTheSockets breaks the sockets of a Service that is silent on
// a link: the next Run is as well.
func TestSilenceOutlivesTheSockets(t *testing.T) {
	lan := bed.New(t)
	away := lan.AddLAN("away")
	host := lan.AddHost("box", "10.77.0.1/24")
	host.AddLink(away, "eth1", "10.78.0.1/24")
	atHome, atAway := tapOn(t, lan.LAN(), host.Link("eth0")), tapOn(t, away, host.Link("eth1"))
	svc, err := New(Config{Service: "_liqo._tcp"})
	if err != nil {
		t.Fatal(err)
	}
	var snapshot ifwatch.Snapshot
	if err := host.Do(func() (err error) {
		snapshot, err = ifwatch.Read(ifwatch.Filter{Exclude: ifwatch.DefaultExclude()})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	svc.SetLinksFor(snapshot, useOf(map[string]Use{"eth1": nothing, "eth0": listening}))
	svc.Advertise(announcement("box", 1))
	start := time.Now()
	for range 2 {
		var sockets [2]*socket
		if err := host.Do(func() (err error) {
			sockets, err = openSockets(t.Context(), DefaultReceiveBuffer, svc.log)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		since := time.Now()
		go func() { done <- svc.serve(t.Context(), sockets) }()
		atHome.await(since, "questions", 1, isQuestion)
		sockets[wire.IPv4].close()
		<-done
	}
	if got := atHome.heard(start); count(got, isQuestion) != len(got) {
		t.Errorf("told where only to listen: %s", show(got))
	}
	if got := atAway.heard(start); count(got, isAnything) > 0 {
		t.Errorf("not silent: %s", show(got))
	}
}
