package client

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/relay"
)

// Upgrade sends a request without a body whose answer is to be 101 Switching
// Protocols, and returns the connection if it is. Else the answer's body, of at most
// 64 KiB, is read. ctx bounds the wait for the answer only.
func (k *Conn) Upgrade(ctx context.Context, method, target string, header http.Header) (*relay.Conn, *http.Response, error) {
	stop := abortOnDone(ctx, k.tcp)
	var b strings.Builder
	b.WriteString(method + " " + target + " HTTP/1.1\r\nHost: " + hostOf(k.cand) + "\r\nUser-Agent: liqo-agent\r\n" + wire.ProtocolLine())
	if method == http.MethodPost {
		b.WriteString("Content-Length: 0\r\n")
	}
	if err := header.Write(&b); err != nil {
		return nil, nil, err
	}
	b.WriteString("\r\n")
	_, err := io.WriteString(k.tls, b.String())
	if err != nil {
		stop()
		return nil, nil, err
	}
	limited := &limitedReader{from: k.tls, left: maxExchangeHeader + MaxRequestBody}
	r := bufio.NewReader(limited)
	var resp *http.Response
	for range maxInterim {
		resp, err = http.ReadResponse(r, &http.Request{Method: method})
		if err != nil || resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	var body []byte
	if err == nil && resp.StatusCode >= 200 {
		body, err = io.ReadAll(io.LimitReader(resp.Body, MaxRequestBody))
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	switch {
	case err != nil:
		return nil, nil, notHTTP(err)
	case resp.StatusCode >= 200:
		resp.Body = io.NopCloser(strings.NewReader(string(body)))
		return nil, resp, nil
	case resp.StatusCode != http.StatusSwitchingProtocols:
		return nil, nil, fmt.Errorf("answers with HTTP status %d", resp.StatusCode)
	}
	ahead, err := r.Peek(r.Buffered())
	if err != nil {
		return nil, nil, err
	}
	return &relay.Conn{Conn: k.tls, Ahead: ahead}, resp, nil
}
