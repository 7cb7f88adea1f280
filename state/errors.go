package state

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// What can be wrong with a database file, for errors.Is. The errors that wrap
// these name the file and what to do.
var (
	// ErrLocked: another agent has the file open for writing.
	ErrLocked = errors.New("state database is in use by another agent")
	// ErrNewerSchema: a newer version of the agent has written the file.
	ErrNewerSchema = errors.New("state database has a newer schema")
	// ErrOlderSchema: the file has to be migrated first, which a reader cannot.
	ErrOlderSchema = errors.New("state database has an older schema")
	// ErrReadOnly: the file or its directory cannot be written, or the Store
	// was opened for reading.
	ErrReadOnly = errors.New("state database cannot be written")
	// ErrFull: there is no space for the change. It was not applied, and the
	// Store stays usable: the same call may be repeated.
	ErrFull = errors.New("no space left for the state database")
	// ErrDamaged: the file is not a sound database.
	ErrDamaged = errors.New("state database is damaged")
	// ErrNoDatabase: there is nothing to read yet.
	ErrNoDatabase = errors.New("no state database")
	// ErrAliasTaken: another peer has that alias.
	ErrAliasTaken = errors.New("alias belongs to another peer")
)

// fault is an error with a sentence for people, one of the kinds above, and
// the cause when there is one.
type fault struct {
	kind  error
	text  string
	cause error
}

func (f *fault) Error() string {
	if f.cause == nil {
		return f.text
	}
	return f.text + " (" + f.cause.Error() + ")"
}

func (f *fault) Unwrap() []error {
	if f.cause == nil {
		return []error{f.kind}
	}
	return []error{f.kind, f.cause}
}

// finding is what is wrong with a damaged database, in a few words. It is an
// ErrDamaged.
type finding string

func (f finding) Error() string { return string(f) }

// Is makes a finding match ErrDamaged.
func (finding) Is(target error) bool { return target == ErrDamaged }

// explain turns an error of SQLite or the file system into one that says what
// happened to which file and what to do. An error it knows nothing to add to
// is returned as it is.
func explain(err error, path string) error {
	var known *fault
	if err == nil || errors.As(err, &known) {
		return err
	}
	switch {
	case isDamage(err):
		return &fault{ErrDamaged, fmt.Sprintf("state database %s is damaged: restart the agent, it sets the file aside and keeps what can still be read", path), err}
	case isFull(err, path):
		return &fault{ErrFull, fmt.Sprintf("no space left on the disk of %s: free some; until then changes are kept in memory only", path), err}
	case isReadOnly(err):
		return &fault{ErrReadOnly, fmt.Sprintf("state database %s cannot be written: %s", path, adviceReadOnly(err)), err}
	case code(err) == sqlite3.SQLITE_BUSY:
		return fmt.Errorf("state database %s is locked by another program, such as an open sqlite3 shell; close it: %w", path, err)
	}
	return err
}

// code returns SQLite's primary result code, or 0 for other errors.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func isDamage(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_CORRUPT || c == sqlite3.SQLITE_NOTADB || errors.Is(err, ErrDamaged)
}

// isFull also looks at the disk, because SQLite reports some full disks (a
// quota, a WAL index that cannot grow) as plain I/O errors.
func isFull(err error, path string) bool {
	if code(err) == sqlite3.SQLITE_FULL || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return true
	}
	if code(err) != sqlite3.SQLITE_IOERR {
		return false
	}
	var st unix.Statfs_t
	return unix.Statfs(filepath.Dir(path), &st) == nil && st.Bavail == 0
}

func isReadOnly(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
		return true
	}
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

func adviceReadOnly(err error) string {
	switch {
	case errors.Is(err, syscall.EROFS):
		return "the file system is mounted read-only; check the disk and the kernel log, or set state.dir to another place"
	case errors.Is(err, fs.ErrPermission):
		return "run the agent as the user that owns it, or set state.dir to another place"
	}
	return "check the permissions of the file and its directory, or set state.dir to another place"
}
