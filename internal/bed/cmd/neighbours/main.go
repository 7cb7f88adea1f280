//go:build linux

// Command neighbours is a crowd of boxes that share their capacity, as a process
// of its own on one host of the bed: their calls have to come from there. It
// runs until it is asked to end. The benchmarks use it.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"liqo.io/agent/internal/crowd"
)

func main() {
	size := flag.Int("size", 100, "number of boxes")
	first := flag.String("first", "10.77.16.1", "`address` of the first box")
	skip := flag.Int("skip", 0, "number of boxes in other processes that come before these")
	keys := flag.String("keys", "", "`directory` for their keys, so that they are the same boxes when they start again")
	port := flag.Uint("port", 6447, "port of their endpoints")
	flag.Parse()
	if err := run(*size, *skip, *keys, *first, *port); err != nil {
		fmt.Fprintln(os.Stderr, "neighbours:", err)
		os.Exit(1)
	}
}

// here is the host that the process runs on.
type here struct{}

func (here) Do(fn func() error) error { return fn() }

func run(size, skip int, keys, first string, port uint) error {
	addr, err := netip.ParseAddr(first)
	if err != nil {
		return err
	}
	if port == 0 || port > 65535 {
		return fmt.Errorf("port %d is not between 1 and 65535", port)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c, err := crowd.New(here{}, crowd.Options{
		Size: size, Skip: skip, Keys: keys, First: addr, Service: "_liqo._tcp.local.", Port: uint16(port), Providers: true,
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}
