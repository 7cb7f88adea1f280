//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/card"
)

// TestSlowCard: whoever asks a box has an answer while its memory card does not finish a sync: peers, systemd, and who looks at
// its state. Only what a person decides waits, for it is acknowledged when it is stored. And a card with errors loses nothing that
// was acknowledged.
func TestSlowCard(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	dir := filepath.Dir(statePath)
	if _, err := barn.host.Run(t.Context(), "mkdir", "-p", dir); err != nil {
		t.Fatal(err)
	}
	var c *card.Card
	if err := barn.host.Do(func() (err error) {
		c, err = card.Mount(dir, card.Options{Sync: 100 * time.Millisecond, Seed: 1})
		return err
	}); card.Unavailable(err) {
		t.Skipf("FUSE cannot be used here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if barn.agent != nil {
			_ = barn.agent.Kill()
		}
		if err := barn.host.Do(c.Close); err != nil {
			t.Error(err)
		}
	})
	const notify = "/run/notify.sock"
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: barn.host.Path(notify), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { systemd.Close() })
	barn.env = []string{"NOTIFY_SOCKET=" + notify, "WATCHDOG_USEC=1000000"}
	barn.start("--kubeconfig", "none")
	mill.start("--kubeconfig", "none")
	barnID, millID := barn.id(), mill.id()
	barn.awaitPeer(millID, "Present")
	mill.awaitPeer(barnID, "Present")

	resume := c.Stall()
	t.Cleanup(resume)
	decided := make(chan error, 1)
	go func() {
		_, err := barn.cli("peers", "alias", millID, "water")
		decided <- err
	}()
	barn.eventually("a sync waits", func() error {
		if c.Waiting() == 0 {
			return errors.New("none does")
		}
		return nil
	})
	before := barn.mustStatus().Endpoint.Requests
	barn.eventually("it answers its peer", func() error {
		if n := barn.mustStatus().Endpoint.Requests - before; n < 3 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	if err := systemd.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 4096)
	// What was said before is read first.
	for since, alive := time.Now(), 0; alive < 3; {
		n, err := systemd.Read(said)
		if err != nil {
			t.Fatalf("systemd was told %d times that the agent is alive: %v", alive, err)
		}
		if strings.Contains(string(said[:n]), "WATCHDOG=1") && time.Since(since) > time.Second {
			alive++
		}
	}
	mill.eventually("a query is answered", func() error {
		out, err := mill.cli("scan", "--timeout", "2s", "--no-verify", "-o", "json")
		if err == nil && !strings.Contains(out, barnID) {
			err = errors.New(out)
		}
		return err
	})
	barn.awaitPeer(millID, "Present")
	select {
	case err := <-decided:
		t.Errorf("a decision was acknowledged before it was on the card: %v", err)
	default:
	}
	resume()
	if err := <-decided; err != nil {
		t.Error(err)
	}

	c.Fail(0.01)
	acknowledged, failed := 0, 0
	for n := 1; n <= 60 && (n <= 20 || failed == 0); n++ {
		if _, err := barn.cli("peers", "alias", millID, fmt.Sprint("mill-", n)); err != nil {
			failed++
			continue
		}
		acknowledged = n
	}
	c.Fail(0)
	if err := barn.agent.Kill(); err != nil {
		t.Fatal(err)
	}
	barn.start("--kubeconfig", "none")
	p := barn.awaitPeer(millID, "Present")
	var stored int
	if _, err := fmt.Sscanf(p.Alias, "mill-%d", &stored); err != nil || stored < acknowledged {
		t.Errorf("alias %q is stored, and mill-%d was acknowledged", p.Alias, acknowledged)
	}
	if st := barn.mustStatus(); st.State.Volatile || st.State.Recovered != "" || st.Identity.ClusterID != barnID {
		t.Errorf("%+v %+v", st.State, st.Identity)
	}
	t.Logf("decision %d is stored, %d was acknowledged last, %d failed", stored, acknowledged, failed)
}
