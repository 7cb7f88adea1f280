package endpoint

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/peer"
)

const (
	// MaxRequestBody and MaxResponseBody bound the bodies of an Exchange in bytes.
	MaxRequestBody  = 64 << 10
	MaxResponseBody = 1 << 20
	// maxExchangeHeader bounds what comes before the body of an answer.
	maxExchangeHeader = 16 << 10
	// maxInterim is how many interim answers (1xx) are read over.
	maxInterim = 4
	// maxRetryAfter is the longest wait that an answer can ask for.
	maxRetryAfter = time.Hour
	// maxSaid bounds a sentence that a peer says, in characters.
	maxSaid = 1024
)

// Request is a call to a peer's endpoint. All that this package knows may be
// sent twice: none means something else the second time.
type Request struct {
	Method, Path string // Path is one of those in protocol.go, or behind PathGateway
	ContentType  string // of the body; "" is application/json
	Body         []byte // at most MaxRequestBody; nil for none
}

// Response is what the peer answered.
type Response struct {
	Status int
	Body   []byte // at most MaxResponseBody
	// RetryAfter is how long the peer asks to wait before the next attempt, at
	// most an hour; 0 when it does not.
	RetryAfter time.Duration
	// Result is who answered, and where; its Identity is empty.
	Result Result
}

// Exchange sends one request to the holder of target.Fingerprint, which must be
// set, or of a key that succeeded it, and returns the answer whatever its status.
// Nothing is sent before the key is proven. It uses and keeps the same
// connections as Identify, one to each peer; a call while that one is busy makes
// another, which is closed afterwards. A request on a kept connection that turns
// out to be dead is sent again on a new one.
//
// The error is an *Error, or wraps context.Canceled as that of Identify, or says
// what is wrong with the request.
func (c *Client) Exchange(ctx context.Context, target Target, r Request) (Response, error) {
	if target.Fingerprint.IsZero() {
		return Response{}, errors.New("nothing is sent to a peer whose key is not known")
	}
	if err := r.check(); err != nil {
		return Response{}, err
	}
	if err := c.notSelf(target); err != nil {
		return Response{}, err
	}
	cert, epoch, err := c.own.certificate()
	if err != nil {
		return Response{}, err
	}
	limited, cancel := context.WithTimeout(ctx, c.exchangeTimeout)
	defer cancel()
	candidates, failures := target.candidates()

	if k := c.kept.take(target.Fingerprint); k != nil {
		if k.epoch == epoch && (k.leadsTo(target, candidates) || k.ledFrom(target)) {
			k.silence(c.keptSilence)
			resp, err := c.roundTrip(limited, k, target, r)
			if err == nil {
				return resp, nil
			}
			if limited.Err() != nil || !lost(err) {
				return Response{}, failed(ctx, "call peer", target, []*Error{k.broken(err)})
			}
		} else {
			k.close()
		}
	}

	q := quest{target: target, cert: cert, epoch: epoch}
	k, ok, failures := find(limited, c, target, candidates, failures, func(ctx context.Context, cand candidate) (*dialed, *Error) {
		ctx, cancel := context.WithTimeout(ctx, c.attemptTimeout)
		defer cancel()
		return c.open(ctx, q, cand)
	}, (*dialed).close)
	if !ok {
		return Response{}, failed(ctx, "call peer", target, failures)
	}
	k.silence(c.attemptTimeout)
	resp, err := c.roundTrip(limited, k, target, r)
	if err != nil {
		return Response{}, failed(ctx, "call peer", target, []*Error{k.broken(err)})
	}
	return resp, nil
}

// check says what keeps a request from being written as HTTP.
func (r Request) check() error {
	switch {
	case r.Method == "" || strings.ContainsFunc(r.Method, func(c rune) bool { return c < 'A' || c > 'Z' }):
		return fmt.Errorf("request method %q is not a word in capital letters", r.Method)
	case !strings.HasPrefix(r.Path, "/") || strings.ContainsFunc(r.Path, unfit):
		return fmt.Errorf("request path %q is not one of an endpoint", r.Path)
	case strings.ContainsFunc(r.ContentType, func(c rune) bool { return c != ' ' && unfit(c) }):
		return fmt.Errorf("content type %q cannot be sent", r.ContentType)
	case len(r.Body) > MaxRequestBody:
		return fmt.Errorf("request body has %d bytes, an endpoint takes at most %d", len(r.Body), MaxRequestBody)
	}
	return nil
}

// unfit reports whether a character has no place in a request line.
func unfit(c rune) bool { return c <= ' ' || c >= 0x7f || c == '#' }

