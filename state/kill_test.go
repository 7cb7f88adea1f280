package state

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/peer"
)

const killPeers = 20

// writeForever applies numbered changes, continuing after the last one stored,
// and prints the number of each after it was committed. One change touches all
// tables; every fifth also decides something, every seventh prunes.
func writeForever(ctx context.Context, path string) error {
	s, err := Open(ctx, path, Options{Limits: Limits{Events: 400, EventsPerPeer: 100}})
	if err != nil {
		return err
	}
	if r := s.Recovery(); r != nil {
		return fmt.Errorf("recovered: %s", r)
	}
	if err := s.SetClusterID(ctx, "me", "test"); err != nil {
		return err
	}
	last, err := s.History(ctx, HistoryQuery{Limit: 1})
	if err != nil {
		return err
	}
	n := 0
	if len(last) == 1 {
		if n, err = strconv.Atoi(last[0].Detail); err != nil {
			return err
		}
	}
	for n++; ; n++ {
		if err := s.Apply(ctx, killChange(n)); err != nil {
			return err
		}
		if n%5 == 0 {
			id := killPeer(n)
			if err := s.SetAlias(ctx, id, fmt.Sprintf("%s at %d", id, n)); err != nil {
				return err
			}
		}
		if n%7 == 0 {
			if _, err := s.Prune(ctx, time.Hour); err != nil {
				return err
			}
		}
		fmt.Println(n)
	}
}

func killPeer(n int) peer.ClusterID { return peer.ClusterID(fmt.Sprintf("p%d", n%killPeers)) }

func killChange(n int) Change {
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 6447)
	p := peer.Peer{ID: killPeer(n), Name: strconv.Itoa(n), Source: peer.LAN, Addrs: []netip.AddrPort{addr}, LastSeen: time.Now()}
	return Change{
		Peers:     []peer.Peer{p},
		Sightings: map[peer.ClusterID][]peer.Sighting{p.ID: {{Source: peer.LAN, Link: "eth0", Instance: strconv.Itoa(n), Addrs: p.Addrs}}},
		Events:    []peer.Event{{At: time.Now(), ID: p.ID, Kind: peer.EventAddressChanged, Detail: strconv.Itoa(n)}},
	}
}

// TestKill kills a writing process at random moments. Whatever the moment: the
// database opens without repair, is sound, has everything that was
// acknowledged, and has no half of any change.
func TestKill(t *testing.T) {
	for i := range 2 { // killed one beside the other, as the disk is shared with others in life
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			t.Parallel()
			killAgain(t)
		})
	}
}

func killAgain(t *testing.T) {
	const rounds = 20 // what leaves half of a change is seen within eight
	path := filepath.Join(t.TempDir(), "agent.db")
	total := 0
	aliases := map[peer.ClusterID]int{} // the last acknowledged decision about each peer
	for round := range rounds {
		acked := killOne(t, path, aliases)
		total += acked
		stored := verifyKilled(t, path, acked, aliases)
		if t.Failed() {
			t.Fatalf("after round %d, in which %d was acknowledged and %d is stored", round, acked, stored)
		}
	}
	if total == 0 {
		t.Fatal("no child ever wrote anything")
	}
}

// killOne lets a child write for a while and returns the last number it
// acknowledged, or 0.
func killOne(t *testing.T, path string, aliases map[peer.ClusterID]int) int {
	t.Helper()
	cmd := helper(t, "write-forever", path)
	out, err := cmd.StdoutPipe()
	must(t, err)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	// Most kills hit the writing, some the opening.
	grace := time.Duration(rand.IntN(30)) * time.Millisecond
	lines := bufio.NewScanner(out)
	acked := 0
	next := func() bool {
		if !lines.Scan() {
			return false
		}
		acked, err = strconv.Atoi(lines.Text())
		must(t, err)
		if acked%5 == 0 {
			aliases[killPeer(acked)] = acked
		}
		return true
	}
	if rand.IntN(10) > 0 {
		next()
	}
	kill := time.AfterFunc(grace, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	for next() {
	}
	if err := cmd.Wait(); err == nil || stderr.Len() > 0 {
		t.Fatalf("the child was not killed but ended: %v, %s", err, &stderr)
	}
	return acked
}

func verifyKilled(t *testing.T, path string, acked int, aliases map[peer.ClusterID]int) int {
	t.Helper()
	s, err := Open(t.Context(), path, Options{})
	must(t, err)
	defer func() { must(t, s.Close()) }()
	if r := s.Recovery(); r != nil {
		t.Errorf("the database needed repair: %s", r)
	}
	must(t, s.Check(t.Context()))
	history, err := s.History(t.Context(), HistoryQuery{})
	must(t, err)
	if len(history) == 0 {
		if acked > 0 {
			t.Errorf("change %d was acknowledged and nothing is stored", acked)
		}
		return 0
	}
	last, err := strconv.Atoi(history[len(history)-1].Detail)
	must(t, err)
	if last < acked {
		t.Errorf("change %d was acknowledged, the last one stored is %d", acked, last)
	}
	for i, e := range history {
		if want := strconv.Itoa(last - len(history) + 1 + i); e.Detail != want {
			t.Errorf("event %d of the history is %s, want %s", i, e.Detail, want)
		}
	}
	if id, err := s.ClusterID(t.Context()); err != nil || id != "me" {
		t.Errorf("ClusterID = %q, %v", id, err)
	}
	peers, err := s.Peers(t.Context())
	must(t, err)
	for _, p := range peers {
		n, err := strconv.Atoi(p.Name)
		must(t, err)
		want := killChange(n)
		if n > last || n <= last-killPeers {
			t.Errorf("peer %s is as of change %d, the last is %d", p.ID, n, last)
		}
		if len(p.Addrs) != 1 || p.Addrs[0] != want.Peers[0].Addrs[0] {
			t.Errorf("peer %s as of change %d has addresses %v", p.ID, n, p.Addrs)
		}
		seen, err := s.Sightings(t.Context(), p.ID)
		must(t, err)
		if len(seen) != 1 || seen[0].Instance != p.Name {
			t.Errorf("peer %s as of change %d has sightings %v", p.ID, n, seen)
		}
		// A later decision, killed before it was acknowledged, may be there.
		if acked, ok := aliases[p.ID]; ok {
			_, number, _ := strings.Cut(p.Alias, " at ")
			if n, err := strconv.Atoi(number); err != nil || n < acked {
				t.Errorf("peer %s has alias %q, that of change %d was acknowledged", p.ID, p.Alias, acked)
			}
		}
	}
	return last
}
