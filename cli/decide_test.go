package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/agent/control"
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
		{"peers accept barn", "", false, 0, []string{"accept " + idBarn}},
		{"peers accept silo", "", false, ExitNotTrusted, nil},
		{"peers accept silo", "y\n", true, 0, []string{"accept " + idSilo}},
		{"peers accept silo", "n\n", true, ExitNotTrusted, nil},
		{"peers accept silo --yes", "", false, 0, []string{"accept " + idSilo}},
		{"peers accept silo --fingerprint " + fpSilo, "", false, 0, []string{"accept " + idSilo}},
		{"peers accept silo --fingerprint " + fpBarn, "", false, ExitRefused, nil},
		{"peers accept tractor --yes", "", false, 0, []string{"accept " + idTractor}},
		{"peers accept 7ac7 --yes", "", false, 0, []string{"accept " + idTractor}},
		{"peers accept nobody", "", false, ExitNotFound, nil},
		{"peers reject tractor", "", false, 0, []string{"reject " + idTractor}},
		{"peers block silo", "", false, 0, []string{"block " + idSilo}},
		{"peers unblock silo", "", false, 0, []string{"unblock " + idSilo}},
		{"peers trust silo", "y\n", true, 0, []string{"trust " + idSilo + " cdcdcdcd"}},
		{"peers trust silo", "", true, ExitNotTrusted, nil},
		{"peers trust silo", "", false, ExitNotTrusted, nil},
		{"peers trust silo --fingerprint " + fpSilo, "", false, 0, []string{"trust " + idSilo + " cdcdcdcd"}},
		{"peers trust silo --remove", "", false, 0, []string{"distrust " + idSilo}},
		{"peers trust silo --remove --yes", "", false, ExitUsage, nil},
		{"peers trust silo --remove --fingerprint " + fpSilo, "", false, ExitUsage, nil},
		{"peers set silo --auto-connect yes", "", false, 0, []string{"set " + idSilo}},
		{"peers set silo", "", false, ExitUsage, nil},
		{"peers set silo --auto-accept maybe", "", false, ExitUsage, nil},
		{"peers set silo --url http://x", "", false, ExitUsage, nil},
		{"peers forget silo", "y\n", true, 0, []string{"forget " + idSilo}},
		{"peers forget silo", "\n", true, ExitNotTrusted, nil},
		{"peers forget silo", "y\n", false, ExitUsage, nil},
		{"peers forget silo --yes", "", false, 0, []string{"forget " + idSilo}},
		{"peers forget nobody --yes", "", false, ExitNotFound, nil},
		{"key rotate", "yes\n", true, 0, []string{"rotate"}},
		{"key rotate", "no\n", true, ExitNotTrusted, nil},
		{"key rotate", "yes\n", false, ExitUsage, nil},
		{"key rotate --yes", "", false, 0, []string{"rotate"}},
		{"invite", "", false, 0, []string{"invite ttl=1h0m0s note= url="}},
		{"invite --ttl 15m --note x --url https://farm:6447", "", false, 0, []string{"invite ttl=15m0s note=x url=https://farm:6447"}},
		{"invite create --ttl 30s", "", false, ExitUsage, nil},
		{"invite --ttl 721h", "", false, ExitUsage, nil},
		{"invite revoke 0a1b", "", false, 0, []string{"revoke 0a1b2c3d4e5f6071"}},
		{"invite revoke ffff", "", false, ExitNotFound, nil},
	} {
		m := neighbours(t)
		full := farm()
		m.requests, m.invites = full.requests[1:], full.invites
		m.requests[0].Name = "tractor"
		w := withAgent(t, m)
		w.terminal, w.stdin = tc.terminal, strings.NewReader(tc.typed)
		_, stderr, code := w.run(t.Context(), strings.Fields(tc.args)...)
		if diff := cmp.Diff(tc.told, m.heard()); code != tc.code || diff != "" {
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
		{"forget", "peers forget barn", "y\n"},
		{"forget-no-terminal", "peers forget -- barn", ""},
		{"connect-blocked-here", "peers connect shed --yes", ""},
		{"invite", "invite --note x", ""},
		{"invite-json", "invite -o json", ""},
		{"invite-revoke", "invite revoke 0a1b", ""},
		{"invite-bad-ttl", "invite --ttl 5s", ""},
		{"key-rotate", "key rotate --yes", ""},
	} {
		m := neighbours(t)
		m.change(idBarn, func(p *control.Peer) {
			p.Outgoing, p.Incoming = control.Direction{Wanted: true}, control.Direction{Joined: true}
		})
		changed := m.peers[0]
		changed.ID, changed.Name, changed.Fingerprint, changed.Code = idShed, "shed", strings.Repeat("12", 32), codeOf(t, strings.Repeat("12", 32))
		if tc.name == "connect-blocked-here" {
			changed.Trust.Fingerprint, changed.Preferences.Blocked = changed.Fingerprint, true
		}
		m.peers, m.invites = append(m.peers, changed), farm().invites
		w := withAgent(t, m)
		w.terminal, w.stdin = tc.typed != "", strings.NewReader(tc.typed)
		stdout, stderr, _ := w.run(t.Context(), strings.Fields(tc.args)...)
		golden(t, "do-"+tc.name, "$ liqo-agent "+tc.args+"\n"+stdout+"--- stderr\n"+stderr)
	}
}

