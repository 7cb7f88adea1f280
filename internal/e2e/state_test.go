//go:build linux

package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/crowd"
	"liqo.io/agent/peer"
)

// Killed at any moment while dozens of neighbours come and go: the database
// opens, and whoever was stored is remembered.
func TestKilledInACrowd(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	barn := newBoxes(t, b, "barn")[0]
	barn.host.Link("eth0").SetAddress("10.77.0.1/16")
	c := startCrowd(t, b, "town", crowd.Options{Size: 60, First: netip.MustParseAddr("10.77.8.2"), Endpoints: true})
	barn.start("--kubeconfig", "none")
	id := barn.id()
	known := func() int {
		peers, err := barn.asks.Peers(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, p := range peers {
			if p.Remembered && p.Verified {
				n++
			}
		}
		return n
	}
	barn.eventually("all neighbours are known", func() error {
		if n := known(); n != len(c.Boxes) {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	// They are stored a moment after they are known, each together with the event that tells of it.
	barn.eventually("all are stored", func() error {
		events, err := barn.asks.History(t.Context(), "", time.Time{}, 0)
		stored := make(map[string]bool)
		for _, e := range events {
			if e.Kind == "appeared" {
				stored[e.ID] = true
			}
		}
		if err == nil && len(stored) != len(c.Boxes) {
			err = fmt.Errorf("%d are", len(stored))
		}
		return err
	})

	for round := range 10 {
		for range 40 {
			i := rand.IntN(len(c.Boxes))
			if err := errors.Join(c.Goodbye(i), c.Announce((i+1)%len(c.Boxes))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(rand.N(40 * time.Millisecond))
		}
		if err := barn.agent.Kill(); err != nil {
			t.Fatal(err)
		}
		out, err := barn.cli("peers", "list", "--all", "-o", "json")
		if err != nil || strings.Count(out, `"id":`) != len(c.Boxes) {
			t.Fatalf("round %d: the database of a killed agent: %d peers, %v", round, strings.Count(out, `"id":`), err)
		}
		barn.start("--kubeconfig", "none")
		st := barn.mustStatus()
		if st.Identity.ClusterID != id || st.State.Recovered != "" || st.State.Volatile {
			t.Fatalf("round %d: %+v %+v", round, st.Identity, st.State)
		}
		if n := known(); n != len(c.Boxes) {
			t.Fatalf("round %d: %d peers are remembered, want %d", round, n, len(c.Boxes))
		}
	}
	if damaged, err := filepath.Glob(barn.host.Path(statePath + ".damaged-*")); err != nil || len(damaged) > 0 {
		t.Errorf("%v %v", damaged, err)
	}
}

// A disk that fills up and is emptied again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	dir := filepath.Dir(statePath)
	run := func(args ...string) {
		t.Helper()
		if _, err := barn.host.Run(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	run("mkdir", "-p", dir)
	run("mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "none", dir)
	barn.start("--kubeconfig", "none")
	barnID := barn.id()
	// Whatever fits, and not a byte more.
	_, _ = barn.host.Run(t.Context(), "dd", "if=/dev/zero", "of="+dir+"/filler", "bs=1k") // it ends with "no space left"
	mill.start("--kubeconfig", "none")
	millID := mill.id()
	barn.awaitPeer(millID, "Present")
	problem := func() string {
		for _, p := range barn.mustStatus().Problems {
			if strings.Contains(p.Text, "not stored") {
				if p.Remedy == "" {
					t.Error("the problem has no remedy")
				}
				return p.Text
			}
		}
		return ""
	}
	// Something has to be written: names change until it no longer fits.
	n := 0
	barn.eventually("the full disk is reported", func() error {
		n++
		if _, err := barn.asks.SetAlias(t.Context(), millID, fmt.Sprintf("mill-%d", n)); err != nil && !strings.Contains(err.Error(), "full") {
			return err
		}
		if problem() == "" {
			return errors.New("no such problem")
		}
		return nil
	})
	t.Logf("the problem: %s", problem())
	mill.stop()
	barn.awaitPeer(millID, "Lost")
	mill.start("--kubeconfig", "none")
	barn.awaitPeer(millID, "Present")
	if lines := strings.Count(barn.agent.Log(), "cannot be stored"); lines != 1 {
		t.Errorf("the log says %d times that nothing can be stored, want once", lines)
	}

	run("rm", dir+"/filler")
	ctx := t.Context()
	if err := barn.agent.WaitLog(ctx, "peers are stored again"); err != nil {
		t.Fatal(err)
	}
	if p := problem(); p != "" {
		t.Errorf("the problem stays: %s", p)
	}
	// history is all that happened to mill, but for checks that failed, before the goodbye or on a machine that stood still, and
	// its return after these.
	history := func() (kinds string, err error) {
		events, err := cliJSON[[]control.Event](barn, "peers", "history", millID)
		for _, e := range events {
			if e.Kind != "unreachable" && (e.Kind != "returned" || strings.HasSuffix(kinds, "lost ")) {
				kinds += e.Kind + " "
			}
		}
		return kinds, err
	}
	const expected = "appeared lost returned "
	barn.eventually("what happened meanwhile is stored", func() error {
		kinds, err := history()
		if err == nil && kinds != expected {
			err = fmt.Errorf("history %q", kinds)
		}
		return err
	})
	if err := barn.agent.Kill(); err != nil {
		t.Fatal(err)
	}
	barn.start("--kubeconfig", "none")
	if barn.id() != barnID {
		t.Errorf("the ID changed from %s to %s", barnID, barn.id())
	}
	if p := barn.awaitPeer(millID, "Present"); !p.Remembered {
		t.Errorf("peer = %+v", p)
	}
	if kinds, err := history(); err != nil || kinds != expected {
		t.Errorf("history %q, %v", kinds, err)
	}
}

// A state directory that became read-only: the box is who it was, and finds
// others, but says that nothing is kept.
func TestReadOnlyStateWithAKey(t *testing.T) {
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	dir := filepath.Dir(statePath)
	for _, args := range [][]string{{"mkdir", "-p", dir}, {"mount", "-t", "tmpfs", "none", dir}} {
		if _, err := barn.host.Run(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	mill.start("--kubeconfig", "none")
	millID := mill.id()
	barn.start("--kubeconfig", "none")
	barn.awaitPeer(millID, "Present")
	before := barn.mustStatus().Identity
	barn.eventually("mill is stored", func() error {
		if barn.mustStatus().State.Transactions < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	barn.stop()
	if _, err := barn.host.Run(t.Context(), "mount", "-o", "remount,ro", dir); err != nil {
		t.Fatal(err)
	}
	barn.start("--kubeconfig", "none")
	st := barn.mustStatus()
	if st.Identity.Fingerprint != before.Fingerprint || st.Identity.ClusterID != before.ClusterID {
		t.Errorf("identity changed from %+v to %+v", before, st.Identity)
	}
	if !st.State.Volatile || len(st.Problems) == 0 || !strings.Contains(st.Problems[0].Text, "nothing is stored") {
		t.Errorf("state %+v, problems %+v", st.State, st.Problems)
	}
	barn.awaitPeer(millID, "Present")
	mill.awaitPeer(before.ClusterID, "Present")
	if out, err := barn.cli("status"); err != nil || !strings.Contains(out, "in memory only") {
		t.Errorf("%v\n%s", err, out)
	}
}

// A database of a later version is left alone.
func TestNewerSchema(t *testing.T) {
	b := bed.New(t)
	barn := newBoxes(t, b, "barn")[0]
	barn.start("--kubeconfig", "none")
	barn.stop()
	// The schema's version is the user version in the file's header.
	f, err := os.OpenFile(barn.host.Path(statePath), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(binary.BigEndian.AppendUint32(nil, 40), 60)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(barn.host.Path(statePath))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"run", "--kubeconfig", "none"}, {"peers", "list"}} {
		_, err := barn.cli(args...)
		if exitCode(err) == 0 || !strings.Contains(err.Error(), "has schema 40") || !strings.Contains(err.Error(), "state restore") {
			t.Errorf("%v: %v", args, err)
		}
		t.Logf("%v: %v", args, err)
	}
	after, err := os.ReadFile(barn.host.Path(statePath))
	if err != nil || string(after) != string(before) {
		t.Errorf("the file was touched: %v", err)
	}
}

// At the default level a LAN on which nothing changes gives no line at all.
func TestQuietLog(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	eve := newAttacker(t, b, "eve", netip.MustParseAddr("10.77.0.66"))
	barn.start("--kubeconfig", "none")
	mill.start("--kubeconfig", "none")
	millID := mill.id()
	barn.awaitPeer(millID, "Present")
	mill.awaitPeer(barn.id(), "Present")
	// It is shown before it is logged.
	barn.logged("peer appeared")
	lines := func() int { return strings.Count(barn.agent.Log(), "\n") }
	barn.undisturbed(func() error {
		before, from := lines(), mill.mustStatus().Endpoint.Requests
		barn.eventually("ten checks", func() error {
			printer := bogus(1, eve.addr)
			printer.id = "a printer"
			eve.say(printer.all()...)
			for _, packet := range malformed(t) {
				eve.send(packet)
			}
			if n := mill.mustStatus().Endpoint.Requests - from; n < 10 {
				return fmt.Errorf("%d checks", n)
			}
			return nil
		})
		if n := lines() - before; n != 0 {
			return fmt.Errorf("%d lines in the log of a quiet LAN:\n%s", n, barn.agent.Log())
		}
		return nil
	})
	barn.eventually("it sees one peer", func() error {
		if st := barn.mustStatus(); st.Peers[string(peer.PhasePresent)] != 1 {
			return fmt.Errorf("peers = %v", st.Peers)
		}
		return nil
	})
}
