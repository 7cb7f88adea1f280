// Package statedir looks after the agent's state directory as a whole: it writes it
// into a backup, puts one in its place, says whether it is sound, and empties it.
//
// What belongs to the agent there is on a list; nothing else is ever moved or
// deleted. A backup has the database, the cluster key with the certificates that
// lead to it, and the fleet certificate if it is there: who has it can be this
// cluster. It is a tar archive that begins with a manifest; nothing in one is
// believed before it was compared with that, and what it says about sizes and
// names is held to bounds first.
//
// Restoring and emptying take several steps on the disk. Before the first that
// cannot be taken back, a file says what is to be done; [Finish], which the agent
// calls at its start, goes on from there after a kill or a power cut. Both keep
// running agents out by the lock of package state.
//
// The package must not talk to peers or API servers: what else belongs to a restore
// or a reset is the agent's. It starts no goroutine.
package statedir
