package kubelet

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"liqo.io/agent/relay"
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
		return nil, refuse(http.StatusBadRequest, "the request is not an upgrade to SPDY/3.1 or WebSocket")
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
	defer func() { _ = provider.Close() }() // a second time if its streams have ended
	if got := answer.Header.Get("Upgrade"); !strings.EqualFold(got, header.Get("Upgrade")) {
		return refuse(http.StatusBadGateway, "provider %s answered with another protocol than the requested one", place.ID)
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("the connection cannot be taken over: %w", err)
	}
	defer func() { _ = conn.Close() }() // a second time if its streams have ended
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil // who is gone needs no answer
	}
	if _, err := conn.Write(switching(answer.Header)); err != nil {
		return nil
	}
	// What net/http has read is taken from it. It is not to read the rest: it takes
	// the end of what the caller sends for the end of the caller.
	ahead, err := buffered.Reader.Peek(buffered.Reader.Buffered())
	if err != nil {
		return nil
	}
	h.join(&relay.Conn{Conn: conn, Ahead: ahead}, watched(asked, place.ID, answer.Header, provider))
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

// join copies bytes between two connections until both directions have ended, or
// nothing moved for too long.
func (h *handler) join(caller, provider net.Conn) {
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	idle := time.AfterFunc(idleFor, cancel)
	defer idle.Stop()
	relay.Join(ctx, caller, provider, relay.Options{Linger: lingerFor, Moved: func() { idle.Reset(idleFor) }})
}
