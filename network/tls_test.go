package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/network/netdev"
	"liqo.io/agent/network/packet"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// friends are the peers of an endpoint that takes everybody.
type friends struct{ endpoint.Peers }

func (friends) Admit(peer.ClusterID, trust.Shown) endpoint.AccessLevel { return endpoint.Known }

// port is a device that hands its packets to a function.
type port struct {
	in     chan []byte
	sink   func(frame []byte)
	once   sync.Once
	closed chan struct{}
}

func (p *port) Read(b []byte) (int, error) {
	select {
	case frame := <-p.in:
		return copy(b, frame), nil
	case <-p.closed:
		return 0, os.ErrClosed
	}
}

func (p *port) Write(frame []byte) (int, error) {
	p.sink(frame)
	return len(frame), nil
}

func (p *port) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *port) Configure(netdev.Config) error { return nil }

func (p *port) Watch(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

// joined are two engines that are connected by the endpoint of one of them.
type joined struct {
	engines [2]*Engine
	ports   [2]*port
}

// join connects two engines over TLS. Each gets a sink for what arrives there.
func join(t testing.TB, sinks ...func(frame []byte)) *joined {
	boxes := [2]*endpointtest.Box{endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)}
	j := new(joined)
	var targets [2]peer.Target
	for i, box := range boxes {
		c := client.New(client.Config{Issuer: box.Issuer, Timeout: endpointtest.Hang})
		t.Cleanup(c.Close)
		j.ports[i] = &port{in: make(chan []byte), sink: sinks[i], closed: make(chan struct{})}
		e := New(Config{
			Self: func() peer.ClusterID { return box.Identity.ClusterID }, Device: "liqo0",
			Dial: func(ctx context.Context, _ peer.ClusterID) (net.Conn, error) {
				if i == 1 { // which would dial, too, if the other one takes long, and one stream replace the other
					return nil, errors.New("waits for the other one")
				}
				return c.Network(ctx, targets[1-i])
			},
			Load:    func(context.Context) (map[peer.ClusterID]Blocks, error) { return nil, nil },
			Store:   func(context.Context, peer.ClusterID, Blocks) error { return nil },
			Range:   func() netip.Prefix { return DefaultRange },
			Changed: func(peer.ClusterID) {},
			Logger:  slog.New(slog.DiscardHandler),
		})
		e.host = newMachine().host()
		e.host.device = func(string, int) (Device, error) { return j.ports[i], nil }
		j.engines[i] = e
		s := endpoint.NewServer(endpoint.ServerConfig{
			Listen: "127.0.0.1:0", Issuer: box.Issuer, Identity: box.Identify, Logger: box.Logger(), Peers: friends{}, Network: e,
		})
		if err := s.Listen(context.Background()); err != nil {
			t.Fatal(err)
		}
		targets[i] = peer.Target{
			ID: box.Identity.ClusterID, Fingerprint: box.Key.Fingerprint(),
			Addrs: endpointtest.Addrs(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Port())),
		}
		endpointtest.Start(t, s)
	}
	for i, e := range j.engines {
		e.SetNode(k3s)
		e.Set(Peer{ID: targets[1-i].ID})
		e.Settled()
		endpointtest.Start(t, e)
	}
	endpointtest.Eventually(t, "connect", func() bool { return j.status(0).State == Connected && j.status(1).State == Connected })
	return j
}

func (j *joined) status(i int) Status {
	status, _ := j.engines[i].Status(j.engines[1-i].cfg.Self())
	return status
}

// addresses returns source and destination of packets that i sends.
func (j *joined) addresses(i int) (src, dst netip.Addr) {
	b := j.status(i).Blocks
	return b.Ours[0].Addr().Next(), b.Theirs[0].Addr().Next()
}

