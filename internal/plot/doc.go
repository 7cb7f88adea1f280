// Package plot draws lines as SVG, for documents.
//
// # What this package must not do
//
// It knows nothing of what is drawn, and needs nothing but the viewer's fonts.
//
// # Goroutines
//
// None.
package plot
