package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Recovery tells what Open did about a damaged database.
type Recovery struct {
	At     time.Time
	Aside  string         // where the damaged file is now
	Damage string         // what was wrong with it
	Kept   map[string]int // rows carried over into the new file, by table
	Backup string         // the newest one beside the database; "" for none
}

// Identity reports whether the cluster ID was saved.
func (r *Recovery) Identity() bool { return r.Kept["identity"] > 0 }

// String is one line for a log or a status page.
func (r *Recovery) String() string {
	id, backup := "the cluster ID could not be read", "liqo-agent state restore"
	if r.Identity() {
		id = "the cluster ID was kept"
	}
	if r.Backup != "" {
		backup += "; the newest one here is " + r.Backup
	}
	return fmt.Sprintf("the state database was damaged (%s) and is now %s; %s, with %d decisions about keys, %d preferences, %d invites, %d peers and %d events; to have back what is missing, restore a backup (%s)",
		r.Damage, r.Aside, id, r.Kept["trust"], r.Kept["preferences"], r.Kept["invites"], r.Kept["peers"], r.Kept["events"], backup)
}

// replaceDamaged replaces a damaged database by one with what could be saved.
func (s *Store) replaceDamaged(ctx context.Context, all []migration, damage error) error {
	r := &Recovery{At: s.now().UTC(), Damage: damage.Error(), Backup: newestBackup(s.path)}
	err := s.replace(ctx, all, func(conn *sql.Conn) (err error) {
		r.Kept, err = salvage(ctx, s.path, conn, all)
		return err
	}, func() (err error) {
		r.Aside, err = setAside(s.path, r.At)
		return err
	})
	if err != nil {
		return fmt.Errorf("replace damaged %s: %w", s.path, err)
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

// newestBackup looks in the directory of the database for archives, and for what
// upgrades leave behind.
func newestBackup(path string) (newest string) {
	var when time.Time
	entries, _ := os.ReadDir(filepath.Dir(path)) // nothing to name is no problem
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.ModTime().After(when) &&
			(strings.HasSuffix(e.Name(), ".tar") || strings.HasPrefix(e.Name(), filepath.Base(path)+".schema")) {
			newest, when = filepath.Join(filepath.Dir(path), e.Name()), info.ModTime()
		}
	}
	return newest
}

// salvage carries over into an empty database every row of the damaged file at path
// that can be read and that the schema accepts. It reads a copy: the damaged file is
// evidence. Only failing to write is an error.
func salvage(ctx context.Context, path string, to *sql.Conn, all []migration) (map[string]int, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), SalvagePrefix)
	if err != nil {
		return nil, err
	}
	kept := map[string]int{}
	err = salvageFrom(ctx, path, filepath.Join(dir, "as-is"), nil, to, kept)
	if err == nil && kept[identityTable.name] == 0 {
		// It may still be readable with a sound list of tables. That is the same in
		// every database of one schema, and which schema it was, the lost pages knew.
		var lists []lent
		lists, err = tablesToLend(ctx, filepath.Join(dir, "blank"), all)
		for v := len(lists); v > 0 && err == nil; v-- {
			err = salvageFrom(ctx, path, filepath.Join(dir, strconv.Itoa(v)), &lists[v-1], to, kept)
		}
	}
	return kept, errors.Join(err, os.RemoveAll(dir))
}

// salvageFrom salvages what it can from a copy of the file at path, with another list
// of tables if it is given one.
func salvageFrom(ctx context.Context, path, file string, list *lent, to *sql.Conn, kept map[string]int) error {
	if err := copyDatabase(path, file); err != nil {
		return err
	}
	if list != nil {
		if err := list.lend(ctx, file); err != nil {
			return err
		}
	}
	db, from, err := dial(ctx, file, "mode=rw")
	if err != nil {
		return nil //nolint:nilerr // nothing to be had this way
	}
	defer hangUp(db, from) //nolint:errcheck // a throw-away copy
	return copyTables(ctx, from, to, kept)
}

// lent is what a database gets whose first page is lost, and with it the list of
// tables: that of an empty database of some schema. Where the tables begin agrees,
// because Open builds every database by the same steps, upgraded ones included.
type lent struct {
	page []byte // the first one of a database without tables
	rows []any  // of sqlite_schema, one after the other
}

// tablesToLend returns the lists of tables of all schemas, the oldest first. blank is a
// name for a file.
func tablesToLend(ctx context.Context, blank string, all []migration) ([]lent, error) {
	db, conn, err := buildFile(ctx, blank, nil)
	if err == nil {
		err = hangUp(db, conn)
	}
	if err != nil {
		return nil, err
	}
	page, err := os.ReadFile(blank)
	if err != nil {
		return nil, err
	}
	// It says that there are no more pages. SQLite goes by the file's size when the
	// counters at 24 and 92 differ.
	copy(page[24:28], []byte{0, 0, 0, 1})
	copy(page[92:96], []byte{0, 0, 0, 0})
	if db, conn, err = dial(ctx, "", ""); err != nil {
		return nil, err
	}
	defer hangUp(db, conn) //nolint:errcheck // nothing outlives it
	var lists []lent
	for v := range all {
		if err := migrate(ctx, conn, "in memory", all[:v+1]); err != nil {
			return nil, err
		}
		list := lent{page: page}
		if err := query(ctx, conn, func(scan func(...any) error) error {
			row := make([]any, schemaColumns)
			err := scan(&row[0], &row[1], &row[2], &row[3], &row[4])
			list.rows = append(list.rows, row...)
			return err
		}, "SELECT * FROM sqlite_schema"); err != nil {
			return nil, err
		}
		lists = append(lists, list)
	}
	return lists, nil
}

// schemaColumns is the number of columns of sqlite_schema.
const schemaColumns = 5

// lend gives the database in file its list of tables.
func (l *lent) lend(ctx context.Context, file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(l.page, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	db, conn, err := dial(ctx, file, "mode=rw")
	if err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "PRAGMA synchronous = OFF; PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)"+
		strings.Repeat(", (?, ?, ?, ?, ?)", len(l.rows)/schemaColumns-1), l.rows...)
	if err = errors.Join(err, hangUp(db, conn)); isDamage(err) {
		return nil // nothing to be had this way either
	}
	return err
}

// copyDatabase copies a database that nobody writes.
func copyDatabase(from, to string) error {
	for _, suffix := range []string{"", "-wal"} { // -shm is rebuilt from -wal
		if err := copyFile(from+suffix, to+suffix); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies a file; a missing one is left missing.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