// Large and small packets go both ways over a real connection, all of them and in order.
func TestOverTLS(t *testing.T) {
	const count, window = 600, 4 // of the largest, as many as fit into the queue
	type way struct {
		frames  [][]byte
		next    int
		credits chan struct{}
	}
	var ways [2]way
	sinks := make([]func([]byte), 2)
	for i := range ways {
		w := &ways[i]
		w.credits = make(chan struct{}, window)
		sinks[1-i] = func(frame []byte) { // on the goroutine of one stream
			want := w.frames[w.next%len(w.frames)]
			if got := binary.BigEndian.Uint32(frame[packet.HeaderLen+40:]); int(got) != w.next || len(frame) != len(want) {
				t.Errorf("packet %d of %d bytes instead of %d of %d", got, len(frame), w.next, len(want))
			}
			w.next++
			<-w.credits
		}
	}
	j := join(t, sinks...)
	var sending sync.WaitGroup
	for i := range ways {
		w := &ways[i]
		src, dst := j.addresses(i)
		for _, n := range []int{65535 - 40, 4, 1400, 30_000, 4} {
			w.frames = append(w.frames, superpacket(src, dst, n))
		}
		sending.Go(func() {
			for n := range count {
				frame := bytes.Clone(w.frames[n%len(w.frames)])
				binary.BigEndian.PutUint32(frame[packet.HeaderLen+40:], uint32(n))
				w.credits <- struct{}{}
				j.ports[i].in <- frame
			}
		})
	}
	sending.Wait()
	for i := range ways {
		endpointtest.Eventually(t, "arrive", func() bool { // and be counted, which is after they are sent
			return j.status(1-i).Counters.PacketsIn == count && j.status(i).Counters.PacketsOut == count
		})
		out, in := j.status(i).Counters, j.status(1-i).Counters
		if out.BytesOut != in.BytesIn || len(out.Dropped)+len(in.Dropped) != 0 {
			t.Errorf("%+v, %+v", out, in)
		}
	}
	if r := j.status(0).RTT; r <= 0 || r > time.Minute {
		t.Errorf("it takes %s", r)
	}
}

// A packet that nothing is under way before does not wait for another goroutine, and one that comes while the peer takes
// nothing never keeps those to others waiting.
func TestNothingUnderWay(t *testing.T) {
	stuck := make(chan struct{})
	arrived := make(chan struct{}, 1)
	j := join(t, func([]byte) {}, func([]byte) {
		select {
		case arrived <- struct{}{}:
		default:
			<-stuck
		}
	})
	var end sync.Once
	defer end.Do(func() { close(stuck) })
	src, dst := j.addresses(0)
	small := superpacket(src, dst, 64)
	q := j.engines[0].path(j.engines[1].cfg.Self()).current.Load().queue
	queued := func() int {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.most
	}
	endpointtest.Eventually(t, "be sent at once", func() bool {
		q.trim() // forgets what waited before
		j.ports[0].in <- small
		<-arrived
		return queued() == 0
	})
	// Now nobody takes anything. The device is read on all the same.
	large := superpacket(src, dst, 1400)
	endpointtest.Eventually(t, "be dropped", func() bool {
		for range 100 {
			j.ports[0].in <- large
		}
		return j.status(0).Counters.Dropped[dropNames[dropFull]] > 0
	})
	end.Do(func() { close(stuck) })
}

// BenchmarkPackets is a packet over TLS on loopback, from one device to the other, with
// both engines in this process.
func BenchmarkPackets(b *testing.B) {
	for _, data := range []int{65535 - 40, 1400, 60} {
		b.Run(fmt.Sprint(data+40), func(b *testing.B) {
			window := min(64, 256<<10/data)
			credits := make(chan struct{}, window)
			j := join(b, func([]byte) {}, func([]byte) { <-credits })
			src, dst := j.addresses(0)
			frame := superpacket(src, dst, data)
			for range 1000 { // buffers grow
				credits <- struct{}{}
				j.ports[0].in <- frame
			}
			b.SetBytes(int64(data + 40))
			b.ReportAllocs()
			for b.Loop() {
				credits <- struct{}{}
				j.ports[0].in <- frame
			}
			if c := j.status(0).Counters; len(c.Dropped) > 0 {
				b.Errorf("%+v", c)
			}
		})
	}
}
