// Package journal keeps what becomes of clusters: it says what happened between two
// views of one as the events of its history, and has views, sightings and events
// stored in the background, in few transactions.
//
// The package must not decide anything about a cluster, nor know the database: what
// stores is handed in.
//
// Goroutines: that of Run.
package journal
