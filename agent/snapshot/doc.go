// Package snapshot reads the metrics of one session from its parts.
//
// Goroutines: it starts none.
package snapshot
