// Package statedir works on the agent's state directory as a whole: it backs it up,
// restores it, checks it, and empties it for a reset.
//
// It touches only files on its list of what belongs to the agent; nothing else is
// ever moved or deleted. A backup contains the database, the cluster key with the
// certificates of its rotations, and the fleet certificate if there is one: whoever
// has a backup can act as this cluster. It is a tar archive that begins with a
// manifest. A restore accepts only known names and bounded sizes in the manifest, and
// compares every file with it before it uses any.
//
// A restore or a reset takes several steps on the disk. Before the first step that
// cannot be undone, a file records what is to be done. After a kill or a power cut,
// the agent continues from that file when it starts: a restore with [Resume], a reset
// with [PendingReset] and [Clear]. Restore, Resume and Clear hold the lock of package
// state, so that no agent uses the directory meanwhile.
//
// The package must not talk to peers or API servers: the agent does what a restore or
// a reset needs there. It starts no goroutine.
package statedir
