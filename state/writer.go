package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
	"unicode"
)

// maxWriter bounds the version that a database says it was written by, in bytes.
const maxWriter = 64

// SetWriter remembers which version of the agent writes the database. It writes
// only when that is another one than before.
func (s *Store) SetWriter(ctx context.Context, version string) error {
	if version == "" || printable(version) != version {
		return fmt.Errorf("%q is no version to be remembered", version)
	}
	return s.change(ctx, buffered, func(ctx context.Context) ([]op, error) {
		have, _, err := writer(ctx, s.conn)
		if err != nil || have == version {
			return nil, err
		}
		return []op{{`INSERT INTO writer (id, version, since) VALUES (1, ?, ?)
			ON CONFLICT (id) DO UPDATE SET version = excluded.version, since = excluded.since`, []any{version, millis(s.now())}}}, nil
	})
}

// Writer returns what SetWriter remembered last and when that changed, or "".
func (s *Store) Writer(ctx context.Context) (version string, since time.Time, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		var err error
		version, since, err = writer(ctx, s.conn)
		return err
	})
	return version, since, err
}

func writer(ctx context.Context, conn *sql.Conn) (version string, since time.Time, err error) {
	var at int64
	err = conn.QueryRowContext(ctx, "SELECT version, since FROM writer").Scan(&version, &at)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return version, fromMillis(at), err
}

// writtenBy is the version that wrote a database of any schema, as far as it can
// be had and shown.
func writtenBy(ctx context.Context, conn *sql.Conn) string {
	version, _, err := writer(ctx, conn)
	if err != nil {
		return "" // older schemas have no such table
	}
	return printable(version)
}

// printable returns text up to the first character that a version has not.
func printable(text string) string {
	for i, r := range text {
		if i >= maxWriter || r >= unicode.MaxASCII || !unicode.IsGraphic(r) {
			return text[:i]
		}
	}
	return text
}
