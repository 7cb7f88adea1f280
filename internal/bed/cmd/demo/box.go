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
	Status struct {
		Outgoing struct {
			Joined bool `json:"joined"`
		} `json:"outgoing"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

func (fc foreignCluster) reachable() bool {
	for _, c := range fc.Status.Conditions {
		if c.Type == "Reachable" {
			return c.Status == "True"
		}
	}
	return false
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

// joined is the condition that the box consumes the resources of the cluster of that name, which
// answers at that address.
func (x *box) joined(name, address string) func(context.Context) error {
	foreign := x.foreign(name, address)
	return func(ctx context.Context) error {
		if err := foreign(ctx); err != nil {
			return err
		}
		list, err := x.foreignClusters(ctx)
		if err == nil && (len(list) != 1 || !list[0].Status.Outgoing.Joined || !list[0].reachable()) {
			err = fmt.Errorf("its ForeignClusters are %+v", list)
		}
		return err
	}
}

// misses is the condition that the cluster of that name does not answer, and is not given up.
func (x *box) misses(name string) func(context.Context) error {
	foreign := x.foreign(name, "")
	return func(ctx context.Context) error {
		if err := foreign(ctx); err != nil {
			return err
		}
		list, err := x.foreignClusters(ctx)
		if err == nil && (len(list) != 1 || !list[0].Status.Outgoing.Joined || list[0].reachable()) {
			err = fmt.Errorf("its ForeignClusters are %+v", list)
		}
		return err
	}
}

// asked is the condition that somebody waits to be let in.
func (x *box) asked() func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := x.host.Run(ctx, "liqo-agent", "peers", "requests", "-o", "json")
		var requests []struct{}
		if err == nil {
			err = json.Unmarshal([]byte(out), &requests)
		}
		if err == nil && len(requests) == 0 {
			err = errors.New("nobody asks")
		}
		return err
	}
}

// offer is the UID of the one Advertisement on the box.
func (x *box) offer() string {
	ctx, cancel := context.WithTimeout(x.ctx, findDeadline)
	defer cancel()
	body, err := x.kube.Request(ctx, http.MethodGet, "/apis/sharing.liqo.io/v1alpha1/advertisements", "", nil)
	var list struct {
		Items []struct {
			Metadata struct {
				UID string `json:"uid"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err != nil || len(list.Items) != 1 {
		x.tb.Fatalf("%s: its Advertisements: %s %v", x.host.Name, body, err)
	}
	return list.Items[0].Metadata.UID
}

// serves is the condition that so many PeeringRequests are on the box.
func (x *box) serves(want int) func(context.Context) error {
	return func(ctx context.Context) error {
		body, err := x.kube.Request(ctx, http.MethodGet, "/apis/discovery.liqo.io/v1alpha1/peeringrequests", "", nil)
		var list struct {
			Items []struct{} `json:"items"`
		}
		if err == nil {
			err = json.Unmarshal(body, &list)
		}
		if err == nil && len(list.Items) != want {
			err = fmt.Errorf("there are %d PeeringRequests", len(list.Items))
		}
		return err
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
	// kubectl says on standard error that it found nothing, and doctor by its exit code
	// that it has warnings.
	out, err := x.host.Run(ctx, append([]string{"sh", "-c", `"$@" 2>&1 || test "$2 $?" = "doctor 8"`, "sh"}, args...)...)
	if err != nil {
		x.tb.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		fmt.Println(fit("    " + strings.TrimSuffix(line, "\n")))
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

func (d *demo) say(format string, args ...any) {
	for line := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		fmt.Println(wrap(line))
	}
	fmt.Println()
}

func prompt(host string, args ...string) string {
	line := host + "$"
	for _, arg := range args {
		if strings.ContainsAny(arg, " {}\"") {
			arg = "'" + arg + "'"
		}
		line += " " + arg
	}
	return bold(line)
}

// says is the condition that a text has a line with something in it.
func says(text, what string) error {
	if !strings.Contains(text, what) {
		return fmt.Errorf("%q is not in\n%s", what, text)
	}
	return nil
}

// bold emphasizes a text on a terminal.
func bold(s string) string {
	if terminalWidth() == 0 || os.Getenv("NO_COLOR") != "" {
		return s
	}
	return "\x1b[1m" + s + "\x1b[0m"
}

// terminalWidth is how many columns the terminal has that this is printed on, and 0
// when it is none.
func terminalWidth() int {
	size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// fit cuts a line of a table that the terminal is too narrow for: tables that are
// broken cannot be read.
func fit(line string) string {
	width, text := terminalWidth(), []rune(line)
	if width == 0 || len(text) <= width {
		return line
	}
	return string(text[:width-1]) + "…"
}

// wrap breaks a line between words where the terminal ends.
func wrap(line string) string {
	width := terminalWidth()
	if width == 0 || len(line) <= width {
		return line
	}
	var b strings.Builder
	column := 0
	for i, word := range strings.Split(line, " ") {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }
