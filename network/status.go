package network

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/peer"
)

// State is how a path is.
type State string

// The states of a path.
const (
	// Connecting: there is no connection, or it was not tried yet whether packets pass.
	Connecting State = "Connecting"
	// Connected: probes are answered.
	Connected State = "Connected"
	// Silent: there is a connection, and nothing comes on it.
	Silent State = "Silent"
)

// What carries packets.
const (
	// EngineTLS is a TLS connection to the endpoint of one of the clusters.
	EngineTLS = "tls"
	// EngineWireGuard is the WireGuard of both kernels.
	EngineWireGuard = "wireguard"
)

// Move is a change of the addresses of a peer's pods because something else uses them.
type Move struct {
	At       time.Time
	From, To []netip.Prefix
	Taken    netip.Prefix // what uses From now
}

// Status is what is known about the path to a peer.
type Status struct {
	State State
	Since time.Time
	// Problem is why the path is not Connected, nil while nothing is known to be wrong.
	Problem error
	// Unable: Problem is one of this machine, which can connect nobody.
	Unable bool
	// RTT is how long the last probe took, there and back; 0 while none was answered.
	RTT time.Duration
	// Engine carries the packets, one of the Engine constants; "" while there is no connection.
	Engine string
	// MTU is the length of the longest packet to the peer.
	MTU int
	// NoWireGuard is why packets do not go by WireGuard, nil if they do.
	NoWireGuard error
	// Known: Blocks were read from where they are stored.
	Known  bool
	Blocks Blocks
	// Own are the ranges of this cluster's pods.
	Own []netip.Prefix
	// Thirds are the addresses that pods of other peers have at this one, by those that they have here; nil while not
	// known. It is not changed any more.
	Thirds map[netip.Addr]netip.Addr
	// Moved is the last change of Blocks.Theirs because of this machine's routes, nil for none since Run began.
	Moved    *Move
	Counters Counters
}

// Problem returns why no networks can be connected on this machine, nil if they can or nobody is to be connected.
func (e *Engine) Problem() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.problem
}

// Status returns what is known about the path to a peer; false when it is not to be connected: then that is only what was
// agreed on when it was connected last.
func (e *Engine) Status(id peer.ClusterID) (Status, bool) {
	e.mu.Lock()
	p, problem, known, stored, own := e.paths[id], e.problem, e.stored != nil, e.stored[id], e.node.Pods
	e.mu.Unlock()
	if p == nil {
		return Status{Known: known, Blocks: stored, Own: own}, false
	}
	p.mu.Lock()
	out := Status{State: p.state, Since: p.since, Problem: p.failure, Known: known, Blocks: p.blocks, Own: own, Thirds: p.thirds, Moved: p.away, Counters: p.counters.snapshot()}
	disagreed, flaps := p.disagreed, p.flaps > 0
	tunneled, took := p.tunnel.mtu, p.tunnel.rtt
	out.NoWireGuard = p.tunnel.why
	p.mu.Unlock()
	switch {
	case out.State == Silent:
		out.Problem = errUnanswered
	case flaps:
		out.Problem = errFlaps
	case out.State == Connecting && disagreed != nil:
		out.Problem = disagreed
	}
	if problem != nil {
		out.Problem, out.Unable = problem, true
	}
	out.MTU = MTU
	if s := p.current.Load(); tunneled > 0 {
		out.RTT, out.Engine, out.MTU = took, EngineWireGuard, tunneled
	} else if s != nil {
		out.RTT, out.Engine = time.Duration(s.rtt.Load()), EngineTLS
	}
	return out, true
}

// Probe measures how long a packet takes to a peer's agent and back. The error says why there is no answer, or none
// before ctx ended.
func (e *Engine) Probe(ctx context.Context, id peer.ClusterID) (time.Duration, error) {
	status, wanted := e.Status(id)
	if !wanted {
		return 0, errNotShared
	}
	if t := e.tunnel.Load(); t != nil && status.Engine == EngineWireGuard {
		if p := e.path(id); p != nil {
			return p.measure(ctx, t)
		}
	}
	if s := e.path(id).stream(); s != nil {
		return s.measure(ctx)
	}
	if status.Problem != nil {
		return 0, status.Problem
	}
	return 0, errNoStream
}

// Why nothing can be measured.
var (
	errNotShared = errors.New("the network of this cluster is not to be connected with that of the peer")
	errNoStream  = errors.New("there is no connection to the peer's network")
)

// stream returns the present stream, nil for none, also of a path that is gone.
func (p *path) stream() *stream {
	if p == nil {
		return nil
	}
	return p.current.Load()
}

// Prefixes returns prefixes as people read them.
func Prefixes(all []netip.Prefix) string {
	texts := make([]string, 0, len(all))
	for _, p := range all {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, " and ")
}

func (p Peer) equal(o Peer) bool { return reflect.DeepEqual(p, o) }

func compare(a, b peer.ClusterID) int { return strings.Compare(string(a), string(b)) }

// routing finds the path of a packet by its destination. It is not changed once it is in use.
type routing struct {
	lengths4, lengths6 []int // of the prefixes
	paths              map[netip.Prefix]*path
}

func newRouting() *routing { return &routing{paths: make(map[netip.Prefix]*path)} }

func (r *routing) add(block netip.Prefix, p *path) {
	lengths := &r.lengths6
	if block.Addr().Is4() {
		lengths = &r.lengths4
	}
	if !slices.Contains(*lengths, block.Bits()) {
		*lengths = append(*lengths, block.Bits())
	}
	r.paths[block] = p
}

// find returns the path of a destination, nil for none.
func (r *routing) find(dst netip.Addr) *path {
	if r == nil {
		return nil
	}
	lengths := r.lengths6
	if dst.Is4() {
		lengths = r.lengths4
	}
	for _, bits := range lengths {
		block, err := dst.Prefix(bits)
		if err != nil {
			continue
		}
		if p := r.paths[block]; p != nil {
			return p
		}
	}
	return nil
}
