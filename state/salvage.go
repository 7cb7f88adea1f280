package state

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"liqo.io/agent/peer"

	sqlite3 "modernc.org/sqlite/lib"
)

// salvaged are all tables, most precious first, parents before children.
var salvaged = []string{"identity", "trust", "preferences", "invites", "peerings", "search_domains", "cluster_config", "writer", "peers", "endpoints", "sightings", "events"}

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
		if err := attempt(ctx, path, filepath.Join(dir, "copy"), nil, conn, kept); err != nil || kept["identity"] > 0 {
			return err
		}
		// A file that fails as it is may still be readable with a sound list of
		// tables. That list is the same in every database of one schema, and
		// which schema it was, the lost pages knew.
		all, err := builtinMigrations()
		if err != nil {
			return err
		}
		for v := len(all); v > 0; v-- {
			if err := attempt(ctx, path, filepath.Join(dir, fmt.Sprintf("copy-%d", v)), all[:v], conn, kept); err != nil {
				return err
			}
		}
		return nil
	}()
	return kept, errors.Join(err, os.RemoveAll(dir))
}

// attempt salvages what it can from a copy of the file at path, with the list of
// tables that schema makes, if it is not nil.
func attempt(ctx context.Context, path, file string, schema []migration, conn *sql.Conn, kept map[string]int) error {
	if err := copyDatabase(path, file); err != nil {
		return err
	}
	if schema != nil {
		if err := transplantSchema(ctx, file, schema); err != nil {
			return err
		}
	}
	return salvageFrom(ctx, file, conn, kept)
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
	if have, err := tableColumns(ctx, from, table); err == nil { // an older schema has fewer, or not even the table
		columns = slices.DeleteFunc(columns, func(c string) bool { return !slices.Contains(have, c) })
	}
	if len(columns) == 0 {
		return 0, nil
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

// transplantSchema overwrites the list of tables in file with that of an empty
// database of the given schema. Where the tables begin agrees, because Open
// builds every database by the same steps, upgraded ones included.
func transplantSchema(ctx context.Context, file string, schema []migration) error {
	donor := file + ".donor"
	db, built, err := buildFile(ctx, donor, schema)
	if err != nil {
		return err
	}
	if err := hangUp(db, built); err != nil {
		return err
	}
	pages, err := os.ReadFile(donor)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	for _, n := range schemaPages(pages) {
		page := pages[(n-1)*pageSize : n*pageSize]
		if n == 1 {
			// The page count of the donor is not that of the patient. SQLite takes
			// it from the file's size when the counters at 24 and 92 differ.
			copy(page[24:28], []byte{0, 0, 0, 1})
			copy(page[92:96], []byte{0, 0, 0, 0})
		}
		if _, err := f.WriteAt(page, int64(n-1)*pageSize); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// schemaPages returns the numbers of the pages of a sound database that hold
// its list of tables: page 1 and, when the list is long, those that it points
// to (SQLite's file format, section 1.6).
func schemaPages(database []byte) []int {
	const (
		header       = 100 // of the database, before that of page 1
		interiorTree = 0x05
	)
	numbers := []int{1}
	if database[header] != interiorTree {
		return numbers
	}
	cells := int(binary.BigEndian.Uint16(database[header+3:]))
	for i := range cells {
		cell := binary.BigEndian.Uint16(database[header+12+2*i:])
		numbers = append(numbers, int(binary.BigEndian.Uint32(database[cell:])))
	}
	return append(numbers, int(binary.BigEndian.Uint32(database[header+8:])))
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
