package state

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"liqo.io/agent/migrations"
)

// applicationID marks a SQLite file as ours (PRAGMA application_id, "LIQO").
const applicationID = 0x4c49514f

// migration is one step of the schema.
type migration struct {
	version int
	name    string
	sql     string
}

// readMigrations returns the migrations of fsys in order. Their versions must
// be 1, 2, 3 and so on.
func readMigrations(fsys fs.FS) ([]migration, error) {
	names, err := fs.Glob(fsys, "[0-9][0-9][0-9][0-9]_*.sql")
	if err != nil {
		return nil, err
	}
	var all []migration
	for i, name := range names { // in their order
		if want := fmt.Sprintf("%04d", i+1); name[:4] != want {
			return nil, fmt.Errorf("migration %s: want number %s", name, want)
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		all = append(all, migration{i + 1, name, string(text)})
	}
	return all, nil
}

// schemaVersion returns the version this build works with.
func schemaVersion(all []migration) int { return len(all) }

// migrate brings the database to the newest version. Each step and the record
// of it are one transaction, so a kill in between repeats exactly what is
// missing. It refuses a newer database without touching it.
func migrate(ctx context.Context, conn *sql.Conn, path string, all []migration) error {
	have, err := userVersion(ctx, conn)
	if err != nil {
		return err
	}
	if want := schemaVersion(all); have > want {
		return newerSchema(path, have, want, writtenBy(ctx, conn))
	}
	for _, m := range all[have:] {
		if err := inTransaction(ctx, conn, func() error {
			if _, err := conn.ExecContext(ctx, m.sql); err != nil {
				return err
			}
			_, err := conn.ExecContext(ctx, "PRAGMA user_version = "+strconv.Itoa(m.version))
			return err
		}); err != nil {
			return fmt.Errorf("migrate %s to schema %d (%s): %w", path, m.version, m.name, err)
		}
	}
	return nil
}

// newerSchema says that a newer agent, whose version is writer if it said so, wrote
// the file, and what can be done.
func newerSchema(path string, have, want int, writer string) error {
	who := "the newer liqo-agent that wrote it"
	if writer != "" {
		who = "liqo-agent " + writer + ", which wrote it"
	}
	advice := "restore a backup of this version (liqo-agent state restore), or start over (liqo-agent reset)"
	if kept := keptName(path, want); isFile(kept) {
		advice = fmt.Sprintf("or go back to what this version left behind: mv %s %s", kept, path)
	}
	return &fault{kind: ErrNewerSchema, text: fmt.Sprintf(
		"state database %s has schema %d, this liqo-agent knows schemas up to %d: install %s, %s", path, have, want, who, advice)}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func builtinMigrations() ([]migration, error) { return readMigrations(migrations.FS) }

func userVersion(ctx context.Context, conn *sql.Conn) (int, error) {
	return pragmaInt(ctx, conn, "user_version")
}

func pragmaInt(ctx context.Context, conn *sql.Conn, name string) (int, error) {
	var v int
	if err := conn.QueryRowContext(ctx, "PRAGMA "+name).Scan(&v); err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	return v, nil
}
