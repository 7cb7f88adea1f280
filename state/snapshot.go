package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"modernc.org/sqlite"

	"liqo.io/agent/peer"
)

// Examination is what Examine found in a sound database.
type Examination struct {
	// Schema is that of the file; Known is the newest that this build knows.
	Schema, Known int
	// ClusterID is whose database it is, "" if nobody's yet.
	ClusterID peer.ClusterID
	// Writer is the version of the agent that wrote it last, "" if it did not say.
	Writer string
	// Size is that of the file in bytes, without its log.
	Size int64
}

// SchemaVersion returns the schema that this build works with.
func SchemaVersion() int {
	all, err := builtinMigrations()
	if err != nil {
		return 0 // which no test that opens a database survives
	}
	return schemaVersion(all)
}

// Examine reads the whole database at path, as OpenReadOnly does beside a running
// agent or without one, and changes nothing. A file of an older schema is fine.
// The errors to expect wrap ErrNoDatabase, ErrReadOnly, ErrNewerSchema or
// ErrDamaged; what was found before the error is returned as well.
func Examine(ctx context.Context, path string) (Examination, error) {
	found := Examination{Known: SchemaVersion()}
	if info, err := os.Stat(path); err == nil {
		found.Size = info.Size()
	}
	s, err := openReadOnly(context.WithoutCancel(ctx), path, true)
	if err != nil {
		return found, err
	}
	err = s.read(ctx, func(ctx context.Context) error { return s.examine(ctx, &found) })
	return found, explainReader(errors.Join(err, s.Close()), path)
}

func (s *Store) examine(ctx context.Context, found *Examination) error {
	app, err := pragmaInt(ctx, s.conn, "application_id")
	if err != nil {
		return err
	}
	if app != applicationID {
		return finding("it is a database of another program")
	}
	if found.Schema, err = userVersion(ctx, s.conn); err != nil {
		return err
	}
	if err := checkAll(ctx, s.conn); err != nil {
		return err
	}
	found.Writer = writtenBy(ctx, s.conn)
	self, err := identityTable.one(ctx, s.conn, "")
	if self != nil {
		found.ClusterID = self.id
	}
	return err
}

// Snapshot copies the database at path, beside a running agent or without one, to
// a new file that only its owner can read. The copy is what was committed at one
// moment, complete and on the disk when Snapshot returns. It is made page by page,
// so that tables begin where they did: see upgrade.go.
//
// The errors are those of Examine, and what writing the copy can meet. A copy that
// failed is taken away.
func Snapshot(ctx context.Context, path, to string) (err error) {
	s, err := openReadOnly(context.WithoutCancel(ctx), path, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if to, err = filepath.Abs(to); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("copy the state database: %w", err)
	}
	defer func() {
		if err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(fmt.Errorf("copy the state database to %s: %w", to, err), removeAll(to))
		}
	}()
	return s.read(ctx, func(context.Context) error {
		return s.conn.Raw(func(driver any) error {
			source, ok := driver.(interface {
				NewBackup(target string) (*sqlite.Backup, error)
			})
			if !ok {
				return errors.New("the SQLite driver has no backups")
			}
			backup, err := source.NewBackup(to)
			if err != nil {
				return err
			}
			// All pages in one step: nothing that is written meanwhile is in the copy.
			for more := true; more && err == nil; {
				more, err = backup.Step(-1)
			}
			return errors.Join(err, backup.Finish())
		})
	})
}

// Hold keeps agents out of the database at path, which need not exist, until
// release is called. The error wraps ErrLocked when one is running, and names it.
// The context ends the wait for somebody who reads the database.
func Hold(ctx context.Context, path string) (release func() error, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if err := makeDir(filepath.Dir(path)); err != nil {
		return nil, explain(err, path)
	}
	f, err := lockFile(ctx, path)
	if err != nil {
		return nil, explain(err, path)
	}
	return func() error { return unlockFile(f) }, nil
}
