//go:build linux

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
)

// malformed are packets that no decoder must trip over, with the reason under
// which each is counted.
func malformed(t *testing.T) map[string][]byte {
	header := func(flags, questions, answers uint16) []byte {
		b := make([]byte, 12)
		binary.BigEndian.PutUint16(b[2:], flags)
		binary.BigEndian.PutUint16(b[4:], questions)
		binary.BigEndian.PutUint16(b[6:], answers)
		return b
	}
	good := response(t, claimFor("mangled", peer.Fingerprint{1}, netip.MustParseAddr("10.77.0.66")).all()...)
	noise := make([]byte, 300)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	noise[2] |= 0x80
	return map[string][]byte{
		"empty":                     {},
		"half a header":             good[:7],
		"cut in a record":           good[:len(good)-3],
		"a name that is itself":     append(header(0x8400, 0, 1), 0xc0, 12, 0, 12, 0, 1, 0, 0, 0, 120, 0, 2, 0xc0, 12),
		"two names in a circle":     append(header(0x8400, 0, 1), 1, 'a', 0xc0, 16, 1, 'b', 0xc0, 12, 0, 12, 0, 1, 0, 0, 0, 120, 0, 2, 0xc0, 12),
		"a pointer beyond the end":  append(header(0x8400, 0, 1), 0xff, 0xff, 0, 12, 0, 1, 0, 0, 0, 120, 0, 0),
		"more records than bytes":   header(0x8400, 0xffff, 0xffff),
		"data longer than the rest": append(header(0x8400, 0, 1), 0, 0, 16, 0, 1, 0, 0, 0, 120, 0xff, 0xff, 1),
		"noise":                     noise,
		"9000 bytes of noise":       append(header(0x8400, 0, 5), bytes.Repeat(noise, 30)[:8988]...),
		"more than 9000 bytes":      append(header(0x8400, 0, 1), make([]byte, 9500)...),
	}
}

// Nonsense, and thousands of neighbours that are not there.
func TestFlood(t *testing.T) {
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill", "pond")
	barn, mill, pond := boxes[0], boxes[1], boxes[2]
	eve := newAttacker(t, b, "eve", netip.MustParseAddr("10.77.0.66"))
	barn.configure("[discovery]\ncheck_interval = \"1s\"\nmax_neighbours = 500\n")
	barn.env = ownGC
	barn.start("--kubeconfig", "none")
	mill.start("--kubeconfig", "none")
	millID := mill.id()
	barn.awaitPeer(millID, "Present")

	dropped := func() (n uint64) {
		for reason, count := range barn.mustStatus().Drops {
			if strings.HasPrefix(reason, "mdns:") && reason != "mdns:own-echo" && reason != "mdns:not-asked" {
				n += count
			}
		}
		return n
	}
	for name, packet := range malformed(t) {
		t.Logf("send %s: %d bytes", name, len(packet))
		before, sent := dropped(), time.Time{}
		barn.eventually(name+" is counted as dropped", func() error {
			if time.Since(sent) > 5*time.Second { // a busy machine loses packets
				eve.send(packet)
				sent = time.Now()
			}
			if dropped() == before {
				return errors.New("it is not")
			}
			return nil
		})
	}
	t.Logf("drops: %v", barn.mustStatus().Drops)

	before := memory(t, barn.agent)
	// Hosts that do not exist hold up whoever connects to them.
	nobody, closed := netip.MustParseAddr("10.77.0.250"), eve.addr
	for _, flood := range []struct {
		kind  string
		forge func(i int) []dns.RR
	}{
		{"PTR only", func(i int) []dns.RR { return []dns.RR{bogus(i, closed).ptr()} }},
		{"named after mill", func(i int) []dns.RR {
			c := bogus(i, closed)
			c.instance = fmt.Sprintf("%s (%d)", millID, i+2)
			return c.all()
		}},
		{"short-lived, refusing", func(i int) []dns.RR {
			c := bogus(i, closed)
			c.ttl = 3
			return c.all()
		}},
		{"not answering", func(i int) []dns.RR { return bogus(i, nobody).all() }},
	} {
		kind, forge := flood.kind, flood.forge
		for i := range 5000 { // ten times as many as there may be
			eve.send(response(t, forge(i)...))
			if i%100 == 99 {
				time.Sleep(10 * time.Millisecond) // a rate that arrives: lost packets do no harm
			}
			if i%2500 == 2499 {
				barn.keeps(millID, "in a flood of "+kind)
			}
		}
		st := barn.mustStatus()
		t.Logf("%s: %.1f MB, peers %v, drops %v", kind, memory(t, barn.agent), st.Peers, st.Drops)
	}
	if after := memory(t, barn.agent); after > before+48 {
		t.Errorf("%.1f MB before the flood, %.1f MB after it", before, after)
	}
	all := 0
	for _, n := range barn.mustStatus().Peers {
		all += n
	}
	if all > 1000 {
		t.Errorf("%d peers in memory, want at most twice max_neighbours", all)
	}

	started := time.Now()
	pond.start("--kubeconfig", "none")
	barn.awaitPeer(pond.id(), "Present")
	t.Logf("a new neighbour among %d bogus ones took %v", all, time.Since(started))
	if out, err := barn.cli("status"); err != nil || !strings.Contains(out, "dropped:") || !strings.Contains(out, "mdns:") {
		t.Errorf("status does not name what was dropped: %v\n%s", err, out)
	}
	calms(t, barn.agent)
	var events []control.Event
	barn.eventually("both neighbours are in the history", func() (err error) { // what happened is stored a moment later
		if events, err = barn.asks.History(t.Context(), "", time.Time{}, 0); err == nil && len(events) < 2 {
			err = fmt.Errorf("%+v", events)
		}
		return err
	})
	// But for checks that failed, as on a machine that stood still.
	events = slices.DeleteFunc(events, func(e control.Event) bool { return e.Kind == "unreachable" || e.Kind == "returned" })
	if len(events) != 2 {
		t.Errorf("history: %+v", events)
	}
}

