package browser

import (
	"testing"
	"time"
)

// TestOneLinkOff switches browsing off on one link of two: it is as if it were
// off altogether there, and the other one does not notice.
func TestOneLinkOff(t *testing.T) {
	n := newNetwork(t, 6, Config{})
	r := n.add(1)[0]
	other := *r // the same box on a second link
	other.link, other.lastMulti = 2, map[string]time.Time{}
	n.neighbours = append(n.neighbours, &other)
	v4 := [2]bool{true, false}
	set := func(off bool) {
		n.b.SetLinks(n.now, []LinkFamilies{{Index: 1, Families: v4}, {Index: 2, Families: v4, Off: off}})
	}
	packets := func(link int) (count int) {
		for _, p := range n.sent {
			if p.Link == link {
				count++
			}
		}
		return count
	}
	n.start(LinkFamilies{Index: 1, Families: v4}, LinkFamilies{Index: 2, Families: v4, Off: true})
	n.run(5 * time.Second)
	if list := n.b.Instances(); len(list) != 1 || list[0].Link != 1 || packets(2) != 0 {
		t.Fatalf("a link that is off from the start: %+v, %d packets", list, packets(2))
	}

	set(false)
	n.run(time.Second)
	if list := n.b.Instances(); len(list) != 2 || packets(2) != 1 {
		t.Fatalf("switched on: %+v, %d packets", list, packets(2))
	}
	n.run(10 * time.Second)
	asked := len(n.browses(0))

	n.b.Reconfirm(n.now, 2, other.name) // questions are waiting when it goes off
	set(true)
	if n.b.Next().After(n.now) {
		t.Error("what happened is not told at once")
	}
	before := packets(2)
	n.run(time.Hour)
	if lost := n.count(Lost, ""); len(lost) != 1 || lost[0].Reason != ReasonDiscoveryOff || lost[0].Instance.Link != 2 {
		t.Fatalf("lost: %+v", lost)
	}
	if got := packets(2); got != before {
		t.Errorf("%d packets on a link that is off", got-before)
	}
	if len(n.browses(0)) == asked {
		t.Error("the other link is no longer asked on")
	}
	if drop := n.announce(&other, other.announcement()); drop != DropDisabled {
		t.Errorf("drop reason %q", drop)
	}
	if len(n.b.Instances()) != 1 || len(n.count(Found, "")) != 2 {
		t.Errorf("taken in on a link that is off: %+v", n.events)
	}
	set(true) // again, and nothing happens

	// The switch for all links does not switch this one on, nor forget its own.
	n.b.SetEnabled(n.now, false)
	n.run(time.Minute)
	n.b.SetEnabled(n.now, true)
	n.run(time.Minute)
	if list := n.b.Instances(); len(list) != 1 || list[0].Link != 1 || packets(2) != before {
		t.Errorf("after all were switched off and on: %+v, %d packets", list, packets(2)-before)
	}
	n.b.SetEnabled(n.now, false)
	set(false) // on here, off altogether
	n.run(time.Minute)
	if packets(2) != before || len(n.b.Instances()) != 0 {
		t.Error("a link wakes up although all are off")
	}
	n.b.SetEnabled(n.now, true)
	n.run(5 * time.Second)
	if len(n.b.Instances()) != 2 {
		t.Errorf("all on: %+v", n.b.Instances())
	}
	// A link that goes while it is off has nothing to lose.
	set(true)
	n.run(time.Second)
	lost := len(n.count(Lost, ""))
	n.b.SetLinks(n.now, []LinkFamilies{{Index: 1, Families: v4}})
	n.run(time.Second)
	if len(n.count(Lost, "")) != lost {
		t.Errorf("lost: %+v", n.count(Lost, ""))
	}
}
