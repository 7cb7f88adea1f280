package adverts_test

import (
	"strings"
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

// TestAdvertsDecide: a decision reaches the agent, and what comes of it is said.
func TestAdvertsDecide(t *testing.T) {
	m := clitest.Farm()
	w := clitest.WithAgent(t, cli.New, m)
	for _, tc := range []struct{ name, args, heard string }{
		{"adverts-accept", "adverts accept Halle\u00203", "decide-advert " + clitest.Silo + " accept=true"},
		{"adverts-refuse", "adverts refuse barn", "decide-advert " + clitest.Barn + " accept=false"},
		{"adverts-refuse-json", "adverts refuse 0558de48-1 -o json", "decide-advert " + clitest.Silo + " accept=false"},
	} {
		args := strings.Fields(tc.args)
		if tc.name == "adverts-accept" {
			args = []string{"adverts", "accept", "Halle 3"}
		}
		stdout, stderr, code := w.Run(t.Context(), args...)
		if heard := m.Heard(); code != command.ExitOK || len(heard) != 1 || heard[0] != tc.heard {
			t.Errorf("%s: exit code %d, the agent heard %q", tc.name, code, heard)
		}
		clitest.Golden(t, tc.name, "$ liqo-agent "+tc.args+"\n"+stdout+"--- stderr\n"+stderr)
	}
	m.Fail = &control.Error{Kind: control.ErrUnavailable, Message: "what other clusters offer is not known: this cluster's API server cannot be reached clitest.Now", Advice: "liqo-agent status says why"}
	_, stderr, code := w.Run(t.Context(), "adverts", "accept", "barn")
	if code == command.ExitOK || !strings.Contains(stderr, "cannot be reached clitest.Now\ntry: liqo-agent status says why\n") {
		t.Errorf("without an API server: exit code %d, %s", code, stderr)
	}
}
