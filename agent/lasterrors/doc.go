// Package lasterrors keeps the newest warnings and errors of the log, for status.
//
// Goroutines: it starts none. A Log is safe for concurrent use.
package lasterrors
