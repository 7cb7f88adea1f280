package statedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

const (
	// littleSpace is how many free bytes are too few to go on for long, and noSpace to
	// store anything.
	littleSpace = 32 << 20
	noSpace     = 1 << 20
)

// The severities of a Finding.
const (
	Error   = "error"
	Warning = "warning"
)

// Report says how a state directory is. It is the answer to "state check -o json".
type Report struct {
	Dir string `json:"dir"`
	// Sound: there is no error among the findings.
	Sound     bool         `json:"sound"`
	Database  DatabaseInfo `json:"database"`
	Key       KeyInfo      `json:"key"`
	Files     []FileInfo   `json:"files"`
	UsedBytes int64        `json:"usedBytes"` // by all files
	FreeBytes int64        `json:"freeBytes"` // on the disk
	// Kept are copies that an upgrade, a restore or damage left behind, and that can be
	// deleted when nobody needs them.
	Kept     []string  `json:"kept"`
	Findings []Finding `json:"findings"`
}

// DatabaseInfo is about the database.
type DatabaseInfo struct {
	Path        string `json:"path"`
	Sound       bool   `json:"sound"`
	Schema      int    `json:"schema"`      // 0 when it cannot be read
	KnownSchema int    `json:"knownSchema"` // the newest that this program knows
	ClusterID   string `json:"clusterId"`
	WrittenBy   string `json:"writtenBy"` // version of the agent, "" when it does not say
	Bytes       int64  `json:"bytes"`
}

// KeyInfo is about the cluster key.
type KeyInfo struct {
	Path        string `json:"path"`
	Fingerprint string `json:"fingerprint"` // "" when it cannot be read
	Successions int    `json:"successions"` // certificates by which earlier keys lead to it
}

// FileInfo is one file of the agent's.
type FileInfo struct {
	Name  string `json:"name"`
	Mode  string `json:"mode"`
	UID   int    `json:"uid"`
	GID   int    `json:"gid"`
	Bytes int64  `json:"bytes"`
}

// Finding is something that is not as it should be.
type Finding struct {
	Severity string `json:"severity"`
	Text     string `json:"text"`
	Remedy   string `json:"remedy"`
}

func (r *Report) find(severity, text, remedy string) {
	r.Findings = append(r.Findings, Finding{Severity: severity, Text: text, Remedy: remedy})
}

// Check looks at everything in dir, beside a running agent or without one, and
// changes nothing. What it cannot read is a finding; an error means that there is no
// such directory to look at.
func Check(ctx context.Context, dir string) (Report, error) {
	r := Report{Dir: dir, Files: []FileInfo{}, Kept: []string{}, Findings: []Finding{}}
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("there is no state directory %s: has the agent ever run, and with this state.dir? %w", dir, err)
	}
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", dir)
	}
	if err != nil {
		return r, err
	}
	r.checkDatabase(ctx)
	r.checkKey()
	if err := r.checkFiles(info); err != nil {
		r.find(Error, err.Error(), "run this as root, or as the user that the agent runs as")
	}
	r.checkSpace()
	r.Sound = true
	for _, f := range r.Findings {
		r.Sound = r.Sound && f.Severity != Error
	}
	return r, nil
}

func (r *Report) checkDatabase(ctx context.Context) {
	path := filepath.Join(r.Dir, Database)
	found, err := state.Examine(ctx, path)
	r.Database = DatabaseInfo{Path: path, Sound: err == nil, Schema: found.Schema, KnownSchema: found.Known,
		ClusterID: string(found.ClusterID), WrittenBy: found.Writer, Bytes: found.Size}
	switch {
	case err == nil && found.Schema < found.Known:
		r.find(Warning, fmt.Sprintf("the database has schema %d, this program's agent has schema %d", found.Schema, found.Known),
			"nothing has to be done: the agent brings it up to date when it starts, and keeps a copy")
	case err == nil:
	case errors.Is(err, state.ErrNoDatabase):
		r.find(Warning, "there is no database yet", "start the agent once, or restore a backup: liqo-agent state restore FILE")
	case errors.Is(err, state.ErrReadOnly):
		r.find(Error, err.Error(), "run this as root, or as the user that the agent runs as")
	case errors.Is(err, state.ErrNewerSchema):
		r.find(Error, err.Error(), "install the version that wrote it, or restore a backup of this one: liqo-agent state restore FILE")
	default:
		r.find(Error, err.Error(), "restore a backup (liqo-agent state restore FILE), or start the agent, which keeps what can still be read")
	}
}

