package statedir

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// A backup that is made while the key is rotated has one of the two keys, and can be restored.
func TestBackupWhileTheKeyIsRotated(t *testing.T) {
	for range 8 {
		dir, scratch, target := t.TempDir(), t.TempDir(), t.TempDir()
		lived(t, dir, peer.ClusterID("11111111-1111-4111-8111-111111111111"))
		key, err := trust.LoadOrCreateKey(dir)
		must(t, err)
		rotated := make(chan error, 1)
		done, end := context.WithCancel(t.Context())
		go func() {
			for done.Err() == nil { // until the backup has begun, or on a busy machine has ended
				if begun, err := filepath.Glob(filepath.Join(scratch, ".liqo-agent-backup-*")); err != nil || len(begun) > 0 {
					break
				}
			}
			_, err := trust.Rotate(dir, key)
			rotated <- err
		}()
		var archive bytes.Buffer
		m, err := Backup(t.Context(), dir, "1", time.Now(), scratch, &archive)
		end()
		must(t, err)
		must(t, <-rotated)
		got, err := Restore(t.Context(), target, time.Now(), bytes.NewReader(archive.Bytes()))
		if err != nil || got.Problem != "" {
			t.Fatalf("the backup cannot be restored: %v %s", err, got.Problem)
		}
		restored, err := os.ReadFile(filepath.Join(target, trust.KeyFile))
		must(t, err)
		if there, err := trust.ParseKey(restored, nil); err != nil || there.Fingerprint().String() != m.Fingerprint {
			t.Errorf("the backup says that it has the key %s: %v", m.Fingerprint, err)
		}
	}
}
