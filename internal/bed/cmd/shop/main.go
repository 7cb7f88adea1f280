//go:build linux

// Command shop is an application of several parts, in the image of the bed's pods:
//
//	shop store                   keeps counters, and is asked for them as Redis is
//	shop web [STORE]             tells by HTTP who answers, and which visit this is, by the store
//	shop ask [-count N] URL ...  makes HTTP requests, and prints the answers
//	shop look NAME ...           prints what DNS has for names: addresses, for _PORT._PROTOCOL.NAME the targets, for an address its names
//	shop rows FILE [TEXT ...]    adds rows to an SQLite database, and prints all that it has
//	shop api METHOD PATH [BODY]  asks the API server of the cluster with the pod's service account token, and prints the answer
//
// Names are resolved as the pod's /etc/resolv.conf says.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	storePort = ":6379"
	webPort   = ":8080"
	// patience is how long an answer is waited for. A resolver alone waits for five seconds until it asks again.
	patience = 8 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("name a part: store, web, ask, look, rows or api")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	count := flags.Int("count", 1, "`number` of requests")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch {
	case args[0] == "store" && flags.NArg() == 0:
		return keep(ctx)
	case args[0] == "web" && flags.NArg() <= 1:
		return serve(ctx, flags.Arg(0))
	case args[0] == "ask" && flags.NArg() > 0:
		return ask(ctx, flags.Args(), *count)
	case args[0] == "look" && flags.NArg() > 0:
		look(ctx, flags.Args())
		return nil
	case args[0] == "rows" && flags.NArg() > 0:
		return rows(ctx, flags.Arg(0), flags.Args()[1:])
	}
	if n := flags.NArg(); args[0] == "api" && (n == 2 || n == 3) {
		return callAPI(ctx, flags.Arg(0), flags.Arg(1), flags.Arg(2))
	}
	return fmt.Errorf("%v are no arguments: see the comment of this program", args)
}
