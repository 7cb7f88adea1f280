package browser

import (
	"testing"
	"time"

	"github.com/miekg/dns"
)

// A goodbye that is not its owner's takes nobody away: the owner, who need not
// even have heard it, answers when asked.
func TestForgedGoodbye(t *testing.T) {
	for name, forged := range map[string]func(r *neighbour) []dns.RR{
		"everything": func(r *neighbour) []dns.RR { return r.goodbye().Answer },
		"PTR":        func(r *neighbour) []dns.RR { return []dns.RR{r.ptr(0)} },
		"SRV":        func(r *neighbour) []dns.RR { return []dns.RR{r.srv(0)} },
		"TXT":        func(r *neighbour) []dns.RR { return []dns.RR{r.txtRR(0)} },
		"addresses":  func(r *neighbour) []dns.RR { return r.addrRR(0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, 4, Config{})
			victim := n.add(20)[7]
			n.start()
			n.run(10 * time.Second)
			m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}, Answer: forged(victim)}
			for range 5 {
				n.announce(victim, m)
				n.run(10 * time.Second)
			}
			// Nobody was called in the second in which the owner answers.
			for _, pause := range []time.Duration{1500 * time.Millisecond, 5 * time.Second} {
				n.announce(victim, m)
				n.run(time.Millisecond)
				n.now = n.now.Add(pause)
				n.run(10 * time.Second)
			}
			if lost := n.count(Lost, ""); len(lost) != 0 {
				t.Fatalf("lost: %+v", lost)
			}
			// Its records live on as long as they would have.
			n.run(3 * time.Hour)
			if lost := n.count(Lost, ""); len(lost) != 0 {
				t.Fatalf("lost later: %+v", lost)
			}
			// And its own goodbye is still believed, at once.
			start := n.now
			victim.dead = true
			n.announce(victim, victim.goodbye())
			n.run(5 * time.Second)
			lost := n.count(Lost, victim.name)
			if len(lost) != 1 || lost[0].Reason != ReasonGoodbye || lost[0].at.Sub(start) != time.Second {
				t.Fatalf("lost after its own goodbye: %+v", lost)
			}
		})
	}
}

// Who said goodbye is lost also if nobody is called in time, again and again.
func TestGoodbyeIsHeardLate(t *testing.T) {
	n := newNetwork(t, 4, Config{})
	gone := n.add(20)[7]
	n.start()
	n.run(10 * time.Second)
	gone.dead = true
	n.announce(gone, gone.goodbye())
	for range 4 {
		n.now = n.now.Add(3 * time.Second)
		n.run(time.Millisecond)
	}
	if lost := n.count(Lost, ""); len(lost) != 1 || lost[0].Instance.Name != gone.name || lost[0].Reason != ReasonGoodbye {
		t.Errorf("lost: %+v", lost)
	}
}

// One question per goodbye, and none for what nobody was told of.
func TestGoodbyeIsAskedAboutOnce(t *testing.T) {
	n := newNetwork(t, 5, Config{})
	r := n.add(1)[0]
	n.start()
	n.run(10 * time.Second)
	before := len(n.sent)
	r.dead = true
	for range 10 {
		n.announce(r, r.goodbye())
		n.run(20 * time.Millisecond)
	}
	n.run(5 * time.Second)
	if asked := len(n.sent) - before; asked < 1 || asked > 3 {
		t.Errorf("%d packets about one goodbye", asked)
	}
}
