// Package bundle writes a support archive: files that were put together elsewhere, in
// a tar.gz with a manifest, and no secrets in them.
//
// What goes into an archive is chosen by whoever fills it, and no secret is among it
// on purpose. A Scrubber then takes out what got in by accident, such as a token in a
// line of the log: the secrets of this box by their values, and everything that has
// the form of one. It must not be relied on alone.
//
// It reads nothing but what it is given and writes nothing but the archive. It has no
// goroutines.
package bundle
