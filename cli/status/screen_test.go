package status

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/internal/clitest"
)

// shownStatus returns the lines of a status for people.
func shownStatus(st control.Status) []string {
	var out bytes.Buffer
	p := render.New(&out, render.Text, false, clitest.Now)
	printStatus(p, st)
	if err := p.Flush(); err != nil {
		panic(err)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// TestStatusFitsOnAScreen: with nothing, one or a lot to tell.
func TestStatusFitsOnAScreen(t *testing.T) {
	quiet := control.Status{
		Version: "1.2.3", Protocol: "1", LogLevel: "info", UptimeSeconds: 9000, StartedAt: clitest.Now.Add(-9000 * time.Second),
		Identity:      control.Identity{ClusterID: clitest.FarmID, Name: "farm", Namespace: "liqo", Fingerprint: strings.Repeat("77", 32), IDOrigin: "state"},
		Links:         []control.Link{{Name: "eth0"}},
		Discovery:     control.Discovery{Enabled: true, Service: "_liqo._tcp", Domain: "local"},
		Advertisement: control.Advertisement{Enabled: true, Established: true, Instance: clitest.FarmID},
		Autojoin:      control.Autojoin{Enabled: true},
		Endpoint:      control.Endpoint{Listen: ":6447", Port: 6447},
		Kubernetes: control.Kubernetes{Connected: true, Server: "https://127.0.0.1:6443", Version: "v1.36.3+k3s1", ForeignClusters: 30, Writes: 412,
			Since: clitest.Now.Add(-2 * time.Hour)},
		State:   control.State{Path: "/var/lib/liqo-agent/agent.db"},
		Peers:   map[string]int{"Present": 1},
		Packets: control.Packets{Received: 1200, Sent: 34},
		Trust:   control.TrustStatus{Accept: "ask"},
	}
	one, busy := quiet, quiet
	one.Problems = []control.Problem{{Code: "api-unreachable", Severity: "error", Since: clitest.Now.Add(-5 * time.Minute),
		Text:   "the API server https://127.0.0.1:6443 does not answer: dial tcp 127.0.0.1:6443: connect: connection refused",
		Remedy: "check that Kubernetes runs (systemctl status k3s); the agent keeps trying, and peerings are kept"}}
	busy.Problems = slices.Repeat(one.Problems, 3)
	for i := range 27 {
		busy.Problems = append(busy.Problems, control.Problem{Code: "peer-unreachable", Severity: "warning",
			Text: fmt.Sprintf("box-%d, with which there is a peering, does not answer: connect to 192.0.2.%d:6447: no answer in time", i, i)})
		busy.Sharing.Using.Providers = append(busy.Sharing.Using.Providers, control.Provider{Name: fmt.Sprintf("box-%d", i), Node: clitest.Barn, Ready: i != 20})
		busy.Sharing.Offering.Consumers = append(busy.Sharing.Offering.Consumers, control.Consumer{Name: fmt.Sprintf("box-%d", i)})
		busy.LastErrors = append(busy.LastErrors, control.LogEntry{At: clitest.Now.Add(-time.Duration(i) * time.Second), Level: "warn", Text: "something went wrong", Count: i + 1})
	}
	for _, tc := range []struct {
		name        string
		status      control.Status
		least, most int
		says        []string
	}{
		{"quiet", quiet, 18, 30, []string{"No problems.", "Kubernetes:     connected to https://127.0.0.1:6443 (v1.36.3+k3s1) for 2h, 30 ForeignClusters, 412"}},
		{"one problem", one, 20, 34, []string{"(api-unreachable, 5m)"}},
		{"a lot", busy, 40, 72, []string{"and 22 more: peer-unreachable (22); all of them: liqo-agent status -o json", "and 21 more: liqo-agent info", "box-20"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lines := shownStatus(tc.status)
			text := strings.Join(lines, "\n")
			if len(lines) < tc.least || len(lines) > tc.most {
				t.Errorf("%d lines, want %d to %d\n%s", len(lines), tc.least, tc.most, text)
			}
			for _, line := range lines {
				if utf8.RuneCountInString(line) > render.ScreenWidth {
					t.Errorf("wider than %d columns: %q", render.ScreenWidth, line)
				}
			}
			for _, want := range tc.says {
				if !strings.Contains(text, want) {
					t.Errorf("does not say %q\n%s", want, text)
				}
			}
			if tc.name != "a lot" && strings.Contains(text, "Logged") {
				t.Error("tells of a log that says nothing")
			}
		})
	}
}
