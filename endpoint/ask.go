package endpoint

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

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

// introduction is what a cluster says about itself to anyone.
type introduction struct {
	identity peer.Identity
	protocol peer.Protocol
	date     time.Time // its clock; zero if it does not say
}

// ask sends the one request there is and returns what is answered, and
// whether the connection can carry another request, which it is asked to do if
// keep is set. An error is either one of the connection or says what is wrong
// with the answer.
func ask(conn io.ReadWriter, host string, keep bool) (said introduction, reusable bool, err error) {
	request := "GET " + PathIDs + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: liqo-agent\r\nAccept: application/json\r\n" + protocolLine()
	if !keep {
		request += "Connection: close\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return introduction{}, false, err
	}
	r := readers.Get().(*bufio.Reader)
	limited := &limitedReader{from: conn, left: maxResponse}
	r.Reset(limited)
	defer func() {
		r.Reset(nil)
		readers.Put(r)
	}()
	said, closing, err := readAnswer(r)
	if err != nil && limited.left == 0 {
		// Where the reader gave up does not matter then.
		return introduction{}, false, errTooMuch
	}
	// What came behind the answer was not asked for, and would be lost.
	return said, err == nil && keep && !closing && r.Buffered() == 0, err
}

// readAnswer reads an HTTP response with an introduction in it, and whether the
// other end closes the connection after it. There are no redirects to follow and
// nothing to decompress: anything but a plain 200 is an error.
func readAnswer(r *bufio.Reader) (said introduction, closing bool, err error) {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return introduction{}, false, answerError(err)
	}
	if resp.StatusCode != http.StatusOK {
		return introduction{}, false, fmt.Errorf("answers %s with HTTP status %d", PathIDs, resp.StatusCode)
	}
	if resp.ContentLength > maxAnswer {
		return introduction{}, false, errTooMuch
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return introduction{}, false, answerError(err)
	}
	if len(body) > maxAnswer {
		return introduction{}, false, errTooMuch
	}
	said.protocol = protocolOf(resp.Header)
	said.date, _ = http.ParseTime(resp.Header.Get("Date")) // what is no time says nothing
	said.identity, err = decodeIdentity(body)
	return said, resp.Close, err
}

// answerError leaves errors of the connection as they are and explains those
// of the answer.
func answerError(err error) error {
	if errors.Is(err, errTooMuch) || lost(err) {
		return err
	}
	return fmt.Errorf("does not answer %s with HTTP: %w", PathIDs, err)
}

// decodeIdentity reads the body of /ids. All three values must be there, be
// strings, and keep the rules of package peer; other members are ignored.
func decodeIdentity(body []byte) (peer.Identity, error) {
	var raw struct {
		ID        *string `json:"clusterId"`
		Name      *string `json:"clusterName"`
		Namespace *string `json:"guestNamespace"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return peer.Identity{}, fmt.Errorf("answers %s with something else than an identity: %w", PathIDs, err)
	}
	if raw.ID == nil || raw.Name == nil || raw.Namespace == nil {
		return peer.Identity{}, fmt.Errorf("leaves clusterId, clusterName or guestNamespace out of %s", PathIDs)
	}
	identity := peer.Identity{ClusterID: peer.ClusterID(*raw.ID), ClusterName: *raw.Name, GuestNamespace: *raw.Namespace}
	if err := checkIdentity(identity); err != nil {
		return peer.Identity{}, err
	}
	return identity, nil
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
