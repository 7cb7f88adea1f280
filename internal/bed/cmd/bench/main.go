//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"liqo.io/agent/internal/bed"
)

var (
	plots, profiles string // directories
	most            int    // of a ladder; 0: no limit
	soakFor         time.Duration
	soakFaster      time.Duration // how many times as frequent checks and losses are as by default
)

func main() {
	only := flag.String("only", "", "run the scenarios whose name matches this regular `expression`")
	flag.StringVar(&plots, "plots", "", "draw what the scenario network and those of -scale measure in this `directory`, as SVG")
	flag.IntVar(&most, "most", 0, "with -scale, leave out larger `numbers`")
	scaling := flag.Bool("scale", false, "run the scenarios scale-... in place of the others")
	flag.StringVar(&profiles, "profile", "", "write processor profiles of the network's engines, and of agents at rest with -scale, in this `directory`")
	flag.DurationVar(&soakFor, "soak", 0, "run scenario soak in place of the others, in which peers come and go for so `long`")
	faster := flag.Int("faster", 15, "with -soak, divide the default intervals by this `number`, from 1 to 15")
	flag.Parse()
	if *faster < 1 || *faster > 15 {
		fmt.Fprintln(os.Stderr, "bench: -faster must be from 1 to 15")
		os.Exit(2)
	}
	soakFaster = time.Duration(*faster)
	pattern, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: -only:", err)
		os.Exit(2)
	}
	bed.Enter()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	all := scenarios()
	switch {
	case *scaling:
		all = scales()
	case soakFor > 0:
		all = []scenario{{"soak", measureSoak}}
	}
	os.Exit(run(ctx, all, pattern))
}

// scenario measures something on a bed of its own.
type scenario struct {
	name string
	run  func(r *scenarioRun)
}

func scenarios() []scenario {
	return []scenario{
		{"binary", measureBinary},
		{"start", measureStart},
		{"meet", measureMeeting},
		{"crowd", measureCrowd},
		{"crowd-lossy", measureLossyCrowd},
		{"crowd-hasty", measureHastyCrowd},
		{"neighbours", measureNeighbours},
		{"idle", measureIdle},
		{"peering", measurePeering},
		{"joined", measureJoined},
		{"joined-nodes", measureJoinedNodes},
		{"sharing-idle", measureUnused},
		{"sharing", measureSharing},
		{"sharing-burst", measureBurst},
		{"sharing-peers", measureSharingPeers},
		{"storage", measureStorage},
		{"domains", measureDomains},
		{"rfc6762", measureRules},
		{"network", measureNetwork},
		{"network-link", measureNetworkLink},
		{"network-many", measureNetworkMany},
		{"network-joined", measureNetworkJoined},
		{"network-binary", measureNetworkBinary},
	}
}

// row is one line of the table.
type row struct{ what, target, measured, how string }

// scenarioRun is one scenario under way.
type scenarioRun struct {
	bed.TB
	name string
	rows []row
}

// add adds a line to the table and shows it at once.
func (r *scenarioRun) add(what, target, measured, how string) {
	r.rows = append(r.rows, row{what, target, measured, how})
	r.Logf("  %s: %s (wanted: %s; %s)", what, measured, target, how)
}

func run(ctx context.Context, all []scenario, pattern *regexp.Regexp) int {
	var rows []row
	failed := false
	for _, s := range all {
		if !pattern.MatchString(s.name) || ctx.Err() != nil {
			continue
		}
		fmt.Printf("== %s\n", s.name)
		began := time.Now()
		var r *scenarioRun
		// The bed must outlive an interruption, to be taken down in order.
		err := bed.Script(ctx, s.name, os.Stdout, func(tb bed.TB) {
			r = &scenarioRun{TB: tb, name: s.name}
			s.run(r)
		})
		if r != nil {
			rows = append(rows, r.rows...)
		}
		if err != nil {
			failed = true
			rows = append(rows, row{s.name, "", "FAILED", strings.SplitN(err.Error(), "\n", 2)[0]})
		}
		fmt.Printf("   took %v\n", time.Since(began).Round(time.Second))
	}
	fmt.Printf("\n%s, %s/%s, %d cores, %s\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| what\t| wanted\t| measured\t| how\t|")
	fmt.Fprintln(w, "| ---\t| ---\t| ---\t| ---\t|")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s\t| %s\t| %s\t| %s\t|\n", r.what, r.target, r.measured, r.how)
	}
	if err := w.Flush(); err != nil || failed || ctx.Err() != nil {
		return 1
	}
	return 0
}

// spread is a set of measured durations.
type spread []time.Duration

// String gives the median and, in brackets, the smallest and largest.
func (s spread) String() string {
	if len(s) == 0 {
		return "never"
	}
	sorted := slices.Sorted(slices.Values(s))
	return fmt.Sprintf("%s [%s..%s]", short(sorted[len(sorted)/2]), short(sorted[0]), short(sorted[len(sorted)-1]))
}

// tail gives the median, the 95th percentile and the largest.
func (s spread) tail() string {
	if len(s) == 0 {
		return "never"
	}
	sorted := slices.Sorted(slices.Values(s))
	return fmt.Sprintf("%s, 95 %% within %s, all within %s", short(sorted[len(sorted)/2]), short(sorted[len(sorted)*95/100]), short(sorted[len(sorted)-1]))
}

func short(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func mb(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
