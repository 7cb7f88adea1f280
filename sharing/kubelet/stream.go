package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

const (
	// maxProtocols bounds how many stream protocols are offered, and maxProtocol how
	// long the name of one is.
	maxProtocols = 16
	maxProtocol  = 64
	// bearerProtocol begins what browsers offer as a protocol of WebSocket and is a
	// token of the caller in truth.
	bearerProtocol = "base64url.bearer.authorization.k8s.io."

	streamProtocols = "X-Stream-Protocol-Version"
	webSocketList   = "Sec-Websocket-Protocol"
)

// The header fields that a request and an answer of an upgrade consist of, beside
// Connection and Upgrade: those of SPDY streams as Kubernetes has them, and of
// WebSocket (RFC 6455 section 4).
var (
	requestFields = []string{streamProtocols, webSocketList, "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Extensions"}
	answerFields  = []string{streamProtocols, webSocketList, "Sec-Websocket-Accept", "Sec-Websocket-Extensions"}
)

// upgrade returns the header of an upgrade at the provider for that of the
// caller's: what the streams need, and nothing that says who calls.
func upgrade(header http.Header) (http.Header, error) {
	protocol := header.Get("Upgrade")
	if !httpguts.HeaderValuesContainsToken(header["Connection"], "Upgrade") ||
		!strings.EqualFold(protocol, "SPDY/3.1") && !strings.EqualFold(protocol, "websocket") {
		return nil, refuse(http.StatusBadRequest, "the request is no upgrade to SPDY/3.1 or WebSocket")
	}
	out := http.Header{"Connection": {"Upgrade"}, "Upgrade": {protocol}}
	for _, field := range requestFields {
		for _, value := range header[field] {
			if field == streamProtocols || field == webSocketList {
				value = strings.Join(protocolNames(value), ", ")
			}
			if value != "" || field == streamProtocols {
				out[field] = append(out[field], value)
			}
		}
		if len(out[field]) > maxProtocols {
			return nil, refuse(http.StatusBadRequest, "there are more than %d values of %s", maxProtocols, field)
		}
	}
	return out, nil
}

// protocolNames are the names in a list of protocols.
func protocolNames(list string) []string {
	var out []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if len(name) > maxProtocol || strings.HasPrefix(name, bearerProtocol) || len(out) == maxProtocols {
			continue
		}
		out = append(out, name)
	}
	return out
}

// stream makes the caller's upgrade again at the provider and copies bytes both
// ways until the streams end.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, asked call, place Place) error {
	header, err := upgrade(r.Header)
	if err != nil {
		return err
	}
	if r.ContentLength != 0 {
		return refuse(http.StatusBadRequest, "an upgrade has no body")
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerIn)
	defer cancel()
	out := request(ctx, r.Method, asked, place)
	out.Header = header
	out.Header.Set("User-Agent", "liqo-agent")
	provider, answer, err := place.Upstream.Upgrade(ctx, out)
	if err != nil {
		return unreachable(place.ID, err)
	}
	if provider == nil {
		defer func() { _ = answer.Body.Close() }() // what matters was read
		return refused(place.ID, answer)
	}
	defer func() { _ = provider.Close() }() // its streams have ended
	if got := answer.Header.Get("Upgrade"); !strings.EqualFold(got, header.Get("Upgrade")) {
		return refuse(http.StatusBadGateway, "provider %s answered with another protocol than it was asked for", place.ID)
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("the connection cannot be taken over: %w", err)
	}
	defer func() { _ = conn.Close() }() // its streams have ended
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil // who is gone needs no answer
	}
	if _, err := conn.Write(switching(answer.Header)); err != nil {
		return nil
	}
	stop := context.AfterFunc(h.ctx, func() {
		_ = conn.Close()
		_ = provider.Close()
	})
	defer stop()
	join(&early{Conn: conn, reader: buffered.Reader}, provider)
	return nil
}

// switching is the header of an answer 101 (Switching Protocols).
func switching(header http.Header) []byte {
	var out bytes.Buffer
	out.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n")
	fields := http.Header{"Upgrade": header["Upgrade"][:1]}
	for _, field := range answerFields {
		if values := header[field]; len(values) > 0 {
			fields[field] = slices.Clone(values[:1])
		}
	}
	_ = fields.Write(&out) // a buffer does not fail
	out.WriteString("\r\n")
	return out.Bytes()
}

// early is a connection of which some bytes were read already.
type early struct {
	net.Conn
	reader *bufio.Reader
}

func (e *early) Read(p []byte) (int, error) { return e.reader.Read(p) }

// CloseWrite ends what is sent, so that the other end can still answer.
func (e *early) CloseWrite() error { return closeWrite(e.Conn) }

// closeWrite ends what is sent on a connection; on one that cannot do that in one
// direction alone, it closes it.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// join copies bytes between two connections until both directions have ended, or
// nothing moved for too long.
func join(a, b net.Conn) {
	watch := newWatch(idleFor, func() {
		_ = a.Close()
		_ = b.Close()
	})
	defer watch.stop()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			from, to := way[0], way[1]
			_, err := io.CopyBuffer(moved{to, watch}, struct{ io.Reader }{from}, make([]byte, 32<<10))
			if err == nil {
				err = closeWrite(to)
			}
			if err != nil { // one that broke has no other direction
				_ = from.Close()
				_ = to.Close()
			}
			watch.limit(lingerFor)
		})
	}
	both.Wait()
}

// moved writes to a connection and says that something moves.
type moved struct {
	to    io.Writer
	watch *watch
}

func (m moved) Write(p []byte) (int, error) {
	m.watch.touch()
	n, err := m.to.Write(p)
	m.watch.touch()
	return n, err
}

// watch calls a function once nothing happened for some time.
type watch struct {
	mu    sync.Mutex
	life  time.Duration
	timer *time.Timer
}

func newWatch(life time.Duration, end func()) *watch {
	return &watch{life: life, timer: time.AfterFunc(life, end)}
}

func (w *watch) touch() { w.limit(idleFor) }

// limit makes the time shorter, never longer, and starts it anew.
func (w *watch) limit(life time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.life = min(w.life, life)
	w.timer.Reset(w.life)
}

func (w *watch) stop() { w.timer.Stop() }
