// Package migrations holds the SQL files that build the agent's database, one
// per schema version, embedded in the binary.
//
// A file is named NNNN_what.sql; NNNN is the schema version the database has
// after it. Package state runs each missing file in a transaction of its own
// and records the version in PRAGMA user_version in that transaction. A file
// that was ever released is never edited: a change is a new file. The package
// holds data only; it performs no I/O and starts no goroutine.
package migrations

import "embed"

// FS holds the migrations, at its root, in the order of their names.
//
//go:embed *.sql
var FS embed.FS
