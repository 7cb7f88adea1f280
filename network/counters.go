package network

import (
	"sync/atomic"
)

// dropped is why a packet was not passed on.
type dropped int

const (
	dropFull    dropped = iota // the connection takes less than is sent
	dropDown                   // there is no connection
	dropSource                 // of ours, without an address that the peer knows
	dropInvalid                // of the peer, and not a packet that may come
	dropForeign                // of the peer, from or to addresses that are not its own and ours
	dropDevice                 // the device does not take it
	dropRefused                // of the peer, and would have begun one connection too many; counted by the kernel
	drops
)

var dropNames = [drops]string{"queue-full", "disconnected", "source", "invalid", "foreign", "device", "connections"}

// counters count what went over a path. They are safe for concurrent use.
type counters struct {
	bytesIn, bytesOut, packetsIn, packetsOut atomic.Uint64
	dropped                                  [drops]atomic.Uint64
}

func (c *counters) sent(bytes int) {
	c.packetsOut.Add(1)
	c.bytesOut.Add(uint64(bytes))
}

func (c *counters) received(bytes int) {
	c.packetsIn.Add(1)
	c.bytesIn.Add(uint64(bytes))
}

func (c *counters) drop(why dropped) { c.dropped[why].Add(1) }

// Counters are what went over a path since the agent started. Bytes are those of packets with their header of the device,
// of which one may have the data of many.
type Counters struct {
	BytesIn, BytesOut, PacketsIn, PacketsOut uint64
	// Dropped counts packets that were not passed on, by reason.
	Dropped map[string]uint64
}

func (c *counters) snapshot() Counters {
	out := Counters{
		BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(), PacketsIn: c.packetsIn.Load(), PacketsOut: c.packetsOut.Load(),
		Dropped: make(map[string]uint64, drops),
	}
	for i := range c.dropped {
		if n := c.dropped[i].Load(); n > 0 {
			out.Dropped[dropNames[i]] = n
		}
	}
	return out
}
