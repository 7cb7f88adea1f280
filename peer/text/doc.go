// Package text makes text of unknown origin fit to be shown: bounded in length, on
// one line, and without characters that a terminal acts on.
//
// [List] and [Time] are how lists and dates look wherever the agent shows them.
//
// It is a leaf without state. It does not escape for a format: whoever writes JSON,
// YAML, a shell command or a terminal's screen does that, with %q or the like.
package text
