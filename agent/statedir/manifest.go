package statedir

import (
	"errors"
	"fmt"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// Format is the version of the archive's layout that this build writes, and the only
// one that it reads.
const Format = 1

// manifestName is the first file of an archive.
const manifestName = "manifest.json"

// Manifest says what is in a backup. It is also the answer to "state backup -o json".
type Manifest struct {
	Format      int       `json:"format"`
	Version     string    `json:"version"` // of the agent that made it
	Schema      int       `json:"schema"`  // of the database
	ClusterID   string    `json:"clusterId"`
	Fingerprint string    `json:"fingerprint"` // of the cluster key
	CreatedAt   time.Time `json:"createdAt"`
	Files       []File    `json:"files"`
}

// File is one file of a backup.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // 64 hexadecimal digits
}

// ErrArchive: what was given as a backup is none, is damaged, or is from a version
// that this build does not know.
var ErrArchive = errors.New("no usable backup")

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrArchive, fmt.Sprintf(format, args...))
}

// check refuses what no agent writes.
func (m Manifest) check() error {
	if m.Format != Format {
		return bad("it has format %d, this liqo-agent reads format %d: use the version that made it (%q)", m.Format, Format, text.Excerpt(m.Version))
	}
	if _, err := peer.ParseFingerprint(m.Fingerprint); err != nil {
		return bad("its manifest has no fingerprint: %v", err)
	}
	if m.ClusterID != "" {
		if _, err := peer.ParseClusterID(m.ClusterID); err != nil {
			return bad("its manifest: %v", err)
		}
	}
	seen := make(map[string]bool)
	for _, f := range m.Files {
		limit, known := bounds[f.Name]
		switch {
		case !known:
			return bad("its manifest names %q, which is no file of the agent", text.Excerpt(f.Name))
		case seen[f.Name]:
			return bad("its manifest names %s twice", f.Name)
		case f.Size < 0 || f.Size > limit:
			return bad("%s has %d bytes, at most %d are allowed", f.Name, f.Size, limit)
		case len(f.SHA256) != 64:
			return bad("its manifest has no checksum of %s", f.Name)
		}
		seen[f.Name] = true
	}
	for _, name := range required {
		if !seen[name] {
			return bad("it has no %s", name)
		}
	}
	return nil
}
