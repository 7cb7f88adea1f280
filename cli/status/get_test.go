package status_test

import (
	"strings"
	"testing"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

func TestInfoGet(t *testing.T) {
	w := clitest.WithAgent(t, cli.New, clitest.Farm())
	for _, tc := range []struct {
		args, out string
		code      int
	}{
		{"barn --get name", "barn\n", 0},
		{"barn --get outgoing.joined", "true\n", 0},
		{"barn silo --get outgoing.joined", "true\nfalse\n", 0},
		{"barn --get ttlSeconds", "120\n", 0},
		{"barn --get trust.method", "Person\n", 0},
		{"barn --get TRUST.Method", "Person\n", 0},
		{"barn --get preferences.autoConnect", "yes\n", 0},
		{"barn --get trust.at", "2026-11-18T13:00:00Z\n", 0},
		{"barn --get outgoing.steps.1.text", "(local) its key is trusted\n", 0},
		{"barn --get outgoing.steps.99.text", "\n", 0},
		{"barn --get incoming.steps", "[]\n", 0},
		{"barn --get addresses", `["192.0.2.7:6447","[fe80::7%eth0]:6447"]` + "\n", 0},
		{"barn --get addresses.0", "192.0.2.7:6447\n", 0},
		{"barn --get conflict", "\n", 0},
		{"barn --get conflict.address", "\n", 0},
		{"silo --get conflict.address", "192.0.2.66:6447\n", 0},
		{"barn silo --get conflict.address", "\n192.0.2.66:6447\n", 0},
		{"barn --get conflict.nosuch", "", command.ExitUsage},
		{"d00d --get firstSeen", "\n", 0},
		{"barn --get outgoing.joined -o json", "true\n", 0},
		{"barn --get name -o json", "\"barn\"\n", 0},
		{"barn --get conflict -o json", "null\n", 0},
		{"barn --get links -o yaml", "- eth0\n- eth1\n", 0},
		{"d00d --get name", `van\x1b[31m\u202e` + "\n", 0},
		{"--get cluster.clusterId", clitest.FarmID + "\n", 0},
		{"--get peering.joined", "1\n", 0},
		{"--get trust.fleetCA.name", "Acme\n", 0},
		{"--get peers.0.name", "silo\n", 0},
		{"--get problems.0.remedy", "find out which of the two is the copy\n", 0},
		{"--get nosuch", "", command.ExitUsage},
		{"barn --get outgoing.joint", "", command.ExitUsage},
		{"barn --get name.x", "", command.ExitUsage},
		{"barn --get addresses.x", "", command.ExitUsage},
		{"barn --get addresses.-1", "", command.ExitUsage},
		{"barn --get firstSeen.wall", "", command.ExitUsage},
		{"barn --get .", "", command.ExitUsage},
		{"nobody --get name", "", command.ExitNotFound},
	} {
		stdout, stderr, code := w.Run(t.Context(), append([]string{"info"}, strings.Fields(tc.args)...)...)
		if stdout != tc.out || code != tc.code || (code != 0) != (stderr != "") {
			t.Errorf("info %s: exit code %d, %q%s; want %d, %q", tc.args, code, stdout, stderr, tc.code, tc.out)
		}
	}
	_, stderr, _ := w.Run(t.Context(), "info", "barn", "--get", "outgoing.joint")
	if want := "liqo-agent: --get \"outgoing.joint\": outgoing: there is no field \"joint\"; did you mean \"joined\"?\ntry: liqo-agent info barn -o json\n"; stderr != want {
		t.Errorf("error %q, want %q", stderr, want)
	}
}
