package kubelet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// frame is a frame of data in SPDY.
func frame(stream uint32, data string) []byte {
	out := binary.BigEndian.AppendUint32(nil, stream)
	out = binary.BigEndian.AppendUint32(out, uint32(len(data)))
	return append(out, data...)
}

// control is a frame of control.
func control(kind uint16, data string) []byte {
	return frame(0x8003<<16|uint32(kind), data)
}

// sends is a connection of which only the reading matters.
type sends struct {
	net.Conn
	io.Reader
}

func (s sends) Read(p []byte) (int, error) { return s.Reader.Read(p) }

func spdyAnswer(protocol string) http.Header {
	return http.Header{"Upgrade": {"SPDY/3.1"}, streamProtocols: {protocol}}
}

// However a session of a command ends: it is passed on as it is when it has a
// status, and else gets one behind its last whole frame.
func TestSession(t *testing.T) {
	errReset := errors.New("reset")
	output, status := frame(5, strings.Repeat("x", 32<<10)), frame(errorStream, `{"status":"Success"}`)
	large := frame(5, strings.Repeat("y", 2*wholeFrame))
	goAway := control(7, "12345678")
	whole := bytes.Join([][]byte{control(2, "reply"), output, large, status, goAway}, nil)
	for name, test := range map[string]struct {
		sent, passed []byte // passed without a status of ours
		end, want    error
		added        bool
	}{
		"whole":                     {whole, whole, io.EOF, io.EOF, false},
		"broken behind the status":  {whole, whole, errReset, errReset, false},
		"nothing":                   {nil, nil, io.EOF, io.EOF, true},
		"ended between frames":      {output, output, io.EOF, io.EOF, true},
		"broken between frames":     {output, output, errReset, errReset, true},
		"ended within a frame":      {append(bytes.Clone(output), output[:20_000]...), output, io.EOF, io.ErrUnexpectedEOF, true},
		"broken within a frame":     {append(bytes.Clone(output), output[:20_000]...), output, errReset, errReset, true},
		"ended within a header":     {append(bytes.Clone(output), status[:7]...), output, io.EOF, io.ErrUnexpectedEOF, true},
		"ended within the status":   {append(bytes.Clone(output), status[:9]...), output, io.EOF, io.ErrUnexpectedEOF, true},
		"ended within a long frame": {large[:len(large)-1], large[:len(large)-1], io.EOF, io.ErrUnexpectedEOF, false},
		"an empty status":           {frame(errorStream, ""), frame(errorStream, ""), io.EOF, io.EOF, true},
	} {
		for way, wrap := range map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader { return r }, "by halves": iotest.HalfReader, "by bytes": iotest.OneByteReader} {
			conn := watched(call{kind: exec}, "far", spdyAnswer("v4.channel.k8s.io"),
				sends{Reader: wrap(io.MultiReader(bytes.NewReader(test.sent), iotest.ErrReader(test.end)))})
			var got bytes.Buffer
			_, err := io.Copy(&got, struct{ io.Reader }{conn})
			if err == nil {
				err = io.EOF
			}
			rest, isPrefix := bytes.CutPrefix(got.Bytes(), test.passed)
			if !isPrefix || !errors.Is(err, test.want) {
				t.Errorf("%s, %s: %d bytes, %v", name, way, got.Len(), err)
				continue
			}
			if !test.added {
				if len(rest) > 0 {
					t.Errorf("%s, %s: %q is added", name, way, rest)
				}
				continue
			}
			if len(rest) < frameHeader || binary.BigEndian.Uint32(rest) != errorStream || int(binary.BigEndian.Uint32(rest[4:])&0xffffff) != len(rest)-frameHeader ||
				!bytes.Contains(rest, []byte(`"status":"Failure"`)) || !bytes.Contains(rest, []byte("provider far ended before")) {
				t.Errorf("%s, %s: %q is added", name, way, rest)
			}
		}
	}
}

// What is no command over SPDY, or may end without a status, is left alone.
func TestNoSession(t *testing.T) {
	conn := sends{Reader: strings.NewReader("")}
	for name, got := range map[string]net.Conn{
		"a forwarded port": watched(call{kind: portForward}, "far", spdyAnswer("portforward.k8s.io"), conn),
		"an old protocol":  watched(call{kind: exec}, "far", spdyAnswer("v3.channel.k8s.io"), conn),
		"no protocol":      watched(call{kind: exec}, "far", http.Header{"Upgrade": {"SPDY/3.1"}}, conn),
		"WebSocket":        watched(call{kind: exec}, "far", http.Header{"Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"v4.channel.k8s.io"}}, conn),
	} {
		if got != net.Conn(conn) {
			t.Errorf("%s is watched", name)
		}
	}
}
