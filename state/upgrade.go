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
)

// upgrade brings the file, which is sound, closed and of the schema have, to the
// newest one. A copy of it is migrated, and what comes of that is carried over into a
// new file, so that where each table begins depends on the schema alone: salvage
// counts on it.
func (s *Store) upgrade(ctx context.Context, have int, all []migration) error {
	if info, err := os.Stat(s.path + "-wal"); err == nil && info.Size() > 0 {
		return fmt.Errorf("state database %s is being read by another program, and cannot be upgraded: start the agent again", s.path)
	}
	migrated := upgradeName(s.path)
	err := migrateCopy(ctx, s.path, migrated, all)
	if err == nil {
		err = s.replace(ctx, all, func(conn *sql.Conn) error { return carryOver(ctx, conn, migrated) }, func() error {
			for _, suffix := range sideFiles[1:] { // empty, if they are there at all
				if err := os.Remove(s.path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			s.keepOld(have)
			return nil
		})
	}
	if err != nil {
		err = fmt.Errorf("upgrade %s to schema %d: %w", s.path, schemaVersion(all), err)
	}
	return errors.Join(err, removeAll(migrated))
}

func migrateCopy(ctx context.Context, path, to string, all []migration) error {
	if err := copyDatabase(path, to); err != nil {
		return err
	}
	db, conn, err := dialWriter(ctx, to, shared)
	if err != nil {
		return err
	}
	return errors.Join(migrate(ctx, conn, to, all), hangUp(db, conn))
}

// carryOver fills an empty database with every row of the one at path, which has the
// same schema.
func carryOver(ctx context.Context, conn *sql.Conn, path string) error {
	if _, err := conn.ExecContext(ctx, "ATTACH ? AS old", path); err != nil {
		return err
	}
	return inTransaction(ctx, conn, func() error {
		for _, t := range tables {
			name, list := t.about().name, t.about().list
			if _, err := conn.ExecContext(ctx, fmt.Sprintf("INSERT INTO main.%s (%s) SELECT %[2]s FROM old.%[1]s", name, list)); err != nil {
				return fmt.Errorf("table %s: %w", name, err)
			}
		}
		return nil
	})
}

// keepOld keeps the file, which is about to be replaced by one of a newer schema,
// under a name that says its schema: whoever goes back to the older agent gives it
// its name back. Only the last one is kept. It takes no space but for the time in
// which both are there, because it is the same file with a second name; where the
// file system has no such names, or the disk is full, nothing is kept.
func (s *Store) keepOld(schema int) {
	kept := keptName(s.path, schema)
	entries, err := os.ReadDir(filepath.Dir(s.path))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(s.path)+".schema") {
			err = errors.Join(err, os.Remove(filepath.Join(filepath.Dir(s.path), e.Name())))
		}
	}
	if err = errors.Join(err, os.Link(s.path, kept)); err != nil {
		s.logger.Warn("the state database of the older version could not be backed up", "path", kept, "error", err)
		return
	}
	s.logger.Info("the state database is upgraded to a newer schema; the old file is kept for a downgrade", "path", kept, "schema", schema)
}

// keptName is where upgrade keeps the file as it was.
func keptName(path string, schema int) string { return fmt.Sprintf("%s.schema%d", path, schema) }
