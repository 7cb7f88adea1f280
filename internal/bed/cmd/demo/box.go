//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
)

const foreignClusters = "/apis/discovery.liqo.io/v1alpha1/foreignclusters"

// box is one of the two hosts with what runs on it.
type box struct {
	host  *bed.Host
	kube  *bed.Kube
	agent *bed.Process
	tb    bed.TB
	ctx   context.Context
}

func (x *box) startAgent() {
	fmt.Println(prompt(x.host.Name, "liqo-agent", "run", "&"))
	x.agent = x.host.Start(bed.Cmd{
		Args: []string{"liqo-agent", "run"},
		Env:  []string{"LIQO_AGENT_DISCOVERY_CHECK_INTERVAL=" + checkInterval},
	})
}

// foreignCluster is what the demo reads of one.
type foreignCluster struct {
	Spec struct {
		ClusterIdentity struct {
			ClusterName string `json:"clusterName"`
		} `json:"clusterIdentity"`
		AuthURL string `json:"authUrl"`
	} `json:"spec"`
}

func (x *box) foreignClusters(ctx context.Context) ([]foreignCluster, error) {
	b, err := x.kube.Request(ctx, http.MethodGet, foreignClusters, "", nil)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []foreignCluster `json:"items"`
	}
	return list.Items, json.Unmarshal(b, &list)
}

// foreign is the condition that the box has exactly one ForeignCluster, of that name and with that
// address in its URL.
func (x *box) foreign(name, address string) func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := x.foreignClusters(ctx)
		if err != nil {
			return err
		}
		if len(list) != 1 || list[0].Spec.ClusterIdentity.ClusterName != name || !strings.Contains(list[0].Spec.AuthURL, address) {
			return fmt.Errorf("its ForeignClusters are %+v", list)
		}
		return nil
	}
}

// alone is the condition that the box has no ForeignCluster.
func (x *box) alone() func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := x.foreignClusters(ctx)
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("its ForeignClusters are %+v", list)
		}
		return err
	}
}

// announced is the condition that the box's agent has announced itself on its links.
func (x *box) announced() func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := x.host.Run(ctx, "liqo-agent", "status", "-o", "json")
		if err != nil {
			return err
		}
		var status struct {
			Advertisement struct {
				Established bool `json:"established"`
			} `json:"advertisement"`
		}
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			return err
		}
		if !status.Advertisement.Established {
			return fmt.Errorf("its status is\n%s", out)
		}
		return nil
	}
}

// remembers is the condition that the box's history of its peers tells of something.
func (x *box) remembers(what string) func(context.Context) error {
	return func(ctx context.Context) error {
		history, err := x.host.Run(ctx, "liqo-agent", "peers", "history")
		if err == nil && !strings.Contains(history, what) {
			err = fmt.Errorf("its history is\n%s", history)
		}
		return err
	}
}

// wait waits for a condition; if it does not come true in time, the demo fails.
func (x *box) wait(deadline time.Duration, what string, condition func(context.Context) error) {
	ctx, cancel := context.WithTimeout(x.ctx, deadline)
	defer cancel()
	ended := errors.New("its agent has ended")
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if err := bed.Poll(ctx, func() error {
		select {
		case <-x.agent.Done():
			stop(ended)
		default:
		}
		return condition(ctx)
	}); err != nil {
		x.tb.Fatalf("\n%s: this did not happen within %s: %v", what, deadline, err)
	}
}

// show runs a command on the box and prints it with its output, as a person at its console would see
// them.
func (x *box) show(args ...string) {
	fmt.Println(prompt(x.host.Name, args...))
	ctx, cancel := context.WithTimeout(x.ctx, findDeadline)
	defer cancel()
	// kubectl says on standard error that it found nothing.
	out, err := x.host.Run(ctx, append([]string{"sh", "-c", `exec "$@" 2>&1`, "sh"}, args...)...)
	if err != nil {
		x.tb.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		fmt.Print("    ", line)
	}
	fmt.Println()
}

func (d *demo) chapter(title string) {
	if err := d.ctx.Err(); err != nil {
		d.tb.Fatalf("%v", context.Cause(d.ctx))
	}
	fmt.Println("\n" + bold("== "+title))
	fmt.Println()
}

func (d *demo) say(format string, args ...any) { fmt.Printf(format+"\n\n", args...) }

func prompt(host string, args ...string) string {
	return bold(host + "$ " + strings.Join(args, " "))
}

// bold emphasizes a text on a terminal.
func bold(s string) string {
	if _, err := unix.IoctlGetTermios(int(os.Stdout.Fd()), unix.TCGETS); err != nil || os.Getenv("NO_COLOR") != "" {
		return s
	}
	return "\x1b[1m" + s + "\x1b[0m"
}

func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }
