package conn

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clockEvery is how often the API server's clock is looked at.
const clockEvery = time.Minute

// clock compares the API server's clock with ours, now and then.
type clock struct {
	next   atomic.Int64 // when it is looked at again, in nanoseconds since New was called: our clock may be set meanwhile
	offset atomic.Int64 // how far the server's is ahead of ours, in nanoseconds
}

// look takes in what the server said at a time between two of ours. since is the time from New to received, by the monotonic clock.
// A clock that differs by less than the answer took, and the second to which it is told, does not.
func (c *clock) look(header http.Header, sent, received time.Time, since time.Duration) {
	if int64(since) < c.next.Load() {
		return
	}
	theirs, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	c.next.Store(int64(since + clockEvery))
	// Their second began at some time up to a second ago.
	offset := time.Duration(0)
	switch theirs = theirs.Round(0); {
	case theirs.After(received.Round(0)):
		offset = theirs.Sub(received.Round(0))
	case theirs.Add(time.Second).Before(sent.Round(0)):
		offset = theirs.Add(time.Second).Sub(sent.Round(0))
	}
	c.offset.Store(int64(offset))
}
