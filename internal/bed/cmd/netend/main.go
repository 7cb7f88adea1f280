//go:build linux

// Command netend is what runs at the ends of a network that is measured, in the network namespace that it is started in:
//
//	netend pod                      answers traffic until it is asked to end
//	netend stream [flags] TO ...    opens streams to addresses with ports, and prints what came over them, as JSON
//	netend ping [flags] TO          prints how long answers took, in nanoseconds, as JSON
//	netend packets [flags] TO       prints how many packets arrived a second
//	netend engine [flags] PEER ...  connects clusters as the agent does, with its endpoint and its network
//
// The benchmarks use it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"liqo.io/agent/internal/traffic"
	"liqo.io/agent/peer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "netend:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("what is to be run?")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	number := flags.Int("number", 1, "`number` of streams to each address, or of questions")
	length := flags.Int("length", 64, "length of packets in `bytes`")
	settle := flags.Duration("settle", 300*time.Millisecond, "how long streams run before they are measured; 0: until SIGUSR1")
	during := flags.Duration("for", time.Second, "how long is measured")
	id := flags.String("id", "", "`ID` of the cluster of an engine")
	keys := flags.String("keys", "", "`directory` of its key")
	profile := flags.String("profile", "", "write a profile of the processor to this `file`")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if args[0] == "pod" {
		return traffic.Serve(ctx, ":"+port, func(at netip.AddrPort) { fmt.Println("listening at", at) })
	}
	if flags.NArg() == 0 {
		return fmt.Errorf("%s: what with?", args[0])
	}
	var result any
	var err error
	switch to := flags.Arg(0); args[0] {
	case "stream":
		result, err = streams(ctx, *number, *settle, *during, flags.Args())
	case "ping":
		result, err = traffic.Ping(to, *length, *number)
	case "packets":
		result, err = traffic.Packets(to, *length, *during)
	case "engine":
		return runEngine(ctx, peer.ClusterID(*id), *keys, *profile, flags.Args())
	default:
		return fmt.Errorf("%s: not known", args[0])
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// port is where pods answer.
const port = "9999"

func streams(ctx context.Context, number int, settle, during time.Duration, targets []string) (traffic.Result, error) {
	begin := make(chan os.Signal, 1)
	signal.Notify(begin, syscall.SIGUSR1)
	s, err := traffic.Open(ctx, number, targets...)
	if err != nil {
		return traffic.Result{}, err
	}
	defer s.Close()
	fmt.Fprintln(os.Stderr, "writing")
	var settled <-chan time.Time
	if settle > 0 {
		settled = time.After(settle)
	}
	select {
	case <-settled:
	case <-begin:
	case <-ctx.Done():
		return traffic.Result{}, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	return s.Measure(ctx)
}
