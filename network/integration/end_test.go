//go:build linux

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/network"
	"liqo.io/agent/network/filter"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// endEnv makes the test program only connect this host's pods with those of a peer, as the settings say that it has.
const endEnv = "LIQO_WIREGUARD_END"

// settings are of an end.
type settings struct {
	ID, Peer    peer.ClusterID
	Fingerprint peer.Fingerprint // of the peer
	At          []netip.AddrPort // the peer
	Keys        string           // the directory of the key and the blocks
	Node        network.Node     // which is the same at both
	Pods        []netip.Prefix   // the addresses here that the peer may reach
}

// end is a cluster whose network is connected with that of a peer.
type end struct {
	settings
	engine *network.Engine
	client *client.Client

	mu        sync.Mutex
	said, why string

	deciding sync.Mutex // of what is wanted of the peer
	left     bool
}

// runEnd connects with the peer until it gets SIGTERM, and is disconnected from it by SIGUSR1.
func runEnd() {
	var e end
	err := json.Unmarshal([]byte(os.Getenv(endEnv)), &e.settings)
	if err == nil {
		err = e.run()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (e *end) run() error {
	key, err := trust.LoadOrCreateKey(e.Keys)
	if err != nil {
		return err
	}
	issuer := trust.NewIssuer(key, func() peer.ClusterID { return e.ID })
	e.client = client.New(client.Config{Issuer: issuer})
	defer e.client.Close()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e.engine = network.New(network.Config{
		Self: func() peer.ClusterID { return e.ID }, Device: device,
		Dial: func(ctx context.Context, id peer.ClusterID) (net.Conn, error) {
			return e.client.Network(ctx, peer.Target{ID: id, Fingerprint: e.Fingerprint, Addrs: e.At})
		},
		Load: e.load, Store: e.store,
		Range:   func() netip.Prefix { return network.DefaultRange },
		Changed: func(peer.ClusterID) { e.grant() }, Logger: logger,
	})
	server := endpoint.NewServer(endpoint.ServerConfig{
		Listen: ":6447", Issuer: issuer, Peers: friends{}, Network: e.engine, Logger: logger,
		Identity: func() peer.Identity {
			return peer.Identity{ClusterID: e.ID, ClusterName: string(e.ID), GuestNamespace: "liqo"}
		},
	})
	leave := make(chan os.Signal, 1)
	signal.Notify(leave, syscall.SIGUSR1)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var work sync.WaitGroup
	defer work.Wait()
	for _, run := range []func(context.Context) error{server.Run, e.engine.Run} {
		work.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				fmt.Println(err)
				os.Exit(1)
			}
		})
	}
	e.engine.SetNode(e.Node)
	known, err := e.load(ctx)
	if err != nil {
		return err
	}
	e.engine.Set(e.spec(known[e.Peer]))
	e.engine.Settled()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-leave:
			e.leave()
		case <-ticker.C:
			e.say()
		}
	}
}

// leave disconnects the two.
func (e *end) leave() {
	e.deciding.Lock()
	defer e.deciding.Unlock()
	e.left = true
	e.engine.Remove(e.Peer)
}

// grant lets all pods here reach all of the peer, and the peer some of them, once there are addresses.
func (e *end) grant() {
	e.deciding.Lock()
	defer e.deciding.Unlock()
	if e.left {
		return // what was known before must not connect them again
	}
	if status, ok := e.engine.Status(e.Peer); ok && len(status.Blocks.Theirs) > 0 {
		e.engine.Set(e.spec(status.Blocks))
	}
}

func (e *end) spec(b network.Blocks) network.Peer {
	if len(b.Theirs) == 0 {
		return network.Peer{ID: e.Peer}
	}
	return network.Peer{
		ID: e.Peer, Out: []filter.Grant{{From: e.Node.Pods, To: b.Theirs}}, In: []filter.Grant{{From: b.Theirs, To: e.Pods}},
	}
}

// say prints how the peer is reached, when that changes.
func (e *end) say() {
	status, ok := e.engine.Status(e.Peer)
	line, why := "away", ""
	if ok {
		why = fmt.Sprint(status.NoWireGuard)
		line = fmt.Sprintf("%s %s %d at %v", status.State, status.Engine, status.MTU, network.Prefixes(status.Blocks.Theirs))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.said != line {
		e.said = line
		fmt.Println("now:", line)
	}
	if e.why != why {
		e.why = why
		fmt.Println("no WireGuard:", why)
	}
}

func (e *end) file() string { return filepath.Join(e.Keys, "blocks") }

func (e *end) load(context.Context) (map[peer.ClusterID]network.Blocks, error) {
	text, err := os.ReadFile(e.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var b network.Blocks
	err = errors.Join(err, json.Unmarshal(text, &b))
	return map[peer.ClusterID]network.Blocks{e.Peer: b}, err
}

func (e *end) store(_ context.Context, _ peer.ClusterID, b network.Blocks) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return os.WriteFile(e.file(), text, 0o600)
}

// friends are the peers of an endpoint that takes everybody.
type friends struct{ endpoint.Peers }

func (friends) Admit(peer.ClusterID, trust.Shown) endpoint.AccessLevel { return endpoint.Known }

func (friends) State(context.Context, endpoint.Caller, wire.Greeting) wire.State { return wire.State{} }

func (friends) Notice(endpoint.Caller) {}
