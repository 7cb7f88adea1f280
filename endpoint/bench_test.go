package endpoint

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// The server runs in a process of its own during benchmarks, so that the CPU
// time of the two sides can be told apart.
const benchServerVariable = "ENDPOINT_BENCH_STATE_DIR"

// serveForBenchmark serves until the process is interrupted, if it was started
// for that.
func serveForBenchmark() bool {
	dir := os.Getenv(benchServerVariable)
	if dir == "" {
		return false
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := func() error {
		key, err := trust.LoadOrCreateKey(dir)
		if err != nil {
			return err
		}
		s := NewServer(ServerConfig{
			Listen: "127.0.0.1:0", MaxConns: 16 << 10, Logger: slog.New(slog.DiscardHandler),
			Issuer: trust.NewIssuer(key, func() peer.ClusterID { return endpointtest.IDA }),
			Identity: func() peer.Identity {
				return peer.Identity{ClusterID: endpointtest.IDA, ClusterName: "bench", GuestNamespace: "liqo"}
			},
		})
		withoutRates(s)
		if err := s.Listen(ctx); err != nil {
			return err
		}
		fmt.Println(s.Port())
		return s.Run(ctx)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

type benchServer struct {
	cmd    *exec.Cmd
	target peer.Target
}

func startBenchServer(b *testing.B) *benchServer {
	b.Helper()
	dir := b.TempDir()
	key, err := trust.LoadOrCreateKey(dir)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchServerVariable+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	var port uint16
	if _, err := fmt.Fscan(bufio.NewReader(out), &port); err != nil {
		b.Fatal(err)
	}
	addr := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	return &benchServer{cmd, peer.Target{ID: endpointtest.IDA, Fingerprint: key.Fingerprint(), Addrs: []netip.AddrPort{addr}}}
}

// stop ends the server and returns the CPU time it used.
func (s *benchServer) stop(b *testing.B) time.Duration {
	b.Helper()
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		b.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		b.Fatal(err)
	}
	return s.cmd.ProcessState.UserTime() + s.cmd.ProcessState.SystemTime()
}

// BenchmarkCheck is one reachability check of one peer. The server's figure
// includes its start.
func BenchmarkCheck(b *testing.B) {
	for _, full := range []bool{true, false} {
		b.Run(map[bool]string{true: "full", false: "resumed"}[full], func(b *testing.B) {
			s := startBenchServer(b)
			c := client.New(client.Config{})
			b.ReportAllocs()
			before := endpointtest.OwnCPU(b)
			for b.Loop() {
				if full {
					c.Forget(s.target.Fingerprint)
				}
				if _, err := c.Identify(context.Background(), s.target); err != nil {
					b.Fatal(err)
				}
			}
			client := endpointtest.OwnCPU(b) - before
			b.ReportMetric(float64(client.Microseconds())/float64(b.N), "client-cpu-us/op")
			b.ReportMetric(float64(s.stop(b).Microseconds())/float64(b.N), "server-cpu-us/op")
		})
	}
}

// BenchmarkKeyExchange is what the choice of the key exchange costs.
func BenchmarkKeyExchange(b *testing.B) {
	for name, curves := range map[string][]tls.CurveID{"X25519": {tls.X25519}, "P-256": {tls.CurveP256}, "X25519MLKEM768": {tls.X25519MLKEM768}, "default": nil} {
		b.Run(name, func(b *testing.B) {
			s := startBenchServer(b)
			before := endpointtest.OwnCPU(b)
			for b.Loop() {
				conn, err := tls.Dial("tcp", s.target.Addrs[0].String(), &tls.Config{InsecureSkipVerify: true, CurvePreferences: curves})
				if err != nil {
					b.Fatal(err)
				}
				conn.Close()
			}
			client := endpointtest.OwnCPU(b) - before
			b.ReportMetric(float64(client.Microseconds())/float64(b.N), "client-cpu-us/op")
			b.ReportMetric(float64(s.stop(b).Microseconds())/float64(b.N), "server-cpu-us/op")
		})
	}
}

// BenchmarkThousandFirstChecks is 1,000 peers met for the first time, 32 at a
// time.
func BenchmarkThousandFirstChecks(b *testing.B) {
	s := startBenchServer(b)
	b.ReportAllocs()
	for b.Loop() {
		c := client.New(client.Config{})
		work := make(chan struct{})
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for range work {
					learn := s.target
					learn.Fingerprint = peer.Fingerprint{}
					if _, err := c.Identify(context.Background(), learn); err != nil {
						b.Error(err)
					}
				}
			})
		}
		for range 1000 {
			work <- struct{}{}
		}
		close(work)
		wg.Wait()
	}
	s.stop(b)
}

// BenchmarkIdleConnection is what the alternative to closing costs: the memory
// of both ends of one open connection.
func BenchmarkIdleConnection(b *testing.B) {
	Box := endpointtest.New(b, endpointtest.IDA)
	s := serve(b, Box, "127.0.0.1:0", func(s *Server) { s.guard.Limit, s.guard.PerSource = 1<<20, 1<<20 })
	const n = 200
	var conns []*tls.Conn
	before := endpointtest.InUse()
	for range n {
		c, err := tls.Dial("tcp", at(s, "127.0.0.1").String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			b.Fatal(err)
		}
		if resp, err := getIDs(c); err != nil || resp.StatusCode != 200 {
			b.Fatal(err)
		}
		conns = append(conns, c)
	}
	held := endpointtest.InUse() - before
	for b.Loop() { // memory is measured, not time
	}
	b.ReportMetric(float64(held)/n, "B/connection")
	for _, c := range conns {
		c.Close()
	}
}
