// Package peer holds the plain values every other package speaks in: cluster
// IDs, key fingerprints, sightings, and the merged view of one peer.
//
// It is a leaf: it imports the standard library and peer/text only, performs no I/O, starts
// no goroutine, and keeps no state. Values are immutable once published; a
// holder that wants to change one clones it first.
package peer
