package cli_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

// Every decision is told to the agent, about the right peer, and only after what
// has to be asked was asked.
func TestDecisions(t *testing.T) {
	for _, tc := range []struct {
		args, typed string
		terminal    bool
		code        int
		told        []string
	}{
		{"peers accept barn", "", false, 0, []string{"accept " + clitest.Barn}},
		{"peers accept silo", "", false, command.ExitNotTrusted, nil},
		{"peers accept silo", "y\n", true, 0, []string{"accept " + clitest.Silo}},
		{"peers accept silo", "n\n", true, command.ExitNotTrusted, nil},
		{"peers accept silo --yes", "", false, 0, []string{"accept " + clitest.Silo}},
		{"peers accept silo --fingerprint " + clitest.SiloKey, "", false, 0, []string{"accept " + clitest.Silo}},
		{"peers accept silo --fingerprint " + clitest.BarnKey, "", false, command.ExitRefused, nil},
		{"peers accept tractor --yes", "", false, 0, []string{"accept " + clitest.Tractor}},
		{"peers accept 7ac7 --yes", "", false, 0, []string{"accept " + clitest.Tractor}},
		{"peers accept nobody", "", false, command.ExitNotFound, nil},
		{"peers reject tractor", "", false, 0, []string{"reject " + clitest.Tractor}},
		{"peers block silo", "", false, 0, []string{"block " + clitest.Silo}},
		{"peers unblock silo", "", false, 0, []string{"unblock " + clitest.Silo}},
		{"peers trust silo", "y\n", true, 0, []string{"trust " + clitest.Silo + " cdcdcdcd"}},
		{"peers trust silo", "", true, command.ExitNotTrusted, nil},
		{"peers trust silo", "", false, command.ExitNotTrusted, nil},
		{"peers trust silo --fingerprint " + clitest.SiloKey, "", false, 0, []string{"trust " + clitest.Silo + " cdcdcdcd"}},
		{"peers trust silo --remove", "", false, 0, []string{"distrust " + clitest.Silo}},
		{"peers trust silo --remove --yes", "", false, command.ExitUsage, nil},
		{"peers trust silo --remove --fingerprint " + clitest.SiloKey, "", false, command.ExitUsage, nil},
		{"peers set silo --auto-connect yes", "", false, 0, []string{"set " + clitest.Silo}},
		{"peers set silo", "", false, command.ExitUsage, nil},
		{"peers set silo --auto-accept maybe", "", false, command.ExitUsage, nil},
		{"peers set silo --url http://x", "", false, command.ExitUsage, nil},
		{"peers forget silo", "y\n", true, 0, []string{"forget " + clitest.Silo}},
		{"peers forget silo", "\n", true, command.ExitNotTrusted, nil},
		{"peers forget silo", "y\n", false, command.ExitUsage, nil},
		{"peers forget silo --yes", "", false, 0, []string{"forget " + clitest.Silo}},
		{"peers forget nobody --yes", "", false, command.ExitNotFound, nil},
		{"key rotate", "yes\n", true, 0, []string{"rotate"}},
		{"key rotate", "no\n", true, command.ExitNotTrusted, nil},
		{"key rotate", "yes\n", false, command.ExitUsage, nil},
		{"key rotate --yes", "", false, 0, []string{"rotate"}},
		{"invite", "", false, 0, []string{"invite ttl=1h0m0s note= url="}},
		{"invite --ttl 15m --note x --url https://farm:6447", "", false, 0, []string{"invite ttl=15m0s note=x url=https://farm:6447"}},
		{"invite create --ttl 30s", "", false, command.ExitUsage, nil},
		{"invite --ttl 721h", "", false, command.ExitUsage, nil},
		{"invite revoke 0a1b", "", false, 0, []string{"revoke 0a1b2c3d4e5f6071"}},
		{"invite revoke ffff", "", false, command.ExitNotFound, nil},
	} {
		m := clitest.Neighbours(t)
		full := clitest.Farm()
		m.Has.Requests, m.Has.Invites = full.Has.Requests[1:], full.Has.Invites
		m.Has.Requests[0].Name = "tractor"
		w := clitest.WithAgent(t, cli.New, m)
		w.Terminal, w.Stdin = tc.terminal, strings.NewReader(tc.typed)
		_, stderr, code := w.Run(t.Context(), strings.Fields(tc.args)...)
		if diff := cmp.Diff(tc.told, m.Heard()); code != tc.code || diff != "" {
			t.Errorf("%s: exit code %d, want %d; %s%s", tc.args, code, tc.code, stderr, diff)
		}
	}
}

