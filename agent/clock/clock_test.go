package clock

import (
	"strings"
	"testing"
	"time"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
)

func TestCheck(t *testing.T) {
	const barn, mill, silo peer.ClusterID = "barn", "mill", "silo"
	for _, tc := range []struct {
		name   string
		synced bool
		heard  map[peer.ClusterID]time.Duration // how far their clocks are ahead of ours
		about  peer.ClusterID
		why    string // "" if it is believed
	}{
		{name: "kept by a time server", synced: true},
		{name: "kept by a time server, whatever peers say", synced: true, heard: map[peer.ClusterID]time.Duration{barn: time.Hour}},
		{name: "nobody to ask", why: "no joined peer"},
		{name: "a peer agrees", heard: map[peer.ClusterID]time.Duration{barn: 9 * time.Minute}},
		{name: "a peer in another time zone", heard: map[peer.ClusterID]time.Duration{barn: -time.Hour}, why: "0 out of 1"},
		{name: "two of three", heard: map[peer.ClusterID]time.Duration{barn: time.Minute, mill: -time.Minute, silo: 24 * time.Hour}},
		{name: "one of two", heard: map[peer.ClusterID]time.Duration{barn: time.Minute, silo: -24 * time.Hour}, why: "1 out of 2"},
		{name: "one of two, and the other is whom it is about", heard: map[peer.ClusterID]time.Duration{barn: time.Minute, silo: -24 * time.Hour}, about: silo},
		{name: "who agrees against itself", heard: map[peer.ClusterID]time.Duration{silo: 0}, about: silo},
		{name: "only whom it is about, with another time", heard: map[peer.ClusterID]time.Duration{silo: -time.Hour}, about: silo, why: "no joined peer"},
		{name: "who is not joined has no say", heard: map[peer.ClusterID]time.Duration{"stranger": 0}, why: "no joined peer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := New()
			c.synced = func() bool { return tc.synced }
			now := time.Now()
			c.now = func() time.Time { return now }
			for id, ahead := range tc.heard {
				c.Heard(id, now.Add(ahead).Round(0))
			}
			got := c.Check(tc.about, func(id peer.ClusterID) bool { return id != "stranger" })
			if (got == nil) != (tc.why == "") || got != nil && !strings.Contains(got.Error(), tc.why) {
				t.Errorf("%v, want %q", got, tc.why)
			}
		})
	}
}

// A clock that stands before the program was made is wrong, whoever keeps it.
func TestBeforeTheBuild(t *testing.T) {
	c := New()
	c.synced = func() bool { return true }
	c.now = func() time.Time { return time.Unix(0, 0) }
	if err := c.Check("", nil); err == nil || !strings.Contains(err.Error(), "1970-01-01") {
		t.Errorf("in 1970: %v", err)
	}
}

// What a peer said goes on with time, and does not count for ever; when our own
// clock jumps, it is ours that differs.
func TestReadings(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := New()
		c.synced = func() bool { return false }
		// The bubble begins in 2000.
		later := func(years, days int) func() time.Time {
			return func() time.Time { return time.Now().AddDate(years, 0, days) }
		}
		c.now = later(30, 0)
		joined := func(peer.ClusterID) bool { return true }
		c.Heard("barn", c.now().Round(0))
		time.Sleep(50 * time.Minute)
		if err := c.Check("", joined); err != nil {
			t.Errorf("50 minutes later: %v", err)
		}
		c.now = later(30, 1)
		if err := c.Check("", joined); err == nil {
			t.Error("a clock that jumped by a day is believed")
		}
		c.now = later(30, 0)
		time.Sleep(11 * time.Minute)
		if err := c.Check("", joined); err == nil {
			t.Error("a reading counts for ever")
		}
		c.Heard("mill", time.Time{})
		if len(c.readings) != 1 {
			t.Error("no time is a reading")
		}
		c.Heard("mill", time.Now())
		if len(c.readings) != 1 {
			t.Errorf("%d readings are kept", len(c.readings))
		}
	})
}
