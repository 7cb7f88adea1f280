//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/network"
	"liqo.io/agent/network/filter"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// node is the network of a K3s node, which is the same everywhere.
var node = network.Node{Pods: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24")}, Host: []netip.Addr{netip.MustParseAddr("10.42.0.1")}}

// end is a cluster whose network is connected with that of peers.
type end struct {
	peers  map[peer.ClusterID]peer.Target
	engine *network.Engine
	client *client.Client

	mu   sync.Mutex
	said map[peer.ClusterID]string
}

// runEngine connects with peers, each given as ID=FINGERPRINT@ADDRESS:PORT, once it gets SIGUSR1, and prints a line for each
// that is connected.
func runEngine(ctx context.Context, id peer.ClusterID, keys, profile string, peers []string) error {
	e := &end{peers: make(map[peer.ClusterID]peer.Target), said: make(map[peer.ClusterID]string)}
	for _, p := range peers {
		target, err := parsePeer(p)
		if err != nil {
			return err
		}
		e.peers[target.ID] = target
	}
	key, err := trust.LoadOrCreateKey(keys)
	if err != nil {
		return err
	}
	if profile != "" {
		out, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer func() { _ = out.Close() }()
		if err := pprof.StartCPUProfile(out); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	issuer := trust.NewIssuer(key, func() peer.ClusterID { return id })
	e.client = client.New(client.Config{Issuer: issuer})
	defer e.client.Close()
	e.engine = network.New(network.Config{
		Self: func() peer.ClusterID { return id }, Device: "liqo0", Dial: e.dial,
		Load:    func(context.Context) (map[peer.ClusterID]network.Blocks, error) { return nil, nil },
		Store:   func(context.Context, peer.ClusterID, network.Blocks) error { return nil },
		Range:   func() netip.Prefix { return network.DefaultRange },
		Changed: e.changed, Logger: logger,
	})
	server := endpoint.NewServer(endpoint.ServerConfig{
		Listen: ":6447", Issuer: issuer, Peers: e, Network: e.engine, Logger: logger,
		Identity: func() peer.Identity {
			return peer.Identity{ClusterID: id, ClusterName: string(id), GuestNamespace: "liqo"}
		},
	})
	begin := make(chan os.Signal, 1)
	signal.Notify(begin, syscall.SIGUSR1)
	e.engine.SetNode(node)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	defer work.Wait()
	for _, run := range []func(context.Context) error{server.Run, e.engine.Run} {
		work.Go(func() { cancel(run(ctx)) })
	}
	debug.FreeOSMemory()
	fmt.Println("idle")
	select {
	case <-begin:
	case <-ctx.Done():
	}
	for id := range e.peers {
		e.engine.Set(network.Peer{ID: id})
	}
	e.engine.Settled()
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func parsePeer(s string) (peer.Target, error) {
	id, rest, _ := strings.Cut(s, "=")
	fingerprint, at, _ := strings.Cut(rest, "@")
	target := peer.Target{ID: peer.ClusterID(id)}
	addr, err := netip.ParseAddrPort(at)
	target.Addrs = []netip.AddrPort{addr}
	if err := errors.Join(err, target.Fingerprint.UnmarshalText([]byte(fingerprint))); err != nil {
		return target, fmt.Errorf("%q is not ID=FINGERPRINT@ADDRESS:PORT: %w", s, err)
	}
	return target, nil
}

func (e *end) dial(ctx context.Context, id peer.ClusterID) (net.Conn, error) {
	return e.client.Network(ctx, e.peers[id])
}

// changed lets all pods of a peer and all of ours reach each other, once there are addresses.
func (e *end) changed(id peer.ClusterID) {
	status, ok := e.engine.Status(id)
	if !ok || len(status.Blocks.Theirs) == 0 {
		return
	}
	e.engine.Set(network.Peer{
		ID: id, Out: []filter.Grant{{From: node.Pods, To: status.Blocks.Theirs}}, In: []filter.Grant{{From: status.Blocks.Theirs, To: node.Pods}},
	})
	line := fmt.Sprintf("%s %s at %s", status.State, id, status.Blocks.Theirs[0])
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.said[id] != line {
		e.said[id] = line
		fmt.Println(line)
	}
}

// Admit implements endpoint.Peers, as Ask and the others, which nobody calls here.
func (e *end) Admit(id peer.ClusterID, shown trust.Shown) endpoint.AccessLevel {
	if p, ok := e.peers[id]; ok && p.Fingerprint == shown.Fingerprint {
		return endpoint.Known
	}
	return endpoint.Blocked
}

// Ask implements endpoint.Peers.
func (*end) Ask(context.Context, endpoint.Caller, wire.Ask) wire.Answer { return wire.Answer{} }

// State implements endpoint.Peers.
func (*end) State(context.Context, endpoint.Caller, wire.Greeting) wire.State { return wire.State{} }

// Withdraw implements endpoint.Peers.
func (*end) Withdraw(context.Context, endpoint.Caller, wire.Withdrawal) error { return nil }

// Notice implements endpoint.Peers.
func (*end) Notice(endpoint.Caller) {}
