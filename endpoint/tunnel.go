package endpoint

import (
	"context"
	"io"
	"log"
	"net/http"
	"time"

	"golang.org/x/net/http2"

	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
)

// Bounds of a tunnel at the server.
const (
	tunnelRequests = 250       // of which most wait or last, see RequestsPerPeer and StreamsPerPeer
	tunnelFrame    = 16 << 10  // bytes of a frame, the least that HTTP/2 allows
	tunnelUpload   = 1 << 20   // bytes of bodies that are not read yet
	requestUpload  = 256 << 10 // of these, of one request

	// The client checks more often than this whether the other end is there, so the
	// server does only if the client is not.
	tunnelSilence = 30 * time.Second
	tunnelPing    = 15 * time.Second
)

// serveTunnel makes the connection of r one of HTTP/2, on which the caller sends
// further requests. Each of them goes the same way as if it came on a connection of
// its own: it is admitted anew and limited as any other.
func (s *Server) serveTunnel(w http.ResponseWriter, r *http.Request, c *conn, caller Caller) *refusal.Refusal {
	switch {
	case r.Method != http.MethodGet:
		return refusal.NotAllowed(http.MethodGet)
	case r.ProtoMajor != 1 || r.ContentLength != 0 || r.Header.Get("Upgrade") != wire.TunnelProtocol || len(r.Header.Values("Upgrade")) != 1:
		return refusal.BadBody(`a tunnel begins with a GET of HTTP/1.1 without a body, with "Upgrade: ` + wire.TunnelProtocol + `"`)
	}
	// Who opens one too many has probably lost the others without our noticing.
	s.streams.crowd(caller.ID, tunnelsPerPeer)
	if !s.limits.tunnels.Take(caller.ID) {
		return refusal.TooMany("tunnels")
	}
	defer s.limits.tunnels.Release(caller.ID)
	if !s.streams.enter() {
		return refusal.NoAPIServer(http.StatusServiceUnavailable, "this cluster's agent is about to stop")
	}
	defer s.streams.leave()

	secure, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return refusal.Internal("the connection cannot be upgraded; please report this")
	}
	defer func() { _ = secure.Close() }() // it has ended
	// Without the farewell of TLS, which may have to wait.
	defer s.streams.add(&openStream{id: caller.ID, shown: caller.Shown, end: func() { _ = c.Close() }})()
	if buffered.Reader.Buffered() > 0 {
		return nil // it did not wait for the answer, so it is no HTTP/2 that follows
	}
	_ = secure.SetWriteDeadline(time.Now().Add(s.times.write))
	if _, err := io.WriteString(secure, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+wire.TunnelProtocol+"\r\n"+wire.ProtocolLine()+"\r\n"); err != nil {
		return nil
	}
	_ = secure.SetWriteDeadline(time.Time{})
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	server := &http2.Server{
		MaxConcurrentStreams: tunnelRequests,
		MaxReadFrameSize:     tunnelFrame,
		IdleTimeout:          wire.TunnelIdle,
		ReadIdleTimeout:      tunnelSilence,
		PingTimeout:          tunnelPing,
		WriteByteTimeout:     s.times.stall,

		MaxUploadBufferPerConnection: tunnelUpload,
		MaxUploadBufferPerStream:     requestUpload,
	}
	server.ServeConn(secure, &http2.ServeConnOpts{
		Context: ctx,
		Handler: http.HandlerFunc(s.serveInTunnel),
		BaseConfig: &http.Server{
			ReadTimeout: s.times.read, WriteTimeout: s.times.write, MaxHeaderBytes: maxHeader,
			ErrorLog: log.New(&strangers{logger: s.cfg.Logger}, "", 0),
		},
	})
	return nil
}

// serveInTunnel is serve for a request in a tunnel, whose end nobody else waits for.
func (s *Server) serveInTunnel(w http.ResponseWriter, r *http.Request) {
	if r.Context().Err() != nil {
		// The caller has reset it already, perhaps with many more (CVE-2023-44487). How
		// many can wait for a handler is bounded by http2; what they cost, here.
		panic(http.ErrAbortHandler)
	}
	if !s.streams.enter() {
		panic(http.ErrAbortHandler) // the connection ends with the server
	}
	defer s.streams.leave()
	s.serve(w, r)
}
