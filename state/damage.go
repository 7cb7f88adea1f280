package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Recovery tells what Open did about a damaged database.
type Recovery struct {
	At     time.Time
	Aside  string         // where the damaged file is now
	Damage string         // what was wrong with it
	Kept   map[string]int // rows carried over into the new file, by table
}

// Identity reports whether the cluster ID was saved.
func (r *Recovery) Identity() bool { return r.Kept["identity"] > 0 }

// String is one line for a log or a status page.
func (r *Recovery) String() string {
	id := "the cluster ID could not be read"
	if r.Identity() {
		id = "the cluster ID was kept"
	}
	return fmt.Sprintf("the state database was damaged (%s) and is now %s; %s, with %d decisions about keys, %d preferences, %d peers and %d events",
		r.Damage, r.Aside, id, r.Kept["trust"], r.Kept["preferences"], r.Kept["peers"], r.Kept["events"])
}

// replaceDamaged replaces a damaged database. The new one is complete, with what
// could be saved, before the damaged one loses its name; so a failure or a
// kill on the way leaves the damaged one for the next attempt.
func (s *Store) replaceDamaged(ctx context.Context, all []migration, damage error) error {
	r := &Recovery{At: s.now().UTC(), Damage: damage.Error()}
	db, conn, err := buildFile(ctx, buildName(s.path), all)
	if err != nil {
		return errors.Join(err, removeAll(buildName(s.path)))
	}
	r.Kept, err = salvage(ctx, s.path, conn)
	if err = errors.Join(err, hangUp(db, conn)); err == nil {
		r.Aside, err = setAside(s.path, r.At)
	}
	if err == nil {
		err = os.Rename(buildName(s.path), s.path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(s.path))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("replace damaged %s: %w", s.path, err), removeAll(buildName(s.path)))
	}
	if err := os.Remove(suspectName(s.path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.recovery = r
	s.db, s.conn, err = dialWriter(ctx, s.path, shared)
	return err
}

// setAside gives the damaged database and its side files a name that tells
// when. The side files go first: the log of the old file must never meet the
// new one. The main file gets a second name and keeps its own until the new
// file replaces it, where the file system can do that.
func setAside(path string, at time.Time) (string, error) {
	base := path + ".damaged-" + at.Format("20060102T150405Z")
	to := base
	for n := 2; ; n++ {
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		}
		to = fmt.Sprintf("%s-%d", base, n)
	}
	for _, suffix := range sideFiles[1:] {
		if err := os.Rename(path+suffix, to+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	err := os.Link(path, to)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(path, to)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return to, syncDir(filepath.Dir(path))
}

// check runs one of SQLite's own checks and returns ErrDamaged with its first
// finding.
func check(ctx context.Context, conn *sql.Conn, pragma string) error {
	var result string
	if err := conn.QueryRowContext(ctx, "PRAGMA "+pragma+"(1)").Scan(&result); err != nil {
		return err
	}
	if result != "ok" {
		// The first of two lines only says which database: ours.
		return finding(result[strings.LastIndexByte(result, '\n')+1:])
	}
	return nil
}

// Check reads the whole database and returns an error wrapping ErrDamaged when
// it is not sound. Open does the same for small files only, so an agent calls
// this once after its start. It works beside other calls, on a connection of
// its own, and stops when ctx ends. Found damage is marked, so that the next
// Open repairs it.
func (s *Store) Check(ctx context.Context) error {
	if s.Volatile() {
		return nil
	}
	if s.exclusive {
		return s.read(ctx, func(ctx context.Context) error { return checkAll(ctx, s.conn) })
	}
	db, conn, err := dial(ctx, s.path, "mode=ro")
	if err != nil {
		return s.failed(err)
	}
	return s.failed(errors.Join(checkAll(ctx, conn), hangUp(db, conn)))
}

func checkAll(ctx context.Context, conn *sql.Conn) error {
	if err := check(ctx, conn, "integrity_check"); err != nil {
		return err
	}
	return checkReferences(ctx, conn)
}

func checkReferences(ctx context.Context, conn *sql.Conn) error {
	return query(ctx, conn, func(scan func(...any) error) error {
		var table, parent string
		var row sql.NullInt64
		var index int
		if err := scan(&table, &row, &parent, &index); err != nil {
			return err
		}
		return finding(fmt.Sprintf("a row of %s refers to a missing row of %s", table, parent))
	}, "PRAGMA foreign_key_check")
}
