package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// check runs one of SQLite's own checks and returns ErrDamaged with its first
// finding.
func check(ctx context.Context, conn *sql.Conn, pragma string) error {
	var result string
	if err := conn.QueryRowContext(ctx, "PRAGMA "+pragma+"(1)").Scan(&result); err != nil {
		return err
	}
	if result != "ok" {
		// The first of two lines only says which database: ours.
		return finding(result[strings.LastIndexByte(result, '\n')+1:])
	}
	return nil
}

// Check reads the whole database and returns an error wrapping ErrDamaged when
// it is not sound. Open does the same for small files only, so an agent calls
// this once after its start. It works beside other calls, on a connection of
// its own, and stops when ctx ends. Found damage is marked, so that the next
// Open repairs it.
func (s *Store) Check(ctx context.Context) error {
	if s.Volatile() {
		return nil
	}
	if s.exclusive {
		return s.read(ctx, func(ctx context.Context) error { return checkAll(ctx, s.conn) })
	}
	db, conn, err := dial(ctx, s.path, "mode=ro")
	if err != nil {
		return s.failed(err)
	}
	return s.failed(errors.Join(checkAll(ctx, conn), hangUp(db, conn)))
}

func checkAll(ctx context.Context, conn *sql.Conn) error {
	if err := check(ctx, conn, "integrity_check"); err != nil {
		return err
	}
	return checkReferences(ctx, conn)
}

func checkReferences(ctx context.Context, conn *sql.Conn) error {
	return query(ctx, conn, func(scan func(...any) error) error {
		var table, parent string
		var row sql.NullInt64
		var index int
		if err := scan(&table, &row, &parent, &index); err != nil {
			return err
		}
		return finding(fmt.Sprintf("a row of %s refers to a missing row of %s", table, parent))
	}, "PRAGMA foreign_key_check")
}
