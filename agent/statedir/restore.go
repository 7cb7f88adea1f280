package statedir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// Restored is what Restore did.
type Restored struct {
	Manifest Manifest `json:"manifest"`
	// Aside is the directory with what was there before, "" when nothing was.
	Aside string `json:"aside"`
	// Problem is what is not as it should be in the backup itself, "" for nothing.
	Problem string `json:"problem"`
}

// commit says what is to be put in place. From when it is on the disk, the restore
// is carried out, whatever happens.
type commit struct {
	Aside string   `json:"aside"` // name of the directory for what was there before
	Files []string `json:"files"`
}

const commitFile = "commit.json"

// Restore puts the backup that r has in the place of the state in dir, all of it or,
// after an error, nothing. Everything is checked first; what was there is moved to a
// directory beside it, which is named after the time. Files get the owner of dir.
//
// It refuses while an agent runs (state.ErrLocked), what is no whole backup
// (ErrArchive), and a database of a newer schema (state.ErrNewerSchema).
//
// The cluster ID of the backup belongs to its key: an agent that starts with it
// claims it (see Claim).
func Restore(ctx context.Context, dir string, now time.Time, r io.Reader) (out Restored, err error) {
	release, err := hold(ctx, dir)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := Finish(dir); err != nil {
		return out, err
	}
	staging := filepath.Join(dir, restoreDir)
	if err := os.Mkdir(staging, 0o700); err != nil {
		return out, err
	}
	out, err = stage(ctx, dir, now, r)
	if err != nil {
		return out, errors.Join(err, os.RemoveAll(staging))
	}
	return out, Finish(dir)
}

// hold keeps agents out of dir. The lock is to be usable by whoever owns dir.
func hold(ctx context.Context, dir string) (release func() error, err error) {
	release, err = state.Hold(ctx, filepath.Join(dir, Database))
	if err != nil {
		return nil, err
	}
	if err := own(filepath.Join(dir, lockFile), dir); err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

// stage extracts and checks a backup, makes its files what they are to be, and
// commits.
func stage(ctx context.Context, dir string, now time.Time, r io.Reader) (out Restored, err error) {
	staging := filepath.Join(dir, restoreDir)
	if out.Manifest, err = extract(r, staging); err != nil {
		return out, err
	}
	if out.Problem, err = verify(ctx, staging, out.Manifest); err != nil {
		return out, err
	}
	var c commit
	for _, f := range out.Manifest.Files {
		c.Files = append(c.Files, f.Name)
	}
	if id := out.Manifest.ClusterID; id != "" {
		if err := writeJSON(filepath.Join(staging, claimFile), claim{ID: peer.ClusterID(id), Origin: "backup"}); err != nil {
			return out, err
		}
		c.Files = append(c.Files, claimFile)
	}
	for _, name := range c.Files {
		path, mode := filepath.Join(staging, name), fs.FileMode(0o600)
		switch name {
		case Database:
			mode = 0o640
		case FleetFile:
			mode = 0o644
		}
		if err := errors.Join(os.Chmod(path, mode), own(path, dir)); err != nil {
			return out, err
		}
	}
	present, err := names(dir)
	if err != nil {
		return out, err
	}
	if slices.ContainsFunc(present, replaced) {
		base := asideDir + now.UTC().Format("20060102T150405Z")
		c.Aside = base
		for n := 2; slices.Contains(present, c.Aside); n++ {
			c.Aside = fmt.Sprintf("%s-%d", base, n)
		}
		out.Aside = filepath.Join(dir, c.Aside)
	}
	if err := syncPath(staging); err != nil {
		return out, err
	}
	return out, writeJSON(filepath.Join(staging, commitFile), c)
}

// verify checks that the files of a backup are what its manifest says that they are,
// and can be used by this build.
func verify(ctx context.Context, staging string, m Manifest) (problem string, err error) {
	found, err := state.Examine(ctx, filepath.Join(staging, Database))
	switch {
	case errors.Is(err, state.ErrNewerSchema):
		return "", &newerBackup{version: m.Version, have: m.Schema, cause: err}
	case errors.Is(err, state.ErrDamaged):
		return "", fmt.Errorf("%w: its database is damaged (%w)", ErrArchive, err)
	case err != nil:
		return "", err
	case string(found.ClusterID) != m.ClusterID || found.Schema != m.Schema:
		return "", bad("its database is not the one that its manifest describes")
	}
	key, err := readKey(staging)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrArchive, err)
	}
	if key.Fingerprint().String() != m.Fingerprint {
		return "", bad("its key is not the one that its manifest names")
	}
	if err := key.ChainProblem(); err != nil {
		problem = fmt.Sprintf("%s: %v: peers that knew an earlier key may have to trust this one anew", trust.ChainFile, err)
	}
	return problem, nil
}

// newerBackup is a backup that a newer agent made.
type newerBackup struct {
	version string
	have    int
	cause   error
}

func (e *newerBackup) Error() string {
	return fmt.Sprintf("the backup has a database of schema %d, this liqo-agent knows schemas up to %d: install liqo-agent %s, which made it, or a newer one",
		e.have, state.SchemaVersion(), text.Excerpt(e.version))
}

func (e *newerBackup) Unwrap() error { return e.cause }

// Finish goes on with a restore that was cut off: one that was committed is carried
// out, another one is void. It does nothing when there is none. Whoever calls it
// must be alone with dir, as an agent is that has not opened its state yet.
func Finish(dir string) error {
	staging := filepath.Join(dir, restoreDir)
	if _, err := os.Lstat(staging); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var c commit
	committed, err := readJSON(filepath.Join(staging, commitFile), &c)
	if err == nil && committed {
		err = carryOut(dir, c)
	}
	if err == nil {
		err = os.RemoveAll(staging)
	}
	if err == nil {
		err = syncPath(dir)
	}
	if err != nil {
		return fmt.Errorf("a restore of a backup in %s is not finished: %w; see what is wrong with the disk, then start the agent or restore again", dir, err)
	}
	return nil
}

// carryOut sets aside what is there, then gives the new files their names. It may be
// cut off and called again any number of times. A file of a name that is not staged
// any more is in place already.
func carryOut(dir string, c commit) error {
	staging, aside := filepath.Join(dir, restoreDir), filepath.Join(dir, c.Aside)
	present, err := names(dir)
	if err != nil {
		return err
	}
	staged, err := names(staging)
	if err != nil {
		return err
	}
	made := false
	for _, name := range present {
		if !replaced(name) || slices.Contains(c.Files, name) && !slices.Contains(staged, name) {
			continue
		}
		if c.Aside == "" {
			return fmt.Errorf("%s appeared meanwhile", name)
		}
		if !made {
			if err := os.Mkdir(aside, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if err := own(aside, dir); err != nil {
				return err
			}
			made = true
		}
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(aside, name)); err != nil {
			return err
		}
	}
	if made {
		if err := errors.Join(syncPath(aside), syncPath(dir)); err != nil {
			return err
		}
	}
	for _, name := range c.Files {
		if !slices.Contains(staged, name) {
			continue
		}
		if err := os.Rename(filepath.Join(staging, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return syncPath(dir)
}

// Resume is Finish for whoever is about to open the state: it keeps agents out
// meanwhile, and does nothing where nothing was cut off.
func Resume(ctx context.Context, dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, restoreDir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	release, err := hold(ctx, dir)
	if err != nil {
		return err
	}
	return errors.Join(Finish(dir), release())
}
