package peers_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

func TestWithoutAgentTheDatabaseIsRead(t *testing.T) {
	w := clitest.NoAgent(t, cli.New)
	store, err := state.Open(t.Context(), filepath.Join(w.Dir, command.DatabaseName), state.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	fp, err := peer.ParseFingerprint(clitest.BarnKey)
	if err != nil {
		t.Fatal(err)
	}
	err = store.Apply(t.Context(), state.Change{
		Peers: []peer.Peer{{ID: clitest.Barn, Name: "barn", Namespace: "liqo", Fingerprint: fp, Phase: peer.PhasePresent, Source: peer.LAN,
			URL: "https://192.0.2.7:6447", Version: "1", FirstSeen: clitest.Now.Add(-time.Hour), LastSeen: clitest.Now.Add(-time.Minute)},
			{ID: clitest.Shed, Name: "shed", Fingerprint: fp, Phase: peer.PhaseLost, Source: peer.LAN, FirstSeen: clitest.Now.Add(-time.Hour), LastSeen: clitest.Now.Add(-time.Minute)}},
		Events: []peer.Event{{At: clitest.Now.Add(-time.Hour), ID: clitest.Barn, Kind: peer.EventAppeared, Detail: "on eth0"}},
	})
	err = errors.Join(err, store.SetRuling(t.Context(), clitest.Barn, state.Ruling{
		Pin:         state.Pin{Pin: peer.Pin{ID: clitest.Barn, Fingerprint: fp, Method: peer.TrustInvite, By: "user alice (command line)", At: clitest.Now.Add(-time.Hour)}, Basis: fp},
		Preferences: state.Preferences{AutoConnect: state.Yes, AutoAccept: state.No, Alias: "b", Note: "roof"},
	}), store.SetRuling(t.Context(), clitest.Shed, state.Ruling{Distrust: state.Distrust{Fingerprint: fp, By: "kubectl", At: clitest.Now.Add(-time.Hour)},
		Preferences: state.Preferences{Blocked: state.Yes}}))
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args string
		code int
	}{
		"offline-list":    {"peers list", 0},
		"offline-show":    {"peers show b", 0},
		"offline-shut":    {"peers show shed", 0},
		"offline-unknown": {"peers show cellar", command.ExitNotFound},
		"offline-history": {"peers history barn", 0},
		"offline-alias":   {"peers alias barn c", command.ExitNotRunning},
	} {
		stdout, stderr, code := w.Run(t.Context(), strings.Fields(tc.args)...)
		if code != tc.code {
			t.Errorf("%s: exit code %d, want %d", tc.args, code, tc.code)
		}
		clitest.Golden(t, name, "$ liqo-agent "+tc.args+"\n"+stdout+"--- stderr\n"+stderr)
	}
	if err := os.WriteFile(filepath.Join(w.Dir, command.DatabaseName), bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := w.Run(t.Context(), "peers", "list")
	if code != command.ExitNotRunning || !strings.Contains(stderr, "damaged") || !strings.Contains(stderr, "try: sudo liqo-agent run") {
		t.Errorf("with a damaged database: exit code %d, %s", code, stderr)
	}
}