// bogus is a neighbour that does not exist.
func bogus(i int, addr netip.Addr) claim {
	id := fmt.Sprintf("%08x-dead-4a00-8000-%012x", rand.Uint32(), i)
	return claimFor(id, peer.FingerprintOf([]byte(id)), addr)
}

// Whatever is said in a peer's name, the peer stays: its endpoint has its key.
func TestForgery(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	eve := newAttacker(t, b, "eve", netip.MustParseAddr("10.77.0.66"))
	barn.start("--kubeconfig", "none")
	mill.start("--kubeconfig", "none")
	barnID, millID := barn.id(), mill.id()
	before := barn.awaitPeer(millID, "Present")
	mill.awaitPeer(barnID, "Present")
	eveKey := peer.FingerprintOf([]byte("eve"))
	forged := claimFor(millID, eveKey, eve.addr)
	withdrawn := forged
	withdrawn.ttl = 0
	withdrawn.addr = mill.addr
	withdrawn.key = mustFingerprint(t, before.Fingerprint)
	toBarn := barn.host.Link("eth0").HardwareAddr()
	said, stalls := b.LAN().Capture(), 0

	// Each attack is repeated for a while, or it would be luck; barn's opinion is
	// sampled all the time, and has to be as before in the end.
	for _, attack := range []struct {
		name string
		run  func()
	}{
		{"another neighbour claims barn's ID", func() {
			c := claimFor("impostor", eveKey, eve.addr)
			c.id = barnID
			eve.say(c.all()...)
		}},
		{"another neighbour claims mill's ID", func() {
			c := claimFor("impostor", eveKey, eve.addr)
			c.id = millID
			eve.say(c.all()...)
		}},
		{"another neighbour claims mill's ID, at mill's own endpoint", func() {
			c := claimFor("impostor", eveKey, mill.addr)
			c.id = millID
			eve.say(c.all()...)
		}},
		{"mill's key under another ID", func() {
			c := claimFor("impostor", withdrawn.key, mill.addr)
			eve.say(c.all()...)
		}},
		{"mill's host is said to be elsewhere", func() { eve.say(forged.a()) }},
		{"mill's instance is said to be elsewhere", func() {
			c := forged
			c.host = "eve"
			eve.say(c.srv(), c.a())
		}},
		{"mill's instance is said to have another key", func() { eve.say(forged.txt()) }},
		{"mill's instance is said to be nonsense", func() {
			eve.say(&dns.TXT{Hdr: forged.txt().(*dns.TXT).Hdr, Txt: []string{"id=no id"}})
		}},
		{"everything at once", func() { eve.say(forged.all()...) }},
		{"everything at once, told to barn alone", func() {
			eve.whisper(toBarn, mill.addr, response(t, forged.all()...))
		}},
		{"goodbye in mill's name", func() { eve.say(withdrawn.all()...) }},
		{"goodbye in mill's name, told to barn alone", func() {
			eve.whisper(toBarn, mill.addr, response(t, withdrawn.all()...))
		}},
	} {
		t.Run(attack.name, func(t *testing.T) {
			seen := make(map[string]int)
			for round, tries := 0, 0; round < 2; round++ {
				// Mill has read what there was to read, and won its name again: contradicted while it probes, it would rightly
				// take another one.
				heard := uint64(0)
				mill.eventually("has its name", func() error {
					st, before := mill.mustStatus(), heard
					if heard = st.Packets.Received; !st.Advertisement.Established || heard != before {
						return fmt.Errorf("%+v, %d packets", st.Advertisement, heard)
					}
					return nil
				})
				begun := time.Now()
				attack.run()
				// A goodbye or a flush takes effect after a second.
				for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
					p, err := barn.peer(millID)
					if err != nil {
						t.Fatal(err)
					}
					what := p.Phase
					if p.Reason != "" {
						what += ": " + p.Reason
					}
					seen[what]++
					if tries < 10 && (mill.silent(p) || p.Reason == "it said goodbye" && mill.slow(barn, said.Packets(), begun)) {
						t.Logf("again, because mill stood still: %s", what)
						barn.awaitPeer(millID, "Present")
						stalls++
						tries++
						round--
						break
					}
					if p.Phase == "Lost" || p.URL != before.URL || p.Fingerprint != before.Fingerprint || p.Conflict != nil {
						t.Fatalf("mill is %+v", p)
					}
				}
			}
			t.Logf("seen meanwhile: %v", seen)
			barn.awaitPeer(millID, "Present")
			for _, x := range boxes {
				if problems := x.mustStatus().Problems; len(problems) != 0 {
					t.Errorf("problems of %s: %+v", x.host.Name, problems)
				}
			}
		})
	}
	// And when mill really goes, barn knows at once.
	mill.stop()
	t.Logf("why it is lost: %s", barn.awaitPeer(millID, "Lost").Reason)
	// What happened is stored a moment later, in order: with the end, all that there was before is in the history.
	var events []control.Event
	barn.eventually("the history tells of the end", func() (err error) {
		if events, err = barn.asks.History(t.Context(), millID, time.Time{}, 0); err == nil && (len(events) == 0 || events[len(events)-1].Kind != "lost") {
			err = fmt.Errorf("%+v", events)
		}
		return err
	})
	for _, e := range events[:len(events)-1] {
		if e.Kind == "lost" {
			stalls--
		}
		if stalls < 0 || e.Kind == "conflict" {
			t.Fatalf("history: %+v", events)
		}
	}
}