// What is set is what was asked for: nothing else changes.
func TestSetChangesOnlyWhatIsNamed(t *testing.T) {
	m := neighbours(t)
	before := control.Preferences{AutoConnect: control.Yes, AutoAccept: control.No, Note: "n", URL: "https://x"}
	for args, want := range map[string]control.Preferences{
		"--auto-connect default": {AutoConnect: control.Undecided, AutoAccept: control.No, Note: "n", URL: "https://x"},
		"--auto-accept yes":      {AutoConnect: control.Yes, AutoAccept: control.Yes, Note: "n", URL: "https://x"},
		"--note=":                {AutoConnect: control.Yes, AutoAccept: control.No, URL: "https://x"},
		"--url=":                 {AutoConnect: control.Yes, AutoAccept: control.No, Note: "n"},
		"--alias b":              before,
	} {
		m.change(idBarn, func(p *control.Peer) { p.Preferences = before })
		_, stderr, code := withAgent(t, m).run(t.Context(), append([]string{"peers", "set", idBarn}, strings.Fields(args)...)...)
		p, err := m.Peer(t.Context(), idBarn)
		if diff := cmp.Diff(want, p.Preferences); err != nil || code != ExitOK || diff != "" {
			t.Errorf("%s: exit code %d, %v, %s%s", args, code, err, stderr, diff)
		}
	}
	if p, err := m.Peer(t.Context(), idBarn); err != nil || p.Alias != "b" {
		t.Errorf("the alias is %q, %v", p.Alias, err)
	}
}

func TestWithoutAgentNothingIsDecided(t *testing.T) {
	w := noAgent(t)
	for _, args := range []string{"peers connect barn", "peers connect --token x", "peers disconnect barn", "peers accept barn", "peers reject barn", "peers block barn",
		"peers unblock barn", "peers trust barn", "peers trust barn --remove", "peers set barn --note x", "peers forget barn --yes", "peers requests", "invite", "invite list",
		"invite revoke 00", "key show", "key rotate --yes", "key csr --name x", "info", "info barn"} {
		if _, stderr, code := w.run(t.Context(), strings.Fields(args)...); code != ExitNotRunning || !strings.Contains(stderr, "try: sudo liqo-agent run") {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}

func TestQuoted(t *testing.T) {
	for in, want := range map[string]string{"barn": "barn", "Halle 3": "'Halle 3'", "it's": `'it'\''s'`, "": "''", "-x": "-- -x", "a$(b)": "'a$(b)'", "s\x1b": `'s\x1b'`} {
		if got := quoted(in); got != want {
			t.Errorf("quoted(%q) = %s, want %s", in, got, want)
		}
	}
}
