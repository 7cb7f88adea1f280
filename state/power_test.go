//go:build linux

package state

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/card"
	"liqo.io/agent/peer"
)

// powerEnv is the number of power cuts, and powerSeedEnv the seed of one.
const (
	powerEnv     = "LIQO_POWER_CUTS"
	powerSeedEnv = "LIQO_STATE_TEST_SEED"
)

// TestPowerCut cuts the power at random writes, on a card that has then by chance some of what was not synced. Whatever the
// moment: the database opens without repair, is sound, and has every decision that was acknowledged and all before it.
// Observations after that may be lost, the last first.
func TestPowerCut(t *testing.T) {
	cuts, err := strconv.Atoi(cmp.Or(os.Getenv(powerEnv), "10"))
	must(t, err)
	dir := t.TempDir()
	image, left, mount := filepath.Join(dir, "image"), filepath.Join(dir, "left"), filepath.Join(dir, "card")
	must(t, errors.Join(os.Mkdir(image, 0o700), os.Mkdir(mount, 0o700)))
	aliases, acked, total := map[peer.ClusterID]int{}, 0, 0
	for range cuts {
		seed := rand.Uint64()
		must(t, os.Mkdir(left, 0o700))
		cmd := mounting(helper(t, "cut-power", dir))
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", powerSeedEnv, seed))
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if errors.Is(err, syscall.EPERM) || strings.Contains(stderr.String(), "mount a card") {
			t.Skipf("nothing can be mounted here: %v %s", err, &stderr)
		}
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, &stderr)
		}
		for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); total++ {
			n, err := strconv.Atoi(lines.Text())
			must(t, err)
			if n%5 == 0 { // which decided something
				acked = n
				aliases[killPeer(n)] = n
			}
		}
		// What is looked at is a copy: the next one starts with what the power cut left.
		copied := t.TempDir()
		must(t, os.CopyFS(copied, os.DirFS(left)))
		stored := verifyKilled(t, filepath.Join(copied, "agent.db"), acked, aliases)
		if t.Failed() {
			t.Fatalf("seed %d: decision %d was acknowledged, %d is the last change that is stored", seed, acked, stored)
		}
		// What was not acknowledged and is lost may be decided again, differently.
		must(t, errors.Join(os.RemoveAll(image), os.Rename(left, image)))
	}
	if total == 0 {
		t.Fatal("nothing was ever written")
	}
	t.Logf("%d changes in %d lives", total, cuts)
}

// cutPower lets a child write to a card until its power goes. DIR/image is what was on the card before; what is left goes to
// DIR/left.
func cutPower(ctx context.Context, dir string) error {
	seed, err := strconv.ParseUint(os.Getenv(powerSeedEnv), 10, 64)
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount a card: %w", err)
	}
	mount := filepath.Join(dir, "card")
	c, err := card.Mount(mount, card.Options{CutAfter: 1 + rand.New(rand.NewPCG(seed, 1)).IntN(400), Seed: seed})
	if err != nil {
		return err
	}
	if err := c.Load(filepath.Join(dir, "image")); err != nil {
		return err
	}
	child := exec.CommandContext(ctx, "/proc/self/exe")
	child.Env = append(os.Environ(), helperEnv+"=write-forever="+filepath.Join(mount, "agent.db"))
	child.Stdout = os.Stdout
	var stderr strings.Builder
	child.Stderr = &stderr
	if err := child.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	select {
	case <-c.Cut():
		_ = child.Process.Kill()
		<-ended
	case err := <-ended:
		select {
		case <-c.Cut(): // it saw the error first
		default:
			return fmt.Errorf("the child has ended before the power cut: %w\n%s", err, &stderr)
		}
	}
	return errors.Join(c.Left(filepath.Join(dir, "left")), c.Close())
}