func (r *Report) checkKey() {
	r.Key.Path = filepath.Join(r.Dir, trust.KeyFile)
	key, err := readKey(r.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.find(Warning, "there is no cluster key", "start the agent, which makes one, or restore a backup if peers know this cluster: liqo-agent state restore FILE")
		return
	case errors.Is(err, fs.ErrPermission):
		r.find(Error, err.Error(), "run this as root, or as the user that the agent runs as")
		return
	case err != nil:
		r.find(Error, fmt.Sprintf("%s: %v", r.Key.Path, err), "restore a backup: liqo-agent state restore FILE; with a new key every peer has to trust this cluster again")
		return
	}
	r.Key.Fingerprint, r.Key.Successions = key.Fingerprint().String(), len(key.Successions())
	if err := key.ChainProblem(); err != nil {
		r.find(Warning, fmt.Sprintf("%s: %v", filepath.Join(r.Dir, trust.ChainFile), err),
			"restore it from a backup; without it, peers that knew an earlier key have to trust the present one: liqo-agent peers trust")
	}
}

// checkFiles looks at who can read and write what.
func (r *Report) checkFiles(dir fs.FileInfo) error {
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		return err
	}
	owner := uidOf(dir)
	if dir.Mode().Perm()&0o022 != 0 {
		r.find(Error, fmt.Sprintf("%s has mode %04o: others than its owner can replace what is in it", r.Dir, dir.Mode().Perm()), "chmod 750 "+r.Dir)
	}
	for _, e := range entries {
		name := e.Name()
		path := filepath.Join(r.Dir, name)
		info, err := os.Stat(path)
		if err != nil {
			continue // gone since, or a link to nothing, which is no file of ours
		}
		switch {
		case name == restoreDir:
			r.find(Error, "a restore was cut off", "start the agent, or restore again: it is carried out or undone as a whole")
		case name == resetFile:
			r.find(Warning, "a reset is under way, or was cut off", "start the agent, which goes on with it: liqo-agent reset shows how far it is")
		case strings.HasPrefix(name, asideDir), strings.HasPrefix(name, Database+".damaged-"), strings.HasPrefix(name, Database+".schema"):
			r.Kept = append(r.Kept, path)
		}
		r.UsedBytes += size(path, info)
		if !replaced(name) && name != lockFile || !info.Mode().IsRegular() {
			continue
		}
		st, _ := info.Sys().(*syscall.Stat_t)
		file := FileInfo{Name: name, Mode: fmt.Sprintf("%04o", info.Mode().Perm()), Bytes: info.Size(), UID: uidOf(info)}
		if st != nil {
			file.GID = int(st.Gid)
		}
		r.Files = append(r.Files, file)
		switch {
		case name == trust.KeyFile && info.Mode().Perm()&0o077 != 0:
			r.find(Error, fmt.Sprintf("%s has mode %s: others can read the key", path, file.Mode), "chmod 600 "+path)
		case name != FleetFile && info.Mode().Perm()&0o022 != 0:
			r.find(Error, fmt.Sprintf("%s has mode %s: others can write it", path, file.Mode), "chmod go-w "+path)
		}
		if file.UID != owner && !(file.UID == 0 && (name == trust.KeyFile || name == trust.ChainFile || name == FleetFile)) {
			r.find(Warning, fmt.Sprintf("%s belongs to user %d, the directory to user %d: an agent that runs as one of them cannot use it all", path, file.UID, owner),
				fmt.Sprintf("chown --reference=%s %s", r.Dir, path))
		}
	}
	return nil
}

func uidOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// size adds up the files of a directory.
func size(path string, info fs.FileInfo) int64 {
	if !info.IsDir() {
		return info.Size()
	}
	var total int64
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil // what cannot be read is not counted
	})
	return total
}

func (r *Report) checkSpace() {
	var st unix.Statfs_t
	if err := unix.Statfs(r.Dir, &st); err != nil {
		r.find(Warning, fmt.Sprintf("the free space of the disk is not known: %v", err), "")
		return
	}
	r.FreeBytes = int64(st.Bavail) * int64(st.Bsize)
	switch {
	case r.FreeBytes < noSpace:
		r.find(Error, fmt.Sprintf("%d KiB are free on the disk of %s: nothing can be stored", r.FreeBytes>>10, r.Dir), "free some space on it")
	case r.FreeBytes < max(littleSpace, 2*r.Database.Bytes):
		r.find(Warning, fmt.Sprintf("%d MiB are free on the disk of %s: an upgrade or a backup may not fit", r.FreeBytes>>20, r.Dir), "free some space on it")
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		r.find(Error, fmt.Sprintf("the disk of %s is mounted read-only", r.Dir), "see the kernel's log for why, and mount it for writing")
	}
}
