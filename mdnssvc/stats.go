package mdnssvc

import (
	"maps"
	"sync"
	"sync/atomic"

	"liqo.io/agent/mdnssvc/wire"
)

// Why packets were dropped before the state machines saw them, or were not
// sent. The machines and the codec add reasons of their own.
const (
	DropQueueFull      wire.DropReason = "queue-full"      // they came faster than they could be worked on
	DropOtherLink      wire.DropReason = "other-link"      // came in on a link that is not in use
	DropOffLink        wire.DropReason = "off-link"        // from outside the link's networks, and sent to us directly or to be answered so (RFC 6762 section 11, 5.5)
	DropBadPort        wire.DropReason = "bad-port"        // a response that is not from port 5353 (section 6)
	DropBadSource      wire.DropReason = "bad-source"      // from an address or port nobody can have
	DropBadDestination wire.DropReason = "bad-destination" // to a broadcast address or another group
	DropOwnEcho        wire.DropReason = "own-echo"        // our own packet; not a fault
	DropSendFull       wire.DropReason = "send-full"       // not sent: the link or the socket's buffer is full
	DropSendFailed     wire.DropReason = "send-failed"     // not sent: link or address are gone, or a firewall refuses it
	DropSendEncode     wire.DropReason = "send-encode"     // not sent: larger than any packet may be
)

// Stats are counts since New.
type Stats struct {
	Received    uint64 // packets taken from the sockets
	Sent        uint64 // packets handed to the kernel
	SocketDrops uint64 // packets the kernel dropped because a socket's receive buffer was full
	// Drops counts by reason what was ignored or not sent. Ignoring is the normal
	// fate of what other services say on the same group.
	Drops        map[wire.DropReason]uint64
	Instances    int    // instances found and not lost, on all links
	InstanceName string // our instance name, as conflicts left it; "" when nothing is announced
	Established  bool   // our names are unopposed and announced on every link
}

// Stats returns the counts. It may be called at any time.
func (s *Service) Stats() Stats {
	c := s.count
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{
		Received:     c.received.Load(),
		Sent:         c.sent.Load(),
		SocketDrops:  c.socketDrops.Load(),
		Drops:        maps.Clone(c.drops),
		Instances:    c.instances,
		InstanceName: c.instanceName,
		Established:  c.established,
	}
}

// counters are written by the loop and the readers and read by everybody.
type counters struct {
	received, sent, socketDrops atomic.Uint64

	mu           sync.Mutex
	drops        map[wire.DropReason]uint64
	instances    int
	instanceName string
	established  bool
}

func newCounters() *counters {
	return &counters{drops: make(map[wire.DropReason]uint64)}
}

// drop counts; reason "" means that nothing was dropped.
func (c *counters) drop(reason wire.DropReason) { c.dropN(reason, 1) }

func (c *counters) dropN(reason wire.DropReason, n int) {
	if reason == "" || n == 0 {
		return
	}
	c.mu.Lock()
	c.drops[reason] += uint64(n)
	c.mu.Unlock()
}

func (c *counters) state(instances int, instanceName string, established bool) {
	c.mu.Lock()
	c.instances, c.instanceName, c.established = instances, instanceName, established
	c.mu.Unlock()
}