func TestDecisionOutputs(t *testing.T) {
	for _, tc := range []struct{ name, args, typed string }{
		{"accept", "peers accept silo", "y\n"},
		{"accept-json", "peers accept barn -o json", ""},
		{"reject", "peers reject silo", ""},
		{"block", "peers block barn", ""},
		{"unblock", "peers unblock barn", ""},
		{"trust", "peers trust silo", "y\n"},
		{"trust-changed", "peers trust shed", "y\n"},
		{"trust-remove", "peers trust barn --remove", ""},
		{"set", "peers set barn --auto-connect no --auto-accept default --note roof --alias B --url https://barn.example", ""},
		{"set-nothing", "peers set barn", ""},
		{"set-amounts", "peers set barn --cpu 1500m --memory 4Gi", ""},
		{"set-tiny", "peers set barn --memory 500m", ""},
		{"connect-amounts", "peers connect barn --no-wait --cpu 2 --memory 4Gi -o json", ""},
		{"connect-nonsense", "peers connect barn --cpu many", ""},
		{"forget", "peers forget barn", "y\n"},
		{"forget-no-terminal", "peers forget -- barn", ""},
		{"connect-blocked-here", "peers connect shed --yes", ""},
		{"invite", "invite --note x", ""},
		{"invite-json", "invite -o json", ""},
		{"invite-revoke", "invite revoke 0a1b", ""},
		{"invite-bad-ttl", "invite --ttl 5s", ""},
		{"key-rotate", "key rotate --yes", ""},
	} {
		m := clitest.Neighbours(t)
		m.Change(clitest.Barn, func(p *control.Peer) {
			p.Outgoing, p.Incoming = control.Direction{Wanted: true}, control.Direction{Joined: true}
		})
		changed := m.Has.Peers[0]
		changed.ID, changed.Name, changed.Fingerprint, changed.Code = clitest.Shed, "shed", strings.Repeat("12", 32), clitest.CodeOf(t, strings.Repeat("12", 32))
		if tc.name == "connect-blocked-here" {
			changed.Trust.Fingerprint, changed.Preferences.Blocked = changed.Fingerprint, true
		}
		m.Has.Peers, m.Has.Invites = append(m.Has.Peers, changed), clitest.Farm().Has.Invites
		w := clitest.WithAgent(t, cli.New, m)
		w.Terminal, w.Stdin = tc.typed != "", strings.NewReader(tc.typed)
		stdout, stderr, _ := w.Run(t.Context(), strings.Fields(tc.args)...)
		clitest.Golden(t, "do-"+tc.name, "$ liqo-agent "+tc.args+"\n"+stdout+"--- stderr\n"+stderr)
	}
}

// What is set is what was asked for: nothing else changes.
func TestSetChangesOnlyWhatIsNamed(t *testing.T) {
	m := clitest.Neighbours(t)
	before := control.Preferences{AutoConnect: control.Yes, AutoAccept: control.No, Note: "n", URL: "https://x", CPU: "2", Memory: "4Gi"}
	with := func(cpu, memory string) control.Preferences {
		changed := before
		changed.CPU, changed.Memory = cpu, memory
		return changed
	}
	for args, want := range map[string]control.Preferences{
		"--auto-connect default": {AutoConnect: control.Undecided, AutoAccept: control.No, Note: "n", URL: "https://x", CPU: "2", Memory: "4Gi"},
		"--auto-accept yes":      {AutoConnect: control.Yes, AutoAccept: control.Yes, Note: "n", URL: "https://x", CPU: "2", Memory: "4Gi"},
		"--note=":                {AutoConnect: control.Yes, AutoAccept: control.No, URL: "https://x", CPU: "2", Memory: "4Gi"},
		"--url=":                 {AutoConnect: control.Yes, AutoAccept: control.No, Note: "n", CPU: "2", Memory: "4Gi"},
		"--alias b":              before,
		"--cpu 0.5":              with("500m", "4Gi"),
		"--cpu default":          with("", "4Gi"),
		"--memory=":              with("2", ""),
		"--cpu 4 --memory 1.5Gi": with("4", "1536Mi"),
	} {
		m.Change(clitest.Barn, func(p *control.Peer) { p.Preferences = before })
		_, stderr, code := clitest.WithAgent(t, cli.New, m).Run(t.Context(), append([]string{"peers", "set", clitest.Barn}, strings.Fields(args)...)...)
		p, err := m.Peer(t.Context(), clitest.Barn)
		if diff := cmp.Diff(want, p.Preferences); err != nil || code != command.ExitOK || diff != "" {
			t.Errorf("%s: exit code %d, %v, %s%s", args, code, err, stderr, diff)
		}
	}
	if p, err := m.Peer(t.Context(), clitest.Barn); err != nil || p.Alias != "b" {
		t.Errorf("the alias is %q, %v", p.Alias, err)
	}
}

// An alias that is taken, or a note that is too long, keeps everything as it is.
func TestSetChangesAllOrNothing(t *testing.T) {
	m := clitest.Neighbours(t)
	m.Change(clitest.Silo, func(p *control.Peer) { p.Alias = "tower" })
	w := clitest.WithAgent(t, cli.New, m)
	if _, stderr, code := w.Run(t.Context(), "peers", "set", clitest.Barn, "--note", strings.Repeat("x", control.MaxNote+1), "--alias", "shed"); code != command.ExitUsage || !strings.Contains(stderr, "the note is 257 bytes long") || len(m.Heard()) > 0 {
		t.Errorf("a long note: exit code %d, %s; decided: %v", code, stderr, m.Heard())
	}
	_, stderr, code := w.Run(t.Context(), "peers", "set", clitest.Barn, "--note", "x", "--alias", "tower")
	if decided := m.Heard(); code != command.ExitUsage || !strings.Contains(stderr, "already names "+clitest.Silo) || len(decided) > 0 {
		t.Errorf("exit code %d, %s; decided: %v", code, stderr, decided)
	}
}

func TestWithoutAgentNothingIsDecided(t *testing.T) {
	w := clitest.NoAgent(t, cli.New)
	for _, args := range []string{"peers connect barn", "peers connect --token x", "peers disconnect barn", "peers accept barn", "peers reject barn", "peers block barn",
		"peers unblock barn", "peers trust barn", "peers trust barn --remove", "peers set barn --note x", "peers forget barn --yes", "peers requests", "invite", "invite list",
		"invite revoke 00", "key show", "key rotate --yes", "key csr --name x", "info", "info barn"} {
		if _, stderr, code := w.Run(t.Context(), strings.Fields(args)...); code != command.ExitNotRunning || !strings.Contains(stderr, "try: sudo liqo-agent run") {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}
