package cli_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		os.Exit(runAsProgram())
	}
	os.Exit(m.Run())
}

func TestGolden(t *testing.T) {
	full, empty, none, _ := clitest.Worlds(t, cli.New)
	full.Check(t, "invite-list", "invite list", 0)
	full.Check(t, "invite-list-json", "invite list -o json", 0)
	empty.Check(t, "invite-list-empty", "invite list", 0)
	full.Check(t, "key-show", "key show", 0)
	full.Check(t, "key-show-json", "key show -o json", 0)
	full.Check(t, "key-show-pem", "key show --pem", 0)
	full.Check(t, "key-csr", "key csr --name a.example --name b.example", 0)
	full.Check(t, "key-csr-none", "key csr", command.ExitUsage)
	full.Check(t, "log-level", "log level", 0)
	full.Check(t, "log-level-set", "log level debug", 0)
	full.Check(t, "log-level-changed", "log level", 0)
	full.Check(t, "log-level-wrong", "log level loud", command.ExitUsage)
	none.Check(t, "unknown-command", "peers lsit", command.ExitUsage)
	none.Check(t, "unknown-option", "peers list --al", command.ExitUsage)
	none.Check(t, "completion-unknown", "completion tcsh", command.ExitUsage)
}

// Whatever the format, nothing that came from the network reaches a terminal
// as an escape sequence.
func TestNothingControlsTheTerminal(t *testing.T) {
	m := clitest.Farm()
	for i := range m.Has.Peers {
		m.Has.Peers[i].Name = "a\x1b]0;x\x07\u009b2J\x7f\r\n\u202eb\xff"
		m.Has.Peers[i].Reason = m.Has.Peers[i].Name
		m.Has.Peers[i].Links = []string{m.Has.Peers[i].Name}
		bad := m.Has.Peers[i].Name
		m.Has.Peers[i].Trust.By, m.Has.Peers[i].Trust.Detail, m.Has.Peers[i].Code, m.Has.Peers[i].Role = bad, bad, bad, bad
		m.Has.Peers[i].Preferences.Note, m.Has.Peers[i].Preferences.URL = bad, bad
		d := control.Direction{Wanted: true, Reason: bad, Message: bad, Steps: []control.Step{{Name: bad, Text: bad}}}
		m.Has.Peers[i].Outgoing, m.Has.Peers[i].Incoming = d, d
		m.Has.Peers[i].Request = &control.Request{State: bad, Address: bad, Message: bad}
	}
	for i := range m.Has.Requests {
		r := &m.Has.Requests[i]
		r.Name, r.State, r.Code, r.Address, r.Message = m.Has.Peers[0].Name, m.Has.Peers[0].Name, m.Has.Peers[0].Name, m.Has.Peers[0].Name, m.Has.Peers[0].Name
	}
	m.Has.Invites[0].Note, m.Has.Invites[0].CreatedBy, m.Has.Invites[1].UsedBy = m.Has.Peers[0].Name, m.Has.Peers[0].Name, m.Has.Peers[0].Name
	m.Has.Status.Trust.Open, m.Has.Status.Trust.FleetCA.Name = m.Has.Peers[0].Name, m.Has.Peers[0].Name
	m.Has.Events[1].Detail = m.Has.Peers[0].Name
	bad := m.Has.Peers[0].Name
	m.Has.Status.Problems[0].Text = bad
	m.Has.Peers[0].Sources, m.Has.Peers[0].Domains = []string{bad}, []string{bad}
	m.Has.Status.Discovery.Source, m.Has.Status.Advertisement.Source, m.Has.Status.Autojoin.Source = bad, bad, bad
	m.Has.Status.Domains[0] = control.DomainSummary{Domain: bad, Outcome: bad, Message: bad, Source: bad}
	m.Has.Status.Networks[0] = control.LinkNetwork{Link: bad, Rule: bad, Why: bad}
	m.Has.Domains[0] = control.Domain{Name: "example.com", Server: bad, Source: bad, Ignored: []string{bad}, Outcome: bad, Message: bad, AnsweredBy: bad, Browsed: []string{bad},
		LastQuery: clitest.Now, Entries: []control.DomainEntry{{Name: bad, URL: bad, ClusterID: bad, Cluster: bad, Message: bad}, {Name: bad, Reason: bad, Message: bad}}}
	m.Has.Adverts[0].Name, m.Has.Adverts[0].Reason, m.Has.Adverts[0].Message, m.Has.Adverts[0].NodeMessage, m.Has.Adverts[0].Arch, m.Has.Adverts[0].DecidedBy = bad, bad, bad, bad, bad, bad
	m.Has.Adverts[0].Resources, m.Has.Adverts[0].Labels, m.Has.Adverts[0].Images, m.Has.Adverts[0].NodeReady = map[string]string{bad: bad, "cpu": bad}, map[string]string{bad: bad}, []string{bad}, false
	m.Has.Status.Sharing.Using.Providers[0] = control.Provider{Name: bad, Node: bad, Reason: bad, Message: bad, Offered: map[string]string{bad: bad}}
	m.Has.Status.Sharing.Offering.Consumers[0] = control.Consumer{Name: bad, Used: map[string]string{bad: bad}, Promised: map[string]string{bad: bad}}
	m.Has.Status.Sharing.Offering.Message = bad
	m.Has.Peers[0].Sharing = control.PeerSharing{Provider: &m.Has.Status.Sharing.Using.Providers[0], Consumer: &m.Has.Status.Sharing.Offering.Consumers[0]}
	w := clitest.WithAgent(t, cli.New, m)
	for _, args := range []string{"peers list -a", "peers list -a -o wide", "peers list -a -o json", "peers list -a -o yaml", "peers show 9c1b",
		"peers show 9c1b -o json", "peers show 0558", "peers history", "peers history -o json", "status", "status -o json",
		"domains list", "domains list -o wide", "domains list -o json", "domains show example.com", "domains show example.com -o yaml", "domains add example.com --no-wait",
		"domains refresh example.com --timeout 1ms", "peers requests", "peers requests -o json", "peers requests -o yaml", "adverts list", "adverts list -o json", "adverts show 0558de48-0", "adverts show 0558de48-0 -o yaml", "adverts accept 0558de48-0", "network list", "network list -o json", "invite list", "invite list -o json", "info", "info -o json", "info 9c1b", "info 9c1b -o yaml",
		"info 9c1b --get outgoing", "info 9c1b 9c1b --get outgoing.message", "peers accept 0558de48-1", "peers accept 9c1b --yes", "peers connect 9c1b --no-wait --yes",
		"peers connect 9c1b --timeout 1ms --yes", "peers reject 9c1b", "peers forget 9c1b --yes", "peers disconnect 9c1b --no-wait", "peers set 9c1b --note x"} {
		stdout, stderr, _ := w.Run(t.Context(), strings.Fields(args)...)
		for _, bad := range []string{"\x1b", "\x07", "\u009b", "\x7f", "\r"} {
			if strings.Contains(stdout+stderr, bad) {
				t.Errorf("%s writes %q", args, bad)
			}
		}
	}
}

// Ctrl-C is no failure of the agent, whatever the command asks it.
func TestInterrupted(t *testing.T) {
	w := clitest.WithAgent(t, cli.New, clitest.Farm())
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	for args, look := range map[string]string{
		"status": "", "info": "", "peers list": "", "domains list": "", "network list": "", "invite list": "", "key show": "",
		"config reload": "try: liqo-agent status\n", "log level debug": "try: liqo-agent log level\n",
	} {
		if _, stderr, code := w.Run(ctx, strings.Fields(args)...); code != command.ExitInterrupted || stderr != "liqo-agent: interrupted before the agent answered\n"+look {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}
