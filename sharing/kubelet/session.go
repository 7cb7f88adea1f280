package kubelet

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/peer"
	"liqo.io/agent/relay"
)

const (
	frameHeader = 8 // bytes of a frame's header in SPDY
	// wholeFrame is the longest frame that is passed on only as a whole. Kubelets write
	// at most 32 KiB of data at a time.
	wholeFrame = 64<<10 + frameHeader
	// errorStream is where the status of a command is told: the first stream that a
	// client opens, and its streams have odd numbers.
	errorStream = 1
	lastOfIt    = 0x01 // flag of a frame: the stream ends with it
)

// statusProtocols are the protocols in which every command ends with a status. In
// older ones a command that went well ends with nothing.
var statusProtocols = []string{"v4.channel.k8s.io", "v5.channel.k8s.io"}

// session is what a provider sends of an exec or attach over SPDY. API servers and
// kubectl take a connection that ends without a status for a command that went well,
// however it ends: a connection that breaks off, or a kubelet or API server at the
// provider that closes before everything was taken, would be a file that ends early
// and exit code 0. So a status is put in its place that says what happened.
type session struct {
	net.Conn
	in   *bufio.Reader
	left int    // bytes of the frame that is being read
	told bool   // whether there was a status
	last []byte // what is left of the status in its place
	lost []byte // that status as a frame
	err  error  // how the connection ended
}

// watched returns what is to be read of the provider's connection for a call.
func watched(asked call, provider peer.ClusterID, answer http.Header, conn net.Conn) net.Conn {
	if asked.kind == portForward || !strings.EqualFold(answer.Get("Upgrade"), "SPDY/3.1") ||
		!slices.Contains(statusProtocols, answer.Get(streamProtocols)) {
		return conn
	}
	text, _ := json.Marshal(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError,
		Message: "the connection to provider " + string(provider) + " ended before the command's exit status arrived: its output may be incomplete; run it again"})
	frame := binary.BigEndian.AppendUint32(nil, errorStream)
	frame = binary.BigEndian.AppendUint32(frame, lastOfIt<<24|uint32(len(text)))
	return &session{Conn: conn, in: bufio.NewReaderSize(conn, wholeFrame), lost: append(frame, text...)}
}

// Read is net.Conn.Read. Part of a frame is never followed by anything.
func (s *session) Read(p []byte) (int, error) {
	if s.err == nil && s.left == 0 {
		s.err = s.next()
		if s.err != nil && !s.told {
			s.last = s.lost
		}
	}
	if s.err != nil {
		if len(s.last) == 0 {
			return 0, s.err
		}
		n := copy(p, s.last)
		s.last = s.last[n:]
		return n, nil
	}
	n, err := s.in.Read(p[:min(len(p), s.left)])
	s.left -= n
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	s.err = err
	return n, err
}

// next waits for a frame.
func (s *session) next() error {
	header, err := s.in.Peek(frameHeader)
	if err != nil {
		return endOf(header, err)
	}
	stream := binary.BigEndian.Uint32(header) // with the highest bit set, no data but control
	size := int(binary.BigEndian.Uint32(header[4:]) & 0xffffff)
	if frame, err := s.in.Peek(min(frameHeader+size, wholeFrame)); err != nil {
		return endOf(frame, err)
	}
	s.told = s.told || stream == errorStream && size > 0
	s.left = frameHeader + size
	return nil
}

// endOf is how a connection ended of which that much of a frame had come.
func endOf(part []byte, err error) error {
	if err == io.EOF && len(part) > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// CloseWrite ends what is sent to the provider.
func (s *session) CloseWrite() error { return relay.CloseWrite(s.Conn) }

// NetConn returns the connection below.
func (s *session) NetConn() net.Conn { return s.Conn }
