package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// OpenReadOnly opens the database at path for reading, whether an agent is
// writing it now, has stopped, or was killed. It needs read permission only,
// and changes nothing. The errors to expect wrap ErrNoDatabase, ErrReadOnly
// (no permission), ErrNewerSchema, ErrOlderSchema or ErrDamaged.
//
// While no agent runs, one that starts waits for the reader: read and Close.
func OpenReadOnly(ctx context.Context, path string) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	return openReadOnly(ctx, path, false)
}

// openReadOnly is OpenReadOnly, of files of an older schema, too, if asked.
func openReadOnly(ctx context.Context, path string, older bool) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	s, err := openReader(ctx, path, older)
	if code(err) == sqlite3.SQLITE_CANTOPEN {
		// An agent that stops takes its write-ahead log along, perhaps just
		// between our look at it and SQLite's.
		s, err = openReader(ctx, path, older)
	}
	if err != nil {
		return nil, explainReader(err, path)
	}
	return s, nil
}

func openReader(ctx context.Context, path string, older bool) (*Store, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	lock, busy, err := shareLock(path)
	if err != nil {
		return nil, err
	}
	params := "mode=ro"
	if _, err := os.Stat(path + "-wal"); !busy && errors.Is(err, fs.ErrNotExist) {
		// A reader of a database in WAL mode has to create the -wal and -shm
		// files, which takes write permission. With no writer about and
		// nothing in the log there is no need of them.
		params = "immutable=1"
	}
	s := &Store{path: path, readOnly: true, now: time.Now, logger: slog.New(slog.DiscardHandler), lock: lock}
	if s.db, s.conn, err = dial(ctx, path, params); err == nil {
		if err = checkReadable(ctx, s, older); err == nil {
			return s, nil
		}
		err = errors.Join(err, hangUp(s.db, s.conn))
	}
	if lock != nil {
		err = errors.Join(err, lock.Close())
	}
	return nil, err
}

func checkReadable(ctx context.Context, s *Store, older bool) error {
	all, err := builtinMigrations()
	if err != nil {
		return err
	}
	have, err := userVersion(ctx, s.conn)
	if err != nil {
		return err
	}
	switch want := schemaVersion(all); {
	case have > want:
		return newerSchema(s.path, have, want, writtenBy(ctx, s.conn))
	case have < 1:
		return finding(fmt.Sprintf("its schema version is %d", have))
	case have < want && !older:
		return &fault{kind: ErrOlderSchema, text: fmt.Sprintf(
			"state database %s has schema %d, this liqo-agent reads schema %d: start the agent once, it brings the file up to date", s.path, have, want)}
	}
	return nil
}

func explainReader(err error, path string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &fault{ErrNoDatabase, fmt.Sprintf("there is no state database at %s: has the agent ever run, and with this state.dir?", path), nil}
	case isDamage(err):
		return &fault{ErrDamaged, fmt.Sprintf("state database %s is damaged: start the agent, it sets the file aside and keeps what can still be read", path), err}
	case isReadOnly(err):
		return &fault{ErrReadOnly, fmt.Sprintf("state database %s cannot be read: run this as root or as a member of the group that owns the file, or start the agent", path), err}
	}
	return explain(err, path)
}
