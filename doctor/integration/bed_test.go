//go:build linux

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/doctor"
	"liqo.io/agent/internal/bed"
)

func TestMain(m *testing.M) { bed.Main(m) }

const (
	configPath = "/etc/liqo-agent/liqo-agent.toml"
	stateDir   = "/var/lib/liqo-agent"
	// soon bounds what should take a moment on a machine that is shared.
	soon = bed.Hang
)

// quiet works without an API server, and checks often.
const quiet = "[cluster]\nkubeconfig = \"none\"\n[discovery]\ncheck_interval = \"1s\"\n"

// box is a host with an agent.
type box struct {
	t     *testing.T
	host  *bed.Host
	bin   string
	agent *bed.Process
}

func newBox(t *testing.T, b *bed.Bed, name, addr, config string) *box {
	t.Helper()
	x := &box{t: t, host: b.AddHost(name, addr+"/24"), bin: bed.Binary(t, "liqo-agent")}
	x.host.WriteFile(configPath, config)
	return x
}

// start starts the agent and waits until its socket answers.
func (x *box) start() *box {
	x.t.Helper()
	x.agent = x.host.Start(bed.Cmd{Name: "liqo-agent", Args: []string{x.bin, "run"}})
	x.eventually("the agent answers", func() error { _, err := x.run("log", "level"); return err })
	return x
}

func (x *box) stop() {
	x.t.Helper()
	if err := x.agent.Stop(); err != nil {
		x.t.Fatal(err)
	}
}

func (x *box) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	return x.host.Run(ctx, append([]string{x.bin}, args...)...)
}

func (x *box) must(args ...string) string {
	x.t.Helper()
	out, err := x.run(args...)
	if err != nil {
		x.t.Fatalf("%s: %v: %v\n%s", x.host.Name, args, err, out)
	}
	return out
}

// shell runs a command of the system on the box.
func (x *box) shell(args ...string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	if out, err := x.host.Run(ctx, args...); err != nil {
		x.t.Fatalf("%s: %v: %v\n%s", x.host.Name, args, err, out)
	}
}

// nft loads rules into the box's namespace.
func (x *box) nft(rules string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	if out, err := x.host.RunInput(ctx, rules, "nft", "-f", "-"); err != nil {
		x.t.Fatalf("%s: nft: %v\n%s", x.host.Name, err, out)
	}
}

func (x *box) eventually(what string, condition func() error) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	if err := bed.Poll(ctx, condition); err != nil {
		x.t.Fatalf("%s: %s: %v", x.host.Name, what, err)
	}
}

func (x *box) status() control.Status {
	x.t.Helper()
	var st control.Status
	if err := json.Unmarshal([]byte(x.must("status", "-o", "json")), &st); err != nil {
		x.t.Fatal(err)
	}
	return st
}

// meet waits until x knows the others and they are there, and trusts them.
func (x *box) meet(others ...*box) {
	x.t.Helper()
	for _, o := range others {
		id := o.status().Identity.ClusterID
		x.eventually("sees "+o.host.Name, func() error {
			out, err := x.run("peers", "show", id, "-o", "json")
			if err == nil && !strings.Contains(out, `"phase": "Present"`) {
				err = fmt.Errorf("it is not there: %s", out)
			}
			return err
		})
		x.must("peers", "trust", id, "--yes")
	}
}

// definitions installs the custom resources without an agent, and waits until they are served.
func (x *box) definitions(ctx context.Context, kube *bed.Kube) {
	x.t.Helper()
	if err := kube.Apply(ctx, x.must("crds")); err != nil {
		x.t.Fatal(err)
	}
	if out, err := kube.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout="+soon.String(), "crd", "--all"); err != nil {
		x.t.Fatalf("%v\n%s", err, out)
	}
}

// report runs the doctor, and again if the machine was too busy for it.
func (x *box) report(prefix ...string) doctor.Report {
	x.t.Helper()
	return x.until(hurried, prefix...)
}

