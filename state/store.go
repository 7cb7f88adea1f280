package state

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Store is the agent's memory. Make one with Open or OpenReadOnly and Close it
// once. Its methods are safe for concurrent use; a call that changes something
// returns after its transaction was committed or had no effect at all.
//
// A context given to a method is looked at before the work starts, not during
// it: transactions are short, and half of one is never what a caller wants.
type Store struct {
	path     string // "" for a store in memory
	readOnly bool
	now      func() time.Time
	logger   *slog.Logger
	limits   Limits
	recovery *Recovery
	// exclusive: SQLite keeps every other connection out.
	exclusive bool

	transactions atomic.Uint64
	failures     atomic.Uint64 // of those

	mu     sync.Mutex
	db     *sql.DB
	conn   *sql.Conn
	lock   *os.File
	events int // rows in events, so that the bound needs no count; -1 before it is known
	closed bool
}

// Limits bound what neighbours can make the Store keep. A zero field means its
// default.
type Limits struct {
	Events        int // rows of history in all; default 20,000, about 3 MB
	EventsPerPeer int // rows of history of one peer, so that one that flaps pushes out only its own past; default 1,000
	Peers         int // peers; those with preferences do not count and are never dropped; default 10,000
	Endpoints     int // addresses remembered of one peer; default 64
	Sightings     int // sightings remembered of one peer; default 64
}

func (l Limits) orDefault() Limits {
	set := func(field *int, def int) {
		if *field <= 0 {
			*field = def
		}
	}
	set(&l.Events, 20_000)
	set(&l.EventsPerPeer, 1_000)
	set(&l.Peers, 10_000)
	set(&l.Endpoints, 64)
	set(&l.Sightings, 64)
	return l
}

// errClosed is what a method of a closed Store returns.
var errClosed = errors.New("state database is closed")

// Path returns the database file, or "" when the Store is in memory.
func (s *Store) Path() string { return s.path }

// Volatile reports that nothing outlives the process: the Store was opened
// with Options.Memory.
func (s *Store) Volatile() bool { return s.path == "" }

// Recovered returns the name under which Open set a damaged database aside, or
// "" when it met none.
func (s *Store) Recovered() string {
	if s.recovery == nil {
		return ""
	}
	return s.recovery.Aside
}

// Recovery returns what was found and saved when Open met a damaged database,
// and nil when it met none.
func (s *Store) Recovery() *Recovery { return s.recovery }

// Transactions returns the number of write transactions since Open, including
// those that failed. Calls that had nothing to change start none.
func (s *Store) Transactions() uint64 { return s.transactions.Load() }

// Stats are what a Store did since Open, and how large it is.
type Stats struct {
	Transactions uint64 // write transactions, those that failed included
	Failures     uint64 // of Transactions
	Bytes        int64  // of the database with its write-ahead log; -1 when unknown or in memory
}

// Stats returns the counts. It asks the file system, and never waits for a
// transaction.
func (s *Store) Stats() Stats {
	out := Stats{Transactions: s.transactions.Load(), Failures: s.failures.Load(), Bytes: -1}
	if s.path == "" {
		return out
	}
	if main, err := os.Stat(s.path); err == nil {
		out.Bytes = main.Size()
		if log, err := os.Stat(s.path + "-wal"); err == nil {
			out.Bytes += log.Size()
		}
	}
	return out
}

// Shrink gives back the memory of the pages that are cached, up to two megabytes of it.
// Those that are needed again are read again.
func (s *Store) Shrink(ctx context.Context) error {
	return s.read(ctx, func(ctx context.Context) error {
		_, err := s.conn.ExecContext(ctx, "PRAGMA shrink_memory")
		return err
	})
}

// Close folds the write-ahead log into the database and lets the next agent
// in. It is idempotent.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	err := explain(hangUp(s.db, s.conn), s.path)
	if s.lock == nil {
		return err
	}
	if s.readOnly {
		return errors.Join(err, s.lock.Close())
	}
	return errors.Join(err, unlockFile(s.lock))
}

// op is one statement of a transaction.
type op struct {
	query string
	args  []any
}

// durability says how long a power cut may still undo a committed change.
type durability string

const (
	onDisk   durability = "FULL"   // not at all: identity and decisions
	buffered durability = "NORMAL" // until the next checkpoint: what will be observed again
)

// change runs plan under the Store's mutex and executes the operations it
// returns in one transaction, or none when there are none. plan reads; being
// the only writer, nothing changes between its reads and our writes.
func (s *Store) change(ctx context.Context, d durability, plan func(context.Context) ([]op, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.readOnly {
		return &fault{kind: ErrReadOnly, text: "state database " + s.path + " is open for reading only"}
	}
	ctx = context.WithoutCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	ops, err := plan(ctx)
	if err != nil {
		return s.failed(err)
	}
	if len(ops) == 0 {
		return nil
	}
	if _, err := s.conn.ExecContext(ctx, "PRAGMA synchronous = "+string(d)); err != nil {
		return s.failed(err)
	}
	s.transactions.Add(1)
	err = inTransaction(ctx, s.conn, func() error {
		for _, o := range ops {
			if _, err := s.conn.ExecContext(ctx, o.query, o.args...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.failures.Add(1)
	}
	return s.failed(err)
}

// read runs fn with the connection to itself.
func (s *Store) read(ctx context.Context, fn func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	return s.failed(fn(context.WithoutCancel(ctx)))
}

// failed explains err and, when it shows damage, leaves a mark so that the
// next Open checks the whole file instead of trusting it.
func (s *Store) failed(err error) error {
	if err == nil {
		return nil
	}
	if isDamage(err) && !s.readOnly && !s.Volatile() {
		s.markSuspect()
	}
	return explain(err, s.path)
}

func (s *Store) markSuspect() {
	if err := os.WriteFile(suspectName(s.path), nil, 0o640); err != nil {
		s.logger.Warn("cannot mark the damaged state database for the next start", "path", suspectName(s.path), "err", err)
	}
}

// query runs a SELECT and calls row for each row.
func query(ctx context.Context, conn *sql.Conn, row func(scan func(...any) error) error, text string, args ...any) error {
	rows, err := conn.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // Err below reports what went wrong
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
