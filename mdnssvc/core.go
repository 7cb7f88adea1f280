package mdnssvc

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/mdnssvc/browser"
	"liqo.io/agent/mdnssvc/responder"
	"liqo.io/agent/mdnssvc/wire"
)

// core is the state that outlives the sockets: both machines and the links they
// work on. Only Run's goroutine uses it.
type core struct {
	log       *slog.Logger
	events    *outbox
	count     *counters
	responder *responder.Responder // nil when the Service only browses
	browser   *browser.Browser
	links     map[int]*link // in use, by index
	echoes    *echoes
	instances int // found and not lost
	browsing  bool

	asleep func() time.Duration // see the function of that name
	slept  time.Duration        // what it said last
}

// slumber is how long the machine must have slept to be new on its links.
const slumber = time.Second

// woke has everything begin again if the machine slept since the last call: what
// happened on its links meanwhile it does not know (RFC 6762 section 8).
func (c *core) woke(now time.Time) {
	slept := c.asleep()
	if slept-c.slept < slumber {
		return
	}
	c.log.Debug("mDNS starts again after the machine slept", "for", slept-c.slept)
	c.slept = slept
	if c.responder != nil {
		c.responder.Restart(now)
	}
	c.browser.Restart(now)
}

// asleep returns for how long the machine slept since it was booted: one clock counts
// that time, and the other does not. Where that cannot be said it is zero.
func asleep() time.Duration {
	var all, awake unix.Timespec
	// In this order: a process that is stopped in between takes nothing for sleep.
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &all) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) != nil {
		return 0
	}
	return time.Duration(all.Nano() - awake.Nano())
}

// conflict is called by the responder.
func (c *core) conflict(name string, _ time.Time) {
	c.log.Debug("mDNS name conflict: somebody else claims our name", "name", name)
}

// renamed is called by the responder.
func (c *core) renamed(instance string) {
	c.log.Warn("mDNS instance name is taken by somebody else, so another one is used", "instance", instance)
}

// setLinks tells the machines which links to use.
func (c *core) setLinks(now time.Time, links map[int]*link) {
	c.links = links
	var forResponder []responder.LinkAddrs
	var forBrowser []browser.LinkFamilies
	for _, index := range slices.Sorted(maps.Keys(links)) {
		l := links[index]
		addrs := l.Addrs
		if !l.use.Advertise {
			addrs = nil // the responder says goodbye where it has no addresses, and then nothing
		}
		forResponder = append(forResponder, responder.LinkAddrs{Index: index, Addrs: addrs, Families: l.families})
		forBrowser = append(forBrowser, browser.LinkFamilies{Index: index, Families: l.families, Off: !l.use.Browse})
	}
	if c.responder != nil {
		if err := c.responder.SetLinks(now, forResponder); err != nil {
			c.log.Error("mDNS cannot announce the addresses of a link", "error", err)
		}
	}
	c.browser.SetLinks(now, forBrowser)
}

// emit passes events on under the names consumers know.
func (c *core) emit(events []browser.Event) {
	for _, e := range events {
		l := c.links[e.Instance.Link]
		if l == nil {
			c.log.Error("mDNS browser told of an instance on a link that is not in use", "link", e.Instance.Link, "instance", e.Instance.Name)
			continue
		}
		switch e.Kind {
		case browser.Found:
			c.instances++
		case browser.Lost:
			c.instances--
		}
		e.Instance.Addrs = l.reachable(e.Instance.Addrs)
		c.events.put(Event{Kind: e.Kind, Instance: e.Instance, Link: l.Name, Reason: e.Reason})
	}
}

// receive passes one packet to both machines.
func (c *core) receive(now time.Time, d datagram) {
	in, drop := c.admit(now, d)
	if drop != "" {
		c.count.drop(drop)
		return
	}
	if in.Msg, drop = wire.Decode(d.data); drop != "" {
		c.count.drop(drop)
		return
	}
	// What nobody wants to know is no fault of the packet.
	use := c.links[in.Link].use
	if c.responder != nil && use.Advertise {
		c.count.drop(c.responder.Receive(now, in))
	}
	if !c.browsing || !use.Browse {
		return
	}
	events, drop := c.browser.Receive(now, in)
	c.emit(events)
	c.count.drop(drop)
}

// next returns when one of the machines wants to work; zero means never.
func (c *core) next() time.Time {
	at := c.browser.Next()
	if c.responder != nil {
		if r := c.responder.Next(); at.IsZero() || !r.IsZero() && r.Before(at) {
			at = r
		}
	}
	return at
}

// due lets the machines work and returns what they want to send.
func (c *core) due(now time.Time) []wire.Packet {
	var packets []wire.Packet
	if c.responder != nil {
		packets = c.responder.Due(now)
	}
	queries, events := c.browser.Due(now)
	c.emit(events)
	return append(packets, queries...)
}

// publish updates what Stats shows of the machines.
func (c *core) publish() {
	instance, established := "", false
	if c.responder != nil {
		instance, established = c.responder.Instance(), c.responder.Established()
	}
	c.count.state(c.instances, instance, established)
}
