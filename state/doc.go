// Package state remembers what must outlive the process: who we are, which
// peers we met and where, what happened, what a person decided about them, and
// where else to look. It is one SQLite file with one writer.
//
// It stores what it is given and decides nothing: what a sighting means, when
// a peer counts as gone and whether a key is trusted are questions for others.
// It must not import a discovery package, and none of them imports it.
//
// Each table has one description (see table.go): its columns with their bounds, how
// a row is read and checked, when it is dropped. Reading, writing, forgetting,
// pruning, upgrades and salvage follow from it. A new table takes a migration, a
// description, and a line in the list of tables.
//
// Durability: a person's decisions and our identity are on the disk when the
// call returns (synchronous=FULL); observations may lose their last moments in
// a power cut, because they are simply observed again (synchronous=NORMAL).
// Neither a kill nor a power cut leaves a half-applied change. Nothing is
// written when nothing changed, and everything a neighbour can cause to be
// written has an upper bound: edge devices live on SD cards.
//
// Files beside the database: FILE.lock is held by the one agent that writes
// and names its process; FILE.suspect marks a database in which damage was
// found while running, so that the next start looks closely;
// FILE.damaged-TIME is a damaged database that was set aside; FILE.schemaN is the
// database as an older agent left it before the last upgrade; FILE.new,
// FILE.upgrade and the directories .salvage-* are databases in the making, and void
// when no agent runs.
//
// The package is larger than others because everything in it works on one connection by
// one set of descriptions: reads, writes, upgrades, checks and salvage.
//
// A Store has one connection behind one mutex and starts no goroutine of its
// own. Its methods are safe for concurrent use.
package state