// silent reports whether another box lost this one because its endpoint let the time for an answer go by, as on a machine that stands
// still for seconds.
func (x *box) silent(p control.Peer) bool {
	return p.Phase == "Lost" && strings.Contains(p.Reason, x.addr.String()+":") && strings.Contains(p.Reason, "no answer in time")
}

// slow reports whether another box that heard a goodbye in the name of this one asked for it, and it said nothing in most of the second
// in which it can contradict.
func (x *box) slow(other *box, packets []bed.Packet, begun time.Time) bool {
	id, asked := x.id(), time.Time{}
	for _, p := range packets {
		m := new(dns.Msg)
		if p.Time.Before(begun) || m.Unpack(p.Payload) != nil {
			continue
		}
		switch p.Src.Addr() {
		case other.addr:
			if asked.IsZero() && slices.ContainsFunc(m.Question, func(q dns.Question) bool { return strings.Contains(q.Name, id) }) {
				asked = p.Time
			}
		case x.addr:
			if !asked.IsZero() && p.Time.Before(asked.Add(600*time.Millisecond)) && slices.ContainsFunc(m.Answer, func(rr dns.RR) bool { return rr.Header().Ttl > 0 }) {
				return false
			}
		}
	}
	return !asked.IsZero()
}

func mustFingerprint(t *testing.T, s string) peer.Fingerprint {
	t.Helper()
	f, err := peer.ParseFingerprint(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Goodbyes in another's name as fast as they go: whatever barn believes while it
// lasts, mill is back within seconds of its end.
func TestGoodbyeStorm(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	eve := newAttacker(t, b, "eve", netip.MustParseAddr("10.77.0.66"))
	barn.start("--kubeconfig", "none")
	mill.start("--kubeconfig", "none")
	millID := mill.id()
	key := mustFingerprint(t, barn.awaitPeer(millID, "Present").Fingerprint)
	goodbye := claimFor(millID, key, mill.addr)
	goodbye.ttl = 0
	for _, kind := range []string{"to all", "to barn alone"} {
		for range 50 {
			if kind == "to all" {
				eve.say(goodbye.all()...)
			} else {
				eve.whisper(barn.host.Link("eth0").HardwareAddr(), mill.addr, response(t, goodbye.all()...))
			}
			time.Sleep(100 * time.Millisecond)
		}
		ended := time.Now()
		barn.awaitPeer(millID, "Present")
		t.Logf("%s: Present %v after the end", kind, time.Since(ended))
		events, err := cliJSON[[]control.Event](barn, "peers", "history", millID)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			t.Logf("  %s %s %s", e.At.Format("15:04:05.000"), e.Kind, e.Detail)
		}
	}
}

// Somebody contests every name that mill takes. When it ends, mill is announced
// under one that nobody contests, and was there all the time.
func TestContestedNames(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	eve := newAttacker(t, b, "eve", netip.MustParseAddr("10.77.0.66"))
	barn.start("--kubeconfig", "none")
	mill.start("--kubeconfig", "none")
	millID := mill.id()
	barn.awaitPeer(millID, "Present")
	for i, stalls := 0, 0; i < 50; i++ {
		for n := 1; n <= 5; n++ {
			c := claimFor(millID, peer.FingerprintOf([]byte("eve")), eve.addr)
			if n > 1 {
				c.instance, c.host = fmt.Sprintf("%s (%d)", millID, n), fmt.Sprintf("%s-%d", millID, n)
			}
			c.ttl = 10
			eve.say(c.srv(), c.txt(), c.a())
		}
		p, err := barn.peer(millID)
		if mill.silent(p) && stalls < 10 {
			t.Logf("again, because mill stood still: %s", p.Reason)
			i, stalls = -1, stalls+1
			barn.awaitPeer(millID, "Present")
			continue
		}
		if err != nil || p.Phase == "Lost" || p.Conflict != nil {
			t.Fatalf("mill is %s (%s), conflict %v: %v", p.Phase, p.Reason, p.Conflict, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	started := time.Now()
	mill.eventually("mill is announced", func() error {
		if ad := mill.mustStatus().Advertisement; !ad.Established {
			return fmt.Errorf("%+v", ad)
		}
		return nil
	})
	barn.eventually("barn sees it again", func() error {
		if p, err := barn.peer(millID); err != nil || p.Phase != "Present" || len(p.Links) == 0 {
			return fmt.Errorf("%s (%s), links %v: %w", p.Phase, p.Reason, p.Links, err)
		}
		return nil
	})
	t.Logf("%v later it is announced as %s", time.Since(started), mill.mustStatus().Advertisement.Instance)
	if n := strings.Count(mill.agent.Log(), "\n"); n > 40 {
		t.Errorf("%d lines in mill's log", n)
	}
	calms(t, mill.agent)
}

// What does not come from the link is not listened to, and counted.
func TestOffLinkAnswers(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	barn := newBoxes(t, b, "barn")[0]
	eve := newAttacker(t, b, "eve", netip.MustParseAddr("10.77.0.66"))
	barn.start("--kubeconfig", "none")
	eve.host.Link("eth0").AddAddress("198.51.100.9/24")
	far := eve.socket(netip.MustParseAddr("198.51.100.9"))
	answer := response(t, bogus(1, netip.MustParseAddr("198.51.100.9")).all()...)
	to := netip.AddrPortFrom(barn.addr, 5353)
	barn.eventually("counted as off-link", func() error {
		if _, err := far.WriteToUDPAddrPort(answer, to); err != nil {
			return err
		}
		if st := barn.mustStatus(); st.Drops["mdns:off-link"] == 0 {
			return fmt.Errorf("drops: %v", st.Drops)
		}
		return nil
	})
	// From the link, but to us alone: nothing was asked that way.
	barn.eventually("counted as unicast", func() error {
		if _, err := eve.conn.WriteToUDPAddrPort(answer, to); err != nil {
			return err
		}
		if st := barn.mustStatus(); st.Drops["mdns:unicast-response"] == 0 {
			return fmt.Errorf("drops: %v", st.Drops)
		}
		return nil
	})
	if peers, err := cliJSON[[]control.Peer](barn, "peers", "list", "--all"); err != nil || len(peers) != 0 {
		t.Errorf("peers: %+v, %v", peers, err)
	}
}

// Connections that say nothing, or say it slowly, from one address and from
// many: neighbours get their answers all the same.
func TestEndpointUnderAttack(t *testing.T) {
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	eve := newAttacker(t, b, "eve", netip.MustParseAddr("10.77.0.66"))
	barn.env = ownGC
	barn.start("--kubeconfig", "none")
	mill.start("--kubeconfig", "none")
	barnID := barn.id()
	mill.awaitPeer(barnID, "Present")
	sources := []netip.Addr{eve.addr}
	for i := range 60 {
		a := netip.AddrFrom4([4]byte{10, 77, 0, byte(100 + i)})
		eve.host.Link("eth0").AddAddress(a.String() + "/24")
		sources = append(sources, a)
	}
	target := netip.AddrPortFrom(barn.addr, 6447).String()
	before := memory(t, barn.agent)
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	connect := func(from netip.Addr) {
		var conn net.Conn
		err := eve.host.Do(func() (err error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}, Timeout: time.Second}
			conn, err = d.DialContext(context.Background(), "tcp4", target)
			return err
		})
		if err != nil {
			return // refused is what some of them are to be
		}
		open = append(open, conn)
	}
	answers := func(what string) {
		t.Helper()
		for range 20 {
			out, err := mill.host.Run(t.Context(), "curl", "--silent", "--show-error", "--insecure", "--max-time", "10", "https://"+target+"/ids")
			if err != nil || !strings.Contains(out, barnID) {
				t.Errorf("%s: %q, %v", what, out, err)
			}
		}
		mill.keeps(barnID, what)
		t.Logf("%s: %d connections, %.1f MB, %v", what, len(open), memory(t, barn.agent), barn.mustStatus().Drops)
	}
	for range 500 {
		connect(eve.addr)
	}
	answers("500 silent connections from one address")
	for i := range 1500 {
		connect(sources[i%len(sources)])
	}
	answers("1500 silent connections from many addresses")
	for _, c := range open {
		// The beginning of a TLS handshake, and then nothing.
		_, _ = c.Write([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc}) // some are closed already
	}
	answers("handshakes that do not go on")
	for i := range 40 {
		// Inside TLS: a request that does not end, and one with a huge header.
		var conn net.Conn
		if err := eve.host.Do(func() (err error) {
			conn, err = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: sources[i%len(sources)].AsSlice()}, Timeout: time.Second}).Dial("tcp4", target)
			return err
		}); err != nil {
			continue
		}
		open = append(open, conn)
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		if secure.Handshake() != nil {
			continue
		}
		_, _ = fmt.Fprint(secure, "GET /ids HTTP/1.1\r\nHost: x\r\n")
		if i%2 == 0 {
			_, _ = fmt.Fprint(secure, "X: "+strings.Repeat("x", 1<<20))
		}
	}
	answers("requests that do not end")
	if after := memory(t, barn.agent); after > before+48 {
		t.Errorf("%.1f MB before, %.1f MB after", before, after)
	}
	refused := uint64(0)
	for reason, n := range barn.mustStatus().Drops {
		if strings.HasPrefix(reason, "endpoint:") {
			refused += n
		}
	}
	if refused == 0 {
		t.Errorf("nothing was refused: %v", barn.mustStatus().Drops)
	}
	calms(t, barn.agent)
}
