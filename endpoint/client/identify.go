package client

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
)

const (
	// maxAnswer bounds the body of /ids; three names of 63 bytes fit many
	// times over.
	maxAnswer = 4 << 10
	// maxResponse bounds everything that is read for one answer.
	maxResponse = maxAnswer + 8<<10
)

var errTooMuch = errors.New("answers with more than an identity takes")

// readers saves most of the garbage of a check. Nothing of a connection stays
// in a reader that is put back.
var readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}

// identification is what a cluster says about itself to anyone.
type identification struct {
	identity peer.Identity
	protocol peer.Protocol
	date     time.Time // its clock; zero if it does not say
}

// requestIdentity asks for /ids and returns the answer, and
// whether the connection can carry another request, which it is asked to do if
// keep is set. An error is either one of the connection or says what is wrong
// with the answer.
func requestIdentity(conn io.ReadWriter, host string, keep bool) (said identification, reusable bool, err error) {
	request := "GET " + wire.PathIDs + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: liqo-agent\r\nAccept: application/json\r\n" + wire.ProtocolLine()
	if !keep {
		request += "Connection: close\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return identification{}, false, err
	}
	r := readers.Get().(*bufio.Reader)
	limited := &limitedReader{from: conn, left: maxResponse}
	r.Reset(limited)
	defer func() {
		r.Reset(nil)
		readers.Put(r)
	}()
	said, closing, err := readIdentity(r)
	if err != nil && limited.left == 0 {
		// Where the reader gave up does not matter then.
		return identification{}, false, errTooMuch
	}
	// What came behind the answer was not asked for, and would be lost.
	return said, err == nil && keep && !closing && r.Buffered() == 0, err
}

// readIdentity reads the HTTP response to a request for /ids, and whether the
// other end closes the connection after it. There are no redirects to follow and
// nothing to decompress: anything but a plain 200 is an error.
func readIdentity(r *bufio.Reader) (said identification, closing bool, err error) {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return identification{}, false, answerError(err)
	}
	if resp.StatusCode != http.StatusOK {
		return identification{}, false, fmt.Errorf("answers %s with HTTP status %d", wire.PathIDs, resp.StatusCode)
	}
	if resp.ContentLength > maxAnswer {
		return identification{}, false, errTooMuch
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return identification{}, false, answerError(err)
	}
	if len(body) > maxAnswer {
		return identification{}, false, errTooMuch
	}
	said.protocol = wire.ProtocolOf(resp.Header.Get(wire.ProtocolHeader))
	said.date, _ = http.ParseTime(resp.Header.Get("Date")) // what is no time says nothing
	said.identity, err = wire.ParseIdentity(body)
	return said, resp.Close, err
}

// answerError leaves errors of the connection as they are and explains those
// of the answer.
func answerError(err error) error {
	if errors.Is(err, errTooMuch) || isConnError(err) {
		return err
	}
	return fmt.Errorf("does not answer %s with HTTP: %w", wire.PathIDs, err)
}

// limitedReader is io.LimitedReader with an error of its own, so that too much
// is told apart from a connection that ended early.
type limitedReader struct {
	from io.Reader
	left int
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left == 0 {
		return 0, errTooMuch
	}
	n, err := l.from.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}
