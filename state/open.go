package state

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Options of Open. The zero value is what the agent normally uses.
type Options struct {
	Logger *slog.Logger     // default: discard
	Now    func() time.Time // default: time.Now
	Limits Limits
	// Memory opens a database that lives in memory and ends with the process.
	// It begins with what can be read at the path, and never writes there. It
	// is the fallback of an agent whose disk cannot be written, and Volatile
	// tells.
	Memory bool
}

// quickCheckLimit is the size in bytes up to which Open checks every page.
// A larger file is checked by Check, after the start.
const quickCheckLimit = 1 << 20

// sqliteMagic begins every SQLite 3 file.
var sqliteMagic = []byte("SQLite format 3\x00")

func suspectName(path string) string { return path + ".suspect" }
func buildName(path string) string   { return path + ".new" }
func upgradeName(path string) string { return path + ".upgrade" }

// SalvagePrefix is how the names of the directories begin in which what can be read of a damaged database is saved. They are next to
// the database, and mean nothing when no agent runs.
const SalvagePrefix = ".salvage-"

// removeSalvages removes what salvages that were killed have left.
func removeSalvages(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), SalvagePrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// Open opens the database at path for reading and writing, and creates it and
// its directory when there is none. The caller is then the only writer.
//
// The errors to expect wrap ErrLocked, ErrNewerSchema, ErrReadOnly or ErrFull
// and leave the file as it was. A full disk is one at the very first start, and
// at the first start of an agent with a newer schema, only: later everything
// can be read, and each change says ErrFull until there is space. A damaged file is no error: it is set aside
// under a name of its own, what can be read of it is carried over into a new
// one, and Recovered tells.
func Open(ctx context.Context, path string, opts Options) (*Store, error) {
	s := &Store{now: opts.Now, logger: opts.Logger, limits: opts.Limits.orDefault(), events: -1}
	if s.now == nil {
		s.now = time.Now
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx) // a start is short, and interrupting one half-way helps nobody
	all, err := builtinMigrations()
	if err != nil {
		return nil, err
	}
	if opts.Memory {
		if s.db, s.conn, err = dialWriter(ctx, "", ""); err != nil {
			return nil, err
		}
		if err = migrate(ctx, s.conn, "in memory", all); err == nil {
			err = s.remember(ctx, path)
		}
		if err != nil {
			return nil, errors.Join(err, hangUp(s.db, s.conn))
		}
		return s, nil
	}
	if s.path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if err := makeDir(filepath.Dir(s.path)); err != nil {
		return nil, explain(err, s.path)
	}
	if s.lock, err = lockFile(ctx, s.path); err != nil {
		return nil, explain(err, s.path)
	}
	if err := s.open(ctx, all); err != nil {
		return nil, errors.Join(explain(err, s.path), unlockFile(s.lock))
	}
	return s, nil
}

// remember fills a store in memory with what can be read at path. That nothing
// can is no error: memory is where one goes when the disk fails.
func (s *Store) remember(ctx context.Context, path string) error {
	from, err := openReadOnly(ctx, path, true) // to migrate it takes a disk
	if err != nil {
		s.logger.Debug("the in-memory state starts empty", "error", err)
		return nil
	}
	err = copyTables(ctx, from.conn, s.conn, map[string]int{})
	return errors.Join(err, from.Close())
}

// open does Open's work under the lock.
func (s *Store) open(ctx context.Context, all []migration) error {
	for _, name := range []string{buildName(s.path), upgradeName(s.path)} { // of an agent that died while making them
		if err := removeAll(name); err != nil {
			return err
		}
	}
	if err := removeSalvages(filepath.Dir(s.path)); err != nil {
		return err
	}
	found, err := inspect(s.path)
	if err == nil && !found {
		if err = s.replace(ctx, all, func(*sql.Conn) error { return nil }, func() error { return nil }); err != nil {
			return err
		}
	}
	if err == nil {
		s.db, s.conn, err = s.openSound(ctx, all, shared)
	}
	if err != nil && isFull(err, s.path) {
		// Not even the small index of the log fits. It can be kept in memory,
		// at the price of locking other readers out.
		s.exclusive = true
		s.db, s.conn, err = s.openSound(ctx, all, exclusive)
	}
	if err == nil || !isDamage(err) {
		return err
	}
	return s.replaceDamaged(ctx, all, err)
}

