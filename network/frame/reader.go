package frame

import "io"

// bufferLen is the length of a Reader's buffer. It holds the longest frame and
// about as much again, so that what is left at its end is rarely long when it
// has to be moved to the front.
const bufferLen = 2 * maxFrame

// maxEmpty is how many reads in a row may return nothing.
const maxEmpty = 100

// Reader takes frames off a stream. It has one buffer of 128 KiB, and allocates
// nothing else for a frame, whatever its header claims.
type Reader struct {
	r          io.Reader
	buf        []byte
	start, end int   // what was read and not returned yet
	err        error // of the stream, behind what was read
}

// NewReader returns a Reader on r, from which it may read more than it has
// returned.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: r, buf: make([]byte, bufferLen)}
}

// Next returns the next frame of a known type. The payload is part of the
// buffer: the caller may change it, and it is valid until the next call.
//
// The error is io.EOF when the stream ended between two frames,
// io.ErrUnexpectedEOF when it ended inside one, one that wraps ErrType or
// ErrLength when the other end broke the rules, or else that of the stream.
// Every later call returns it again.
func (r *Reader) Next() (Type, []byte, error) {
	for {
		if err := r.fill(HeaderLen); err != nil {
			return 0, nil, err
		}
		h := r.buf[r.start:]
		t, n := Type(h[0]), int(h[1])<<16|int(h[2])<<8|int(h[3])
		if err := t.check(n); err != nil {
			return 0, nil, err // and again, because the header stays
		}
		if err := r.fill(HeaderLen + n); err != nil {
			return 0, nil, err
		}
		from := r.start + HeaderLen
		r.start = from + n
		if t < optional {
			return t, r.buf[from:r.start:r.start], nil
		}
	}
}

// fill reads until there are n bytes, which the buffer must be able to hold.
func (r *Reader) fill(n int) error {
	if r.end-r.start >= n {
		return nil
	}
	if r.start == r.end {
		r.start, r.end = 0, 0
	} else if len(r.buf)-r.start < maxFrame {
		r.start, r.end = 0, copy(r.buf, r.buf[r.start:r.end])
	}
	for empty := 0; r.end-r.start < n; empty++ {
		if r.err == nil && empty == maxEmpty {
			r.err = io.ErrNoProgress
		}
		if r.err == io.EOF && r.end > r.start {
			r.err = io.ErrUnexpectedEOF
		}
		if r.err != nil {
			return r.err
		}
		var m int
		if m, r.err = r.r.Read(r.buf[r.end:]); m > 0 {
			r.end += m
			empty = 0
		}
	}
	return nil
}
