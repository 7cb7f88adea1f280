// Package card is a file system in memory that behaves as memory cards do: its syncs take time, it has errors, and what was
// written to it and not synced is gone, or partly there, after a power cut. It has one directory. Tests keep databases on it.
//
// A name of a file, and that it has another one or none, is on the card once the directory was synced, as POSIX has it; many file
// systems promise more.
//
// Its methods may be called from any goroutine. A process must not map files of a card that it serves itself: while it waits
// for a page, it may be unable to serve it.
package card
