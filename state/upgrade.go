package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// upgrade brings the file, which is sound, closed and of the schema have, to the
// newest one. A
// copy of it is migrated, and what comes of that is carried over into a
// new file, so that where each table begins depends on the schema alone:
// salvage counts on it. The new file takes the name of the old one when it is
// complete; so a failure or a kill on the way leaves the old one as it was.
func (s *Store) upgrade(ctx context.Context, have int, all []migration) error {
	if info, err := os.Stat(s.path + "-wal"); err == nil && info.Size() > 0 {
		return fmt.Errorf("state database %s is being read by another program, and cannot be upgraded: start the agent again", s.path)
	}
	err := s.rebuild(ctx, all)
	for _, suffix := range sideFiles[1:] { // empty, if they are there at all
		if err == nil {
			if err = os.Remove(s.path + suffix); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
	}
	if err == nil {
		s.keepOld(have)
		err = os.Rename(buildName(s.path), s.path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(s.path))
	}
	if err != nil {
		err = fmt.Errorf("upgrade %s to schema %d: %w", s.path, schemaVersion(all), err)
	}
	return errors.Join(err, removeAll(upgradeName(s.path)), removeAll(buildName(s.path)))
}

// rebuild makes the new file.
func (s *Store) rebuild(ctx context.Context, all []migration) error {
	if err := copyDatabase(s.path, upgradeName(s.path)); err != nil {
		return err
	}
	db, conn, err := dialWriter(ctx, upgradeName(s.path), shared)
	if err != nil {
		return err
	}
	if err := errors.Join(migrate(ctx, conn, upgradeName(s.path), all), hangUp(db, conn)); err != nil {
		return err
	}
	db, conn, err = buildFile(ctx, buildName(s.path), all)
	if err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "ATTACH ? AS old", upgradeName(s.path))
	if err == nil {
		err = inTransaction(ctx, conn, func() error {
			for _, table := range salvaged {
				columns, err := tableColumns(ctx, conn, table)
				if err != nil {
					return err
				}
				list := strings.Join(columns, ", ")
				if _, err := conn.ExecContext(ctx, fmt.Sprintf("INSERT INTO main.%s (%s) SELECT %s FROM old.%s", table, list, list, table)); err != nil {
					return fmt.Errorf("table %s: %w", table, err)
				}
			}
			return nil
		})
	}
	return errors.Join(err, hangUp(db, conn))
}
