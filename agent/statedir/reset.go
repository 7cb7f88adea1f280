package statedir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/peer"
)

// Reset is a reset that was asked for and has not ended. It is kept in the state
// directory, so that it goes on after whatever cut it off.
type Reset struct {
	// ID is this cluster's ID after the reset.
	ID peer.ClusterID `json:"id"`
	// Identity: key and ID are new ones, else both stay.
	Identity bool `json:"identity"`
	// Stop: the agent ends when it is done, instead of going on as a fresh one.
	Stop bool      `json:"stop"`
	By   string    `json:"by"`
	At   time.Time `json:"at"`
	// Parted: the peers were told, or it was given up to reach them.
	Parted bool `json:"parted"`
}

// PendingReset returns the reset that is under way in dir.
func PendingReset(dir string) (r Reset, found bool, err error) {
	found, err = readJSON(filepath.Join(dir, resetFile), &r)
	return r, found, err
}

// BeginReset keeps a reset, or its progress. It is on the disk when it returns.
func BeginReset(dir string, r Reset) error { return writeJSON(filepath.Join(dir, resetFile), r) }

// Clear makes dir what it was before the agent first ran, but for the identity if
// that stays, and ends the reset. It may be cut off and called again. left names
// what is there and not the agent's.
//
// Nobody else may use dir meanwhile; an agent that runs is an error that wraps
// state.ErrLocked.
func Clear(ctx context.Context, dir string, r Reset) (left []string, err error) {
	release, err := hold(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := BeginReset(dir, r); err != nil {
		return nil, err
	}
	if r.ID != "" {
		// Before the database, which knows the ID so far.
		if err := writeJSON(filepath.Join(dir, claimFile), claim{ID: r.ID, Origin: "reset"}); err != nil {
			return nil, err
		}
	}
	present, err := names(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range present {
		switch {
		case name == lockFile, name == resetFile, name == claimFile:
		case slices.Contains(identity, name):
			if r.Identity {
				err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
			}
		case ofDatabase(name), unfinished(name), slices.Contains(made, name), name == restoreDir, strings.HasPrefix(name, asideDir),
			name == claimFile+".new", name == resetFile+".new":
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
		default:
			left = append(left, name)
		}
	}
	if err == nil {
		err = syncPath(dir)
	}
	if err == nil {
		err = removeIfThere(filepath.Join(dir, resetFile))
	}
	if err == nil {
		err = syncPath(dir)
	}
	return left, err
}