// finds is report, and fails the test unless that has exactly the findings that codes name, and each of them says why it matters
// and what to do. On a machine that stands still for seconds it may find more, or less, so it is run again before that counts.
func (x *box) finds(codes ...string) doctor.Report {
	x.t.Helper()
	slices.Sort(codes)
	r := x.until(func(r doctor.Report) string {
		why := hurried(r)
		if found := found(r); why == "" && !slices.Equal(found, codes) {
			why = fmt.Sprintf("found %v, want %v", found, codes)
		}
		return why
	})
	expect(x.t, r, codes...)
	return r
}

// until runs the doctor until there is no reason against its report, up to five times.
func (x *box) until(not func(doctor.Report) string, prefix ...string) (report doctor.Report) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 2*soon)
	defer cancel()
	for range 5 {
		// The exit code says what the report does.
		out, err := x.host.Run(ctx, slices.Concat(prefix, []string{x.bin, "doctor", "-o", "json"})...)
		report = doctor.Report{}
		if json.Unmarshal([]byte(out), &report) != nil {
			x.t.Fatalf("%s: doctor: %v\n%s", x.host.Name, err, out)
		}
		why := not(report)
		if why == "" {
			break
		}
		x.t.Logf("%s: again: %s", x.host.Name, why)
	}
	return report
}

// hurried returns what a report has, or lacks, because the machine is busy; "" for nothing.
func hurried(r doctor.Report) string {
	for i, c := range doctor.Checks() {
		if took := time.Duration(r.Checks[i].Millis) * time.Millisecond; took >= c.Limit {
			return fmt.Sprintf("the check %s took %v", c.ID, took)
		}
		for _, f := range r.Checks[i].Findings {
			if f.Code == "api-slow" || f.Code == "disk-slow" || strings.Contains(f.What, "run it again") {
				return f.What
			}
		}
	}
	return ""
}

// found returns the sorted codes of what somebody should do something about.
func found(r doctor.Report) []string {
	var out []string
	for _, c := range r.Checks {
		for _, f := range c.Findings {
			if f.Status == doctor.Warning || f.Status == doctor.Error {
				out = append(out, f.Code)
			}
		}
	}
	slices.Sort(out)
	return out
}

// expect fails the test unless the report has exactly the findings that codes name, sorted, and each of them says why it matters and
// what to do.
func expect(t *testing.T, r doctor.Report, codes ...string) {
	t.Helper()
	for _, c := range r.Checks {
		for _, f := range c.Findings {
			if f.Status != doctor.Warning && f.Status != doctor.Error {
				continue
			}
			t.Logf("%s: %s %s: %s", c.Check, f.Status, f.Code, f.What)
			if f.What == "" || f.Why == "" || len(f.Do) == 0 || f.Code == "" {
				t.Errorf("%s: %+v: something is missing", c.Check, f)
			}
		}
	}
	if found := found(r); !slices.Equal(found, codes) {
		text, _ := json.MarshalIndent(r, "", " ")
		t.Errorf("found %v, want %v\n%s", found, codes, text)
	}
}

// says fails the test unless a check says something.
func says(t *testing.T, r doctor.Report, check, text string) {
	t.Helper()
	for _, c := range r.Checks {
		if c.Check == check {
			for _, f := range c.Findings {
				if strings.Contains(f.What, text) {
					return
				}
			}
			t.Errorf("%s says %+v, want %q", check, c.Findings, text)
		}
	}
}

// copyState copies the state of one box to another, but the files that are named.
func copyState(t *testing.T, from, to *box, but ...string) {
	t.Helper()
	entries, err := os.ReadDir(from.host.Path(stateDir))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(to.host.Path(stateDir), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if slices.Contains(but, e.Name()) || !e.Type().IsRegular() {
			continue
		}
		raw, err := os.ReadFile(from.host.Path(filepath.Join(stateDir, e.Name())))
		if err == nil {
			err = os.WriteFile(to.host.Path(filepath.Join(stateDir, e.Name())), raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