// silence bounds how long sent data may go unacknowledged. Other than a deadline
// for the answer it tells a peer that is gone from one that has much to do. A peer
// that does not read, with its window closed, is taken for gone as well: see watch.
// 0 takes the bound away.
func (k *dialed) silence(d time.Duration) {
	raw, err := k.tcp.SyscallConn()
	if err != nil {
		return // it is closed: the request will say so
	}
	_ = raw.Control(func(fd uintptr) {
		// Without it, the deadline of the whole call still holds.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}

// roundTrip sends the request on k and reads the answer. k is kept or closed. The
// error is one of the connection, or says what is wrong with the answer.
func (c *Client) roundTrip(ctx context.Context, k *dialed, target Target, r Request) (Response, error) {
	keep := c.kept.room(k.shown.Fingerprint, k.epoch)
	stop := halting(ctx, k.tcp)
	resp, reusable, err := exchange(k.tls, hostOf(k.cand), r, keep)
	reusable = stop() && reusable
	c.kept.putIf(reusable, k)
	protocol := resp.Result.Protocol
	resp.Result = k.result(target)
	resp.Result.Protocol = protocol
	return resp, err
}

// buffers are where requests are put together.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// exchange sends one request and reads its answer, and says whether the
// connection can carry another, which the peer is asked for if keep is set.
func exchange(conn io.ReadWriter, host string, r Request, keep bool) (resp Response, reusable bool, err error) {
	b := buffers.Get().(*bytes.Buffer)
	b.Reset()
	r.write(b, host, keep)
	_, err = conn.Write(b.Bytes())
	// A token must not lie about.
	clear(b.Bytes())
	buffers.Put(b)
	if err != nil {
		return Response{}, false, err
	}
	reader := readers.Get().(*bufio.Reader)
	limited := &limitedReader{from: conn, left: maxExchangeHeader + MaxResponseBody}
	reader.Reset(limited)
	defer func() {
		reader.Reset(nil)
		readers.Put(reader)
	}()
	resp, closing, err := readResponse(reader)
	if err != nil && limited.left == 0 {
		err = errTooMuchBody
	}
	if err != nil {
		return Response{}, false, err
	}
	return resp, keep && !closing && reader.Buffered() == 0, nil
}

// protocolLine is the line of a request's header that tells what we speak.
func protocolLine() string { return ProtocolHeader + ": " + peer.Spoken().String() + "\r\n" }

// protocolOf returns what the sender of an answer speaks. One that says nonsense
// about it is taken to speak the first version.
func protocolOf(h http.Header) peer.Protocol {
	p, err := peer.ParseProtocol(h.Get(ProtocolHeader))
	if err != nil {
		p, _ = peer.ParseProtocol("") // that is always one
	}
	return p
}

// speak reports whether there is a version that we speak with who speaks theirs.
func speak(theirs peer.Protocol) bool {
	_, ok := peer.Spoken().Common(theirs)
	return ok
}

// write puts the request together.
func (r Request) write(b *bytes.Buffer, host string, keep bool) {
	b.WriteString(r.Method + " " + r.Path + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: liqo-agent\r\nAccept: application/json\r\n" + protocolLine())
	if r.Body != nil {
		contentType := r.ContentType
		if contentType == "" {
			contentType = "application/json"
		}
		b.WriteString("Content-Type: " + contentType + "\r\n")
	}
	if r.Body != nil || r.Method == http.MethodPost {
		b.WriteString("Content-Length: " + strconv.Itoa(len(r.Body)) + "\r\n")
	}
	if !keep {
		b.WriteString("Connection: close\r\n")
	}
	b.WriteString("\r\n")
	b.Write(r.Body)
}

var errTooMuchBody = fmt.Errorf("answers with more than %d bytes", MaxResponseBody)

// readResponse reads one answer, and whether the other end closes the connection
// after it.
func readResponse(r *bufio.Reader) (out Response, closing bool, err error) {
	var resp *http.Response
	for range maxInterim {
		if resp, err = http.ReadResponse(r, nil); err != nil {
			return Response{}, false, notHTTP(err)
		}
		if resp.StatusCode/100 != 1 {
			break
		}
	}
	if resp.StatusCode < 200 {
		return Response{}, false, fmt.Errorf("answers with HTTP status %d", resp.StatusCode)
	}
	if resp.ContentLength > MaxResponseBody {
		return Response{}, false, errTooMuchBody
	}
	if 0 <= resp.ContentLength && resp.ContentLength <= MaxRequestBody {
		// What is said to be there is not much: it is taken at its word.
		out.Body = make([]byte, resp.ContentLength)
		_, err = io.ReadFull(resp.Body, out.Body)
	} else {
		out.Body, err = io.ReadAll(io.LimitReader(resp.Body, MaxResponseBody+1))
	}
	if err != nil {
		return Response{}, false, notHTTP(err)
	}
	if len(out.Body) > MaxResponseBody {
		return Response{}, false, errTooMuchBody
	}
	out.Status, out.Result.Protocol = resp.StatusCode, protocolOf(resp.Header)
	out.RetryAfter = retryAfter(resp.Header.Get("Retry-After"))
	return out, resp.Close, nil
}

// notHTTP leaves errors of the connection as they are and explains those of the
// answer.
func notHTTP(err error) error {
	if errors.Is(err, errTooMuch) || lost(err) {
		return err
	}
	return fmt.Errorf("does not answer with HTTP: %w", err)
}

// retryAfter reads the number of seconds in a Retry-After header (RFC 9110
// section 10.2.3). A date there is not looked at: clocks differ.
func retryAfter(header string) time.Duration {
	seconds, err := strconv.ParseUint(header, 10, 32)
	if err != nil {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

// Refusal returns why the peer refused, of a response whose status is no
// success: its own words, those of the API server behind its gateway, or the
// status. Its Error is never empty, is printable and of a bounded length; its
// Reason is "" when no single word was said.
func (r Response) Refusal() Refusal {
	var said struct {
		Error   string `json:"error"`
		Message string `json:"message"` // metav1.Status
		Reason  string `json:"reason"`
	}
	// A body that is something else leaves the fields empty, or some of them.
	_ = json.Unmarshal(r.Body, &said)
	refusal := Refusal{Error: readable(said.Error), Reason: word(said.Reason)}
	if refusal.Error == "" {
		refusal.Error = readable(said.Message)
	}
	if refusal.Error == "" {
		refusal.Error = strings.TrimSpace(fmt.Sprintf("the peer answers with HTTP status %d %s", r.Status, http.StatusText(r.Status)))
	}
	return refusal
}
