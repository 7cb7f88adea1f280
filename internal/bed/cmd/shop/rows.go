//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// rows adds a row for each text to an SQLite database, which is made if necessary, and prints all of its rows.
func rows(ctx context.Context, path string, texts []string) (err error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT"); err != nil {
		return err
	}
	for _, text := range texts {
		if _, err := db.ExecContext(ctx, "INSERT INTO rows (text) VALUES (?)", text); err != nil {
			return err
		}
	}
	found, err := db.QueryContext(ctx, "SELECT id, text FROM rows ORDER BY id")
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		var id int
		var text string
		if err := found.Scan(&id, &text); err != nil {
			return err
		}
		fmt.Printf("%d\t%s\n", id, text)
	}
	return found.Err()
}
