package look

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// ErrNoProgram: the program that could tell is not installed.
var ErrNoProgram = errors.New("is not installed")

const (
	// commandTime bounds a command: what takes longer is broken.
	commandTime = 5 * time.Second
	// maxFile bounds what is read of a file of the kernel's.
	maxFile = 4 << 20
)

// programPath is where programs are looked for, whatever PATH says: the doctor is run
// as root.
var programPath = []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"}

// Command runs a program of the system and returns what it writes, at most so many
// bytes of it. An error that wraps ErrNoProgram says that there is no such program.
func Command(ctx context.Context, most int64, name string, args ...string) ([]byte, error) {
	path := ""
	for _, dir := range programPath {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode()&0o111 != 0 && !info.IsDir() {
			path = filepath.Join(dir, name)
			break
		}
	}
	if path == "" {
		return nil, fmt.Errorf("%s %w", name, ErrNoProgram)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "SYSTEMD_PAGER=", "SYSTEMD_COLORS=0"}
	cmd.WaitDelay = time.Second
	var out, complaint bounded
	out.most, complaint.most = most, 1<<10
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		if text := bytes.TrimSpace(complaint.Bytes()); len(text) > 0 {
			return out.Bytes(), fmt.Errorf("%s: %w: %s", name, err, bytes.ReplaceAll(text, []byte("\n"), []byte("; ")))
		}
		return out.Bytes(), fmt.Errorf("%s: %w", name, err)
	}
	return out.Bytes(), nil
}

// bounded keeps the first bytes that are written to it and drops the rest. The buffer
// is not embedded: its ReadFrom would take all there is.
type bounded struct {
	kept bytes.Buffer
	most int64
}

// Bytes returns what was kept.
func (b *bounded) Bytes() []byte { return b.kept.Bytes() }

func (b *bounded) Write(p []byte) (int, error) {
	if room := b.most - int64(b.kept.Len()); room > 0 {
		_, _ = b.kept.Write(p[:min(int64(len(p)), room)]) // it never fails
	}
	return len(p), nil
}

// readFile reads a file of bounded size.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only: nothing is lost
	return io.ReadAll(io.LimitReader(f, maxFile))
}

func keys[K comparable, V any](m map[K]V) iter.Seq[K] { return maps.Keys(m) }