// inspect looks at the file without SQLite, whose locks must not be disturbed
// later by opening it again. It returns an error wrapping ErrDamaged when the
// file cannot be a database. An empty file is damage, too: a new database gets
// its name when it is complete.
func inspect(path string) (found bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Lstat(path + "-wal")
		if err == nil {
			return true, finding("the file is missing, its write-ahead log is not")
		}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return true, fmt.Errorf("state database %s is not a file but a %s: set state.dir to another place", path, kindOf(info))
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0) // SQLite would silently open it read-only
	if err != nil {
		return true, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	head := make([]byte, len(sqliteMagic))
	if _, err := io.ReadFull(f, head); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return true, err
	}
	if !bytes.Equal(head, sqliteMagic) {
		return true, finding(fmt.Sprintf("its %d bytes do not begin like a database", info.Size()))
	}
	return true, nil
}

func kindOf(info fs.FileInfo) string {
	if info.IsDir() {
		return "directory"
	}
	return "special file"
}

// openSound opens the file, checks it, and brings it to the newest schema.
func (s *Store) openSound(ctx context.Context, all []migration, params string) (*sql.DB, *sql.Conn, error) {
	db, conn, err := dialWriter(ctx, s.path, params)
	if err != nil {
		return nil, nil, err
	}
	have, err := s.verify(ctx, conn, all)
	if err != nil {
		return nil, nil, errors.Join(err, hangUp(db, conn))
	}
	if have == schemaVersion(all) {
		return db, conn, nil
	}
	// The log of the old file must never meet the new one.
	_, err = conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	if err = errors.Join(err, hangUp(db, conn)); err == nil {
		err = s.upgrade(ctx, have, all)
	}
	if err != nil {
		return nil, nil, err
	}
	return dialWriter(ctx, s.path, params)
}

// verify checks that the file is a sound database of ours and returns its
// schema version.
func (s *Store) verify(ctx context.Context, conn *sql.Conn, all []migration) (have int, err error) {
	if have, err = userVersion(ctx, conn); err != nil {
		return 0, err
	}
	app, err := pragmaInt(ctx, conn, "application_id")
	if err != nil {
		return 0, err
	}
	if app != applicationID {
		return 0, fmt.Errorf("%s is a database of another program: set state.dir to another place", s.path)
	}
	if want := schemaVersion(all); have > want {
		return 0, newerSchema(s.path, have, want, writtenBy(ctx, conn))
	}
	if have < 1 { // a file gets its name when its schema is complete
		return 0, finding(fmt.Sprintf("its schema version is %d", have))
	}
	_, err = os.Stat(suspectName(s.path))
	suspect := err == nil
	if suspect {
		err = check(ctx, conn, "integrity_check")
	} else if info, statErr := os.Stat(s.path); statErr == nil && info.Size() <= quickCheckLimit {
		err = check(ctx, conn, "quick_check")
	} else {
		err = statErr
	}
	if err == nil && suspect {
		err = os.Remove(suspectName(s.path))
	}
	return have, err
}

// replace makes a new file with the newest schema, has fill fill it, and gives it the
// name of the database when it is complete and away has put away what has that
// name. So a failure or a kill on the way leaves what was there.
func (s *Store) replace(ctx context.Context, all []migration, fill func(*sql.Conn) error, away func() error) error {
	db, conn, err := buildFile(ctx, buildName(s.path), all)
	if err == nil {
		err = errors.Join(fill(conn), hangUp(db, conn))
	}
	if err == nil {
		err = away()
	}
	if err == nil {
		err = os.Rename(buildName(s.path), s.path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(s.path))
	}
	return errors.Join(err, removeAll(buildName(s.path)))
}

// syncDir makes a rename or a new file in dir survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// makeDir creates the state directory for us and our group, and leaves an
// existing one alone.
func makeDir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("state directory %s is not a directory: set state.dir to another place", dir)
	}
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return os.Chmod(dir, 0o750)
}

// sideFiles are the names SQLite uses beside a database.
var sideFiles = []string{"", "-wal", "-shm", "-journal"}

func removeAll(path string) error {
	for _, suffix := range sideFiles {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
