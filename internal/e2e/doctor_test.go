//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/doctor"
)

// doctor runs the doctor on the box and returns its report.
func (x *box) doctor(args ...string) doctor.Report {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 2*soon)
	defer cancel()
	// Its exit code says what it found, and so does the report.
	out, err := x.host.Run(ctx, append([]string{x.bin, "doctor", "-o", "json"}, args...)...)
	var report doctor.Report
	if json.Unmarshal([]byte(out), &report) != nil {
		x.t.Fatalf("%s: doctor: %v\n%s", x.host.Name, err, out)
	}
	return report
}

// findings are what a report has that a person should do something about.
func findings(r doctor.Report) map[string]string {
	out := make(map[string]string)
	for _, c := range r.Checks {
		for _, f := range c.Findings {
			if f.Status == doctor.Warning || f.Status == doctor.Error {
				out[f.Code] = fmt.Sprintf("%s %s: %s", c.Check, f.Status, f.What)
			}
		}
	}
	return out
}

// diagnosed waits until the doctor finds exactly what codes name, and its checks say what says has of them. On a machine that
// stands still for seconds it may find more, or less.
func (x *box) diagnosed(what string, says map[string]string, codes ...string) doctor.Report {
	x.t.Helper()
	slices.Sort(codes)
	var r doctor.Report
	x.eventually("the doctor looks at "+what, func() error {
		r = x.doctor()
		found := findings(r)
		var wrong []error
		if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, codes) {
			wrong = append(wrong, fmt.Errorf("found %v, want %v", found, codes))
		}
		for check, want := range says {
			if got := said(r, check); !strings.Contains(got, want) {
				wrong = append(wrong, fmt.Errorf("%s: %q, want %q", check, got, want))
			}
		}
		return errors.Join(wrong...)
	})
	return r
}

// said returns what a check found.
func said(r doctor.Report, check string) string {
	i := slices.IndexFunc(r.Checks, func(c doctor.Result) bool { return c.Check == check })
	var out []string
	for _, f := range r.Checks[i].Findings {
		out = append(out, f.What)
	}
	return strings.Join(out, "\n")
}

// examined has the doctor look at A, while it is healthy and while something drops its packets.
func (p *pair) examined(t *testing.T) {
	forwarding := func(on string) {
		if _, err := p.a.host.Run(t.Context(), "sysctl", "-w", "net.ipv4.ip_forward="+on); err != nil {
			t.Fatal(err)
		}
	}
	forwarding("1") // as Kubernetes has it where there are containers
	p.a.eventually("the networks are connected", func() error {
		network, err := p.a.asks.Network(t.Context())
		if err == nil && (len(network.Peers) != 1 || network.Peers[0].State != control.NetworkConnected) {
			err = fmt.Errorf("%+v", network)
		}
		return err
	})
	p.a.diagnosed("a healthy box", map[string]string{
		"endpoint": "birch can connect to it", "multicast": "1 other cluster answers", "peers": "reachable: birch", "crds": "all", "mdns-port": "in use by the agent",
	})
	forwarding("0")
	p.a.diagnosed("a box that does not pass packets on", nil, "forwarding-off")
	forwarding("1")

	// What it says to type has an end to what it finds.
	for what, rules := range map[string]string{
		"a table of nftables": "nft 'add table inet fence; add chain inet fence gate { type filter hook forward priority 0; policy drop; }'",
		"a policy of Docker":  "XTABLES_LOCKFILE=/dev/null iptables-nft -P FORWARD DROP",
	} {
		if out, err := p.a.tryShell(rules); err != nil {
			t.Fatal(what, out, err)
		}
		r := p.a.diagnosed(what, nil, "forward-dropped")
		for _, c := range r.Checks {
			for _, f := range c.Findings {
				if f.Code != "forward-dropped" {
					continue
				}
				if out, err := p.a.tryShell("export XTABLES_LOCKFILE=/dev/null; " + strings.ReplaceAll(f.Do[0], "sudo ", "")); err != nil {
					t.Fatal(what, f.Do, out, err)
				}
			}
		}
		p.a.diagnosed(what+", allowed", nil)
	}
}
