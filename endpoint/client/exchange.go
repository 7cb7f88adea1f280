package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
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
// another, which is closed afterwards. A request on an idle connection that turns
// out to be dead is sent again on a new one.
//
// The error is an *Error, or wraps context.Canceled as that of Identify, or says
// what is wrong with the request.
func (c *Client) Exchange(ctx context.Context, target peer.Target, r Request) (Response, error) {
	if target.Fingerprint.IsZero() {
		return Response{}, errKeyUnknown
	}
	if err := r.check(); err != nil {
		return Response{}, err
	}
	if err := c.notSelf(target); err != nil {
		return Response{}, err
	}
	cert, epoch, err := c.presented.certificate()
	if err != nil {
		return Response{}, err
	}
	limited, cancel := context.WithTimeout(ctx, c.exchangeTimeout)
	defer cancel()

	if k := c.idle.take(target.Fingerprint); k != nil {
		if k.epoch == epoch && k.Serves(target) {
			k.LimitSilence(c.idleSilence)
			resp, err := c.roundTrip(limited, k, target, r)
			if err == nil {
				return resp, nil
			}
			if limited.Err() != nil || !isConnError(err) {
				return Response{}, failed(ctx, "call peer", target, []*Error{k.Broken(err)})
			}
		} else {
			k.Close()
		}
	}

	k, failures := c.reach(limited, dialRequest{target: target, cert: cert, epoch: epoch})
	if k == nil {
		return Response{}, failed(ctx, "call peer", target, failures)
	}
	k.LimitSilence(c.attemptTimeout)
	resp, err := c.roundTrip(limited, k, target, r)
	if err != nil {
		return Response{}, failed(ctx, "call peer", target, []*Error{k.Broken(err)})
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

// Dial connects to the holder of target.Fingerprint, which must be set, or of a key
// that succeeded it, and shows who we are. The connection belongs to the caller, and
// is none of those that are kept. The error is as that of Exchange.
func (c *Client) Dial(ctx context.Context, target peer.Target) (*Conn, error) {
	if target.Fingerprint.IsZero() {
		return nil, errKeyUnknown
	}
	if err := c.notSelf(target); err != nil {
		return nil, err
	}
	cert, epoch, err := c.presented.certificate()
	if err != nil {
		return nil, err
	}
	k, failures := c.reach(ctx, dialRequest{target: target, cert: cert, epoch: epoch})
	if k == nil {
		return nil, failed(ctx, "call peer", target, failures)
	}
	return k, nil
}

// reach connects to the holder of the key that q asks for, wherever that is.
func (c *Client) reach(ctx context.Context, q dialRequest) (*Conn, []*Error) {
	candidates, failures := candidatesFor(q.target)
	k, ok, failures := find(ctx, c, q.target, candidates, failures, func(ctx context.Context, cand candidate) (*Conn, *Error) {
		ctx, cancel := context.WithTimeout(ctx, c.attemptTimeout)
		defer cancel()
		return c.open(ctx, q, cand)
	}, (*Conn).Close)
	if !ok {
		return nil, failures
	}
	return k, nil
}

// errKeyUnknown: there is no key by which to know the peer.
var errKeyUnknown = errors.New("nothing is sent to a peer whose key is not known")

// LimitSilence bounds how long sent data may go unacknowledged. Other than a deadline
// for the answer it tells a peer that is gone from one that has much to do. A peer
// that does not read, with its window closed, is taken for gone as well: see watchUnheard.
// 0 takes the bound away.
func (k *Conn) LimitSilence(d time.Duration) {
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
func (c *Client) roundTrip(ctx context.Context, k *Conn, target peer.Target, r Request) (Response, error) {
	keep := c.idle.room(k.shown.Fingerprint, k.epoch)
	stop := abortOnDone(ctx, k.tcp)
	resp, reusable, err := exchange(k.tls, hostOf(k.cand), r, keep)
	reusable = stop() && reusable
	c.idle.putIf(reusable, k)
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

// write puts the request together.
func (r Request) write(b *bytes.Buffer, host string, keep bool) {
	b.WriteString(r.Method + " " + r.Path + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: liqo-agent\r\nAccept: application/json\r\n" + wire.ProtocolLine())
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
	out.Status, out.Result.Protocol = resp.StatusCode, wire.ProtocolOf(resp.Header.Get(wire.ProtocolHeader))
	out.RetryAfter = min(throttle.RetryAfter(resp.Header.Get("Retry-After")), maxRetryAfter)
	return out, resp.Close, nil
}

// notHTTP leaves errors of the connection as they are and explains those of the
// answer.
func notHTTP(err error) error {
	if errors.Is(err, errTooMuch) || isConnError(err) {
		return err
	}
	return fmt.Errorf("does not answer with HTTP: %w", err)
}

// Refusal returns why the peer refused, of a response whose status is no
// success: its own words, those of the API server behind its gateway, or the
// status. Its Error is never empty, is printable and of a bounded length; its
// Reason is "" when no single word was said.
func (r Response) Refusal() wire.Refusal {
	refusal := wire.ParseRefusal(r.Body)
	if refusal.Error == "" {
		refusal.Error = strings.TrimSpace(fmt.Sprintf("the peer answers with HTTP status %d %s", r.Status, http.StatusText(r.Status)))
	}
	return refusal
}

// ReadResponse reads an answer of at most 64 KiB; who answered is not in it.
func ReadResponse(resp *http.Response) (Response, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxRequestBody+1))
	if err != nil {
		return Response{}, err
	}
	if len(body) > MaxRequestBody {
		return Response{}, fmt.Errorf("answers with more than %d bytes", MaxRequestBody)
	}
	return Response{Status: resp.StatusCode, Body: body, RetryAfter: min(throttle.RetryAfter(resp.Header.Get("Retry-After")), maxRetryAfter)}, nil
}

// Refused returns an answer that is no success as an error: a *Refused if the peer does
// not want what was asked for, and will not the next time.
func (r Response) Refused() error {
	said := r.Refusal()
	err := fmt.Errorf("%s (HTTP status %d)", said.Error, r.Status)
	switch {
	case r.Status == http.StatusTooManyRequests && r.RetryAfter > 0:
		return retryLater{err, r.RetryAfter}
	case r.Status != http.StatusForbidden, said.Reason == wire.ReasonCertificateEnded:
		return err // the latter passes, and nothing is taken back before
	case said.Reason == wire.ReasonNotTrusted, said.Reason == wire.ReasonBlocked:
		return notAdmitted{err}
	}
	return &wire.Refused{Reason: said.Reason, Message: said.Error}
}

// retryLater is the error of a call that the peer takes only after a while.
type retryLater struct {
	error
	after time.Duration
}

// RetryAfter returns how long that is.
func (l retryLater) RetryAfter() time.Duration { return l.after }

// Unwrap returns what the peer said.
func (l retryLater) Unwrap() error { return l.error }

// notAdmitted is the error of a call to a cluster that does not know the caller any
// more, or has blocked it.
type notAdmitted struct{ error }

// NotAdmitted is true.
func (notAdmitted) NotAdmitted() bool { return true }

// Unwrap returns what the cluster said.
func (o notAdmitted) Unwrap() error { return o.error }
