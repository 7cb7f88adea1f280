package state

import "os"

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
