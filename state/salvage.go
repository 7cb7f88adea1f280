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
	"strings"

	"liqo.io/agent/peer"

	sqlite3 "modernc.org/sqlite/lib"
)

// salvaged are the tables, most precious first, parents before children.
var salvaged = []string{"identity", "trust", "preferences", "invites", "peerings", "peers", "endpoints", "sightings", "events"}

// salvage carries over into conn, an empty database, every row of the damaged
// file at path that can be read and that the schema accepts. It reads a copy:
// the damaged file is evidence. Only failing to write is an error.
func salvage(ctx context.Context, path string, conn *sql.Conn) (map[string]int, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".salvage-")
	if err != nil {
		return nil, err
	}
	kept := map[string]int{}
	err = func() error {
		// A file that fails as it is may still be readable with a sound first
		// page: that page holds the header and the list of tables, and is the
		// same in every database of one schema.
		for _, transplant := range []bool{false, true} {
			file := filepath.Join(dir, fmt.Sprintf("copy-%t", transplant))
			for _, suffix := range []string{"", "-wal"} { // -shm is rebuilt from -wal
				if err := copyFile(path+suffix, file+suffix); err != nil {
					return err
				}
			}
			if transplant {
				if err := transplantFirstPage(ctx, file); err != nil {
					return err
				}
			}
			if err := salvageFrom(ctx, file, conn, kept); err != nil {
				return err
			}
			if kept["identity"] > 0 {
				return nil
			}
		}
		return nil
	}()
	return kept, errors.Join(err, os.RemoveAll(dir))
}

func salvageFrom(ctx context.Context, file string, to *sql.Conn, kept map[string]int) error {
	db, from, err := dial(ctx, file, "mode=rw")
	if err != nil {
		return nil //nolint:nilerr // nothing to be had this way
	}
	defer hangUp(db, from) //nolint:errcheck // a throw-away copy
	return copyTables(ctx, from, to, kept)
}

// copyTables adds every readable row of from to to, and counts them in kept.
func copyTables(ctx context.Context, from, to *sql.Conn, kept map[string]int) error {
	return inTransaction(ctx, to, func() error {
		for _, table := range salvaged {
			n, err := salvageTable(ctx, from, to, table)
			kept[table] += n
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// salvageTable copies a table row by row, from its beginning up to the damage
// and then from its end down to it.
func salvageTable(ctx context.Context, from, to *sql.Conn, table string) (int, error) {
	columns, err := tableColumns(ctx, to, table)
	if err != nil {
		return 0, err
	}
	list := strings.Join(columns, ", ")
	insert := fmt.Sprintf("INSERT OR IGNORE INTO %s (%s) VALUES (%s)", table, list, strings.TrimSuffix(strings.Repeat("?, ", len(columns)), ", "))
	kept := 0
	for _, order := range []string{"", " ORDER BY 1 DESC"} {
		var failed error
		damage := query(ctx, from, func(scan func(...any) error) error {
			row := make([]any, len(columns))
			into := make([]any, len(columns))
			for i := range row {
				into[i] = &row[i]
			}
			if err := scan(into...); err != nil || !plausible(columns, row) {
				return nil //nolint:nilerr // this row is lost, the next may not be
			}
			res, err := to.ExecContext(ctx, insert, row...)
			if err != nil {
				if code(err) != sqlite3.SQLITE_CONSTRAINT {
					failed = err
				}
				return failed
			}
			n, err := res.RowsAffected()
			kept += int(n)
			return err
		}, "SELECT "+list+" FROM "+table+order)
		if failed != nil {
			return kept, failed
		}
		if damage == nil {
			break
		}
	}
	return kept, nil
}

// plausible refuses rows whose cluster ID no cluster can have: damage can make
// the cells of one table look like those of another.
func plausible(columns []string, row []any) bool {
	for i, name := range columns {
		if name != "cluster_id" {
			continue
		}
		text, ok := row[i].(string)
		if !ok {
			return false
		}
		_, err := peer.ParseClusterID(text)
		return err == nil
	}
	return true
}

func tableColumns(ctx context.Context, conn *sql.Conn, table string) ([]string, error) {
	var columns []string
	err := query(ctx, conn, func(scan func(...any) error) error {
		var name string
		if err := scan(&name); err != nil {
			return err
		}
		columns = append(columns, name)
		return nil
	}, "SELECT name FROM pragma_table_info(?)", table)
	return columns, err
}

// transplantFirstPage overwrites the first page of file with that of an empty
// database of our schema.
func transplantFirstPage(ctx context.Context, file string) error {
	donor := file + ".donor"
	all, err := builtinMigrations()
	if err != nil {
		return err
	}
	db, built, err := buildFile(ctx, donor, all)
	if err != nil {
		return err
	}
	if err := hangUp(db, built); err != nil {
		return err
	}
	page := make([]byte, pageSize)
	d, err := os.Open(donor)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // only read
	if _, err := io.ReadFull(d, page); err != nil {
		return err
	}
	// The page count of the donor is not that of the patient. SQLite takes it
	// from the file's size when the counters at 24 and 92 differ.
	copy(page[24:28], []byte{0, 0, 0, 1})
	copy(page[92:96], []byte{0, 0, 0, 0})
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(page, 0)
	return errors.Join(err, f.Close())
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
