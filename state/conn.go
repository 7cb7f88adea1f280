package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Settings of every connection. The page cache (KiB, negative) is small: the
// working set of an agent is tens of pages. cell_size_check finds damage
// before it is believed; trusted_schema=0 keeps a doctored file from running
// functions of its own choice.
const commonPragmas = `
PRAGMA busy_timeout = 5000;
PRAGMA foreign_keys = ON;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
PRAGMA temp_store = MEMORY;
PRAGMA mmap_size = 0;
PRAGMA cache_size = -1024;
`

// Settings of the writer: the write-ahead log is folded into the database
// every megabyte and does not keep more than that on the disk.
const writerPragmas = `
PRAGMA wal_autocheckpoint = 256;
PRAGMA journal_size_limit = 1048576;
`

const pageSize = 4096

// dial opens one connection. params are SQLite's URI parameters, such as
// mode=ro or immutable=1.
func dial(ctx context.Context, path, params string) (*sql.DB, *sql.Conn, error) {
	name := "file::memory:"
	if path != "" {
		name = (&url.URL{Scheme: "file", Path: path, RawQuery: params}).String()
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(ctx)
	if err == nil {
		_, err = conn.ExecContext(ctx, commonPragmas)
	}
	if err != nil {
		return nil, nil, errors.Join(err, hangUp(db, conn))
	}
	return db, conn, nil
}

func hangUp(db *sql.DB, conn *sql.Conn) error {
	if conn == nil {
		return db.Close()
	}
	return errors.Join(conn.Close(), db.Close())
}

// How the writer opens its file. Normally readers in other processes work
// beside it. An exclusive writer keeps the index of the write-ahead log in
// memory instead of in a file, and everybody else out.
const (
	shared    = "mode=rw"
	exclusive = "mode=rw&_pragma=locking_mode(exclusive)"
)

// dialWriter opens the writing connection of an existing file, or of a
// database in memory when path is empty.
func dialWriter(ctx context.Context, path, params string) (*sql.DB, *sql.Conn, error) {
	db, conn, err := dial(ctx, path, params)
	if err != nil {
		return nil, nil, err
	}
	// Read first: a file that is no database must fail before the journal
	// mode is changed in it.
	if _, err = userVersion(ctx, conn); err == nil {
		_, err = conn.ExecContext(ctx, "PRAGMA journal_mode = WAL;"+writerPragmas)
	}
	if err != nil {
		return nil, nil, errors.Join(err, hangUp(db, conn))
	}
	return db, conn, nil
}

// buildFile makes a new, empty database file at path, which must not exist.
// Owner and group of the directory apply; the mode lets the group read.
func buildFile(ctx context.Context, path string, all []migration) (*sql.DB, *sql.Conn, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return nil, nil, err
	}
	// SQLite gives -wal and -shm the mode of the main file, so it has to be
	// right from the start, whatever the umask.
	if err := errors.Join(f.Chmod(0o640), f.Close()); err != nil {
		return nil, nil, err
	}
	db, conn, err := dial(ctx, path, "mode=rw")
	if err != nil {
		return nil, nil, err
	}
	_, err = conn.ExecContext(ctx, fmt.Sprintf("PRAGMA page_size = %d; PRAGMA application_id = %d; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;", pageSize, applicationID))
	if err == nil {
		err = migrate(ctx, conn, path, all)
	}
	if err != nil {
		return nil, nil, errors.Join(err, hangUp(db, conn))
	}
	return db, conn, nil
}

// inTransaction runs fn inside BEGIN IMMEDIATE and COMMIT. After any error
// nothing of it has happened and the connection is ready for the next one.
func inTransaction(ctx context.Context, conn *sql.Conn, fn func() error) error {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := fn()
	if err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		// SQLite has rolled back by itself after some errors (a full disk);
		// then this one has nothing to do and says so.
		_, _ = conn.ExecContext(ctx, "ROLLBACK")
	}
	return err
}
