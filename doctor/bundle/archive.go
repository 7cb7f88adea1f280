package bundle

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// ErrExists: there is a file of that name already.
var ErrExists = errors.New("there is such a file already")

// Part is one file of an archive.
type Part struct {
	Name    string // below the archive's directory, with slashes
	Content []byte
}

// LeftOut is what is not in the archive, and why.
type LeftOut struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// File is one file of an archive, in its manifest.
type File struct {
	Name   string `json:"name"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Manifest says what is in an archive. It is its first file, manifest.json.
type Manifest struct {
	Format   int       `json:"format"` // 1
	Program  string    `json:"program"`
	At       time.Time `json:"at"`
	Redacted bool      `json:"redacted"` // names and addresses were replaced
	Files    []File    `json:"files"`
	LeftOut  []LeftOut `json:"leftOut"`
	Never    []string  `json:"never"` // what never is in an archive
}

// never is what an archive never holds.
var never = []string{
	"private keys, certificates' keys, the cluster key and its chain", "invites and their secrets", "kubeconfigs and tokens",
	"Kubernetes Secrets and ConfigMaps", "the database", "values of environment variables",
}

// Write writes an archive of mode 0600: as a whole or not at all. It never
// overwrites a file: the error wraps ErrExists then. All parts go through s.
func Write(path string, m Manifest, parts []Part, s *Scrubber) (_ Manifest, err error) {
	if _, err := os.Lstat(path); err == nil {
		return m, fmt.Errorf("%s: %w; name another one, or remove it", path, ErrExists)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return m, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".doctor-*") // 0600
	if err != nil {
		return m, fmt.Errorf("write the archive: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreClosed(f.Close()), os.Remove(f.Name()))
		}
	}()
	m.Format, m.Never = 1, never
	if m.LeftOut == nil {
		m.LeftOut = []LeftOut{}
	}
	clean := make([]Part, 0, len(parts)+1)
	for _, p := range parts {
		content := s.Scrub(p.Content)
		sum := sha256.Sum256(content)
		m.Files = append(m.Files, File{Name: p.Name, Bytes: len(content), SHA256: hex.EncodeToString(sum[:])})
		clean = append(clean, Part{p.Name, content})
	}
	for i, l := range m.LeftOut {
		m.LeftOut[i].Reason = string(s.Scrub([]byte(l.Reason)))
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, err
	}
	clean = append([]Part{{"manifest.json", append(text, '\n')}}, clean...)
	if err := pack(f, clean, m.At); err != nil {
		return m, fmt.Errorf("write the archive %s: %w", path, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return m, fmt.Errorf("write the archive %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return m, fmt.Errorf("write the archive: %w", err)
	}
	return m, nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// directory is the one that all files of an archive are in.
const directory = "liqo-agent-doctor/"

func pack(to io.Writer, parts []Part, at time.Time) error {
	z := gzip.NewWriter(to)
	t := tar.NewWriter(z)
	for _, p := range parts {
		if err := t.WriteHeader(&tar.Header{Name: directory + p.Name, Mode: 0o600, Size: int64(len(p.Content)), ModTime: at, Format: tar.FormatPAX}); err != nil {
			return err
		}
		if _, err := t.Write(p.Content); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}
