package endpoint

import (
	"context"
	"io"
	"log"
	"net"
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
	if no := checkSwitch(r, wire.TunnelProtocol); no != nil {
		return no
	}
	// Who opens one too many has probably lost the others without our noticing. They end soon, but not at once.
	s.streams.crowd(caller.ID, tunnelsPerPeer)
	leave, no := s.acquire(r, s.limits.tunnels, caller, "tunnels")
	if no != nil {
		return no
	}
	defer leave()
	if !s.streams.enter() {
		return refusal.NoAPIServer(http.StatusServiceUnavailable, "this cluster's agent is about to stop")
	}
	defer s.streams.leave()

	secure, no := s.takeOver(w, wire.TunnelProtocol)
	if secure == nil {
		return no
	}
	defer func() { _ = secure.Close() }() // it has ended
	// Without the farewell of TLS, which may have to wait.
	defer s.streams.add(&openStream{id: caller.ID, shown: caller.Shown, tunnel: true, end: func() { _ = c.Close() }})()
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

// checkSwitch checks a request that is to make its connection one of another protocol.
func checkSwitch(r *http.Request, protocol string) *refusal.Refusal {
	if r.Method != http.MethodGet {
		return refusal.NotAllowed(http.MethodGet)
	}
	if r.ProtoMajor != 1 || r.ContentLength != 0 || r.Header.Get("Upgrade") != protocol || len(r.Header.Values("Upgrade")) != 1 {
		return refusal.BadBody(`this begins with a GET of HTTP/1.1 without a body, with "Upgrade: ` + protocol + `"`)
	}
	return nil
}

// takeOver answers a request of checkSwitch, and returns the connection, which has no
// deadlines any more. It is nil when it cannot be used; without a refusal, nobody waits for
// an answer.
func (s *Server) takeOver(w http.ResponseWriter, protocol string) (net.Conn, *refusal.Refusal) {
	secure, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, refusal.Internal("the connection cannot be upgraded; please report this")
	}
	_ = secure.SetWriteDeadline(time.Now().Add(s.times.write))
	// A caller that did not wait for the answer speaks something else.
	if buffered.Reader.Buffered() == 0 {
		_, err = io.WriteString(secure, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n"+wire.ProtocolLine()+"\r\n")
	}
	if err != nil || buffered.Reader.Buffered() > 0 {
		_ = secure.Close()
		return nil, nil
	}
	_ = secure.SetDeadline(time.Time{})
	return secure, nil
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
