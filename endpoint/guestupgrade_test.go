package endpoint

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/relay"
)

const socketKey = "dGhlIHNhbXBsZSBub25jZQ=="

// shout answers an upgrade as the API server does, and sends back what it reads,
// each line in capital letters, until its reader ends.
func shout(w http.ResponseWriter, r *http.Request) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer c.Close()
	head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + r.Header.Get("Upgrade") + "\r\nSet-Cookie: a=b\r\n"
	if p := r.Header.Get("X-Stream-Protocol-Version"); p != "" {
		head += "X-Stream-Protocol-Version: " + p + "\r\n"
	} else {
		head += "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
	}
	// The first of it comes with the header.
	fmt.Fprint(rw, head+"\r\nhello\n")
	rw.Flush()
	lines := bufio.NewReader(rw)
	for {
		line, err := lines.ReadString('\n')
		fmt.Fprint(rw, strings.ToUpper(line))
		rw.Flush()
		if err != nil {
			fmt.Fprint(rw, "bye\n")
			rw.Flush()
			return
		}
	}
}

// Bytes go both ways as they are, each way until it ends.
func TestUpgrade(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	a.answering(shout)
	s, _ := a.hosting(t, home, pin(other), nil)
	l := newLink(t, other, s, home)
	for name, tc := range map[string]struct {
		r    *http.Request
		sent string
	}{
		"SPDY": {
			endpointtest.UpgradeRequest(t, "POST", endpointtest.PodsOfB+"/web/exec?command=sh&command=a+b&stdin=true", "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v5.evil", "X-Stream-Protocol-Version", "v4.channel.k8s.io", "X-Stream-Protocol-Version", "channel.k8s.io"),
			"POST " + endpointtest.PodsOfB + "/web/exec?command=sh&command=a+b&stdin=true\nAccept: application/json, */*\nConnection: Upgrade\nImpersonate-Group: liqo:peers\nImpersonate-User: system:serviceaccount:liqo:liqo-peer-b\nUpgrade: SPDY/3.1\nUser-Agent: liqo-agent-gateway\nX-Stream-Protocol-Version: v4.channel.k8s.io\nX-Stream-Protocol-Version: channel.k8s.io\n\n",
		},
		"WebSocket": {
			endpointtest.UpgradeRequest(t, "GET", endpointtest.PodsOfB+"/web/attach?stdout=true", "Upgrade", "websocket", "Sec-WebSocket-Key", socketKey, "Sec-WebSocket-Version", "13", "Sec-WebSocket-Protocol", "v5.channel.k8s.io, evil"),
			"GET " + endpointtest.PodsOfB + "/web/attach?stdout=true\nAccept: application/json, */*\nConnection: Upgrade\nImpersonate-Group: liqo:peers\nImpersonate-User: system:serviceaccount:liqo:liqo-peer-b\nSec-Websocket-Key: " + socketKey + "\nSec-Websocket-Protocol: v5.channel.k8s.io\nSec-Websocket-Version: 13\nUpgrade: websocket\nUser-Agent: liqo-agent-gateway\n\n",
		},
	} {
		conn, resp, err := l.Upgrade(t.Context(), tc.r)
		if err != nil || conn == nil || resp.Header.Get("Set-Cookie") != "" {
			t.Fatalf("%s: %v, %v, %v", name, conn, resp, err)
		}
		if seen := a.taken(); len(seen) != 1 || seen[0] != tc.sent {
			t.Errorf("%s arrived as %q", name, seen)
		}
		_ = conn.SetDeadline(time.Now().Add(endpointtest.Hang))
		lines := bufio.NewReader(conn)
		for _, line := range []string{"", "one\n", "two\n"} {
			fmt.Fprint(conn, line)
			want := strings.ToUpper(line)
			if line == "" {
				want = "hello\n"
			}
			if got, err := lines.ReadString('\n'); err != nil || got != want {
				t.Fatalf("%s: %q, %v", name, got, err)
			}
		}
		if err := relay.CloseWrite(conn); err != nil {
			t.Error(err)
		}
		if rest, err := io.ReadAll(lines); err != nil || string(rest) != "bye\n" {
			t.Errorf("%s: %q, %v", name, rest, err)
		}
		conn.Close()
	}
	endpointtest.Eventually(t, "close what has ended", func() bool { return s.Stats().Open == 0 })
}

// An API server that closes with the last byte of the output, while the caller is
// slow to read and still talks, has all of it delivered; one that breaks off leaves no
// good end.
func TestUpgradeDelivers(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s, _ := a.hosting(t, home, pin(other), nil)
	l := newLink(t, other, s, home)
	output := strings.Repeat("0123456789abcdef", 10_000)
	for name, breaks := range map[string]bool{"closes": false, "breaks off": true} {
		closed := make(chan struct{})
		a.answering(func(w http.ResponseWriter, r *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer close(closed)
			defer c.Close()
			under := c
			if secure, ok := c.(*tls.Conn); ok {
				under = secure.NetConn()
			}
			tcp := under.(*net.TCPConn)
			fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"+output)
			if breaks {
				_, _ = io.ReadFull(c, make([]byte, len("late"))) // when all has arrived
				_ = tcp.SetLinger(0)
				_ = tcp.Close()
				return
			}
			// What is still in its own send queue, its kernel throws away at the first
			// byte that comes after the end.
			for unsent(t, tcp) > 0 {
				time.Sleep(time.Millisecond)
			}
		})
		conn, _, err := l.Upgrade(t.Context(), endpointtest.UpgradeRequest(t, "POST", endpointtest.PodsOfB+"/web/exec?command=sh", "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"))
		if err != nil || conn == nil {
			t.Fatalf("%s: %v, %v", name, conn, err)
		}
		_ = conn.SetDeadline(time.Now().Add(endpointtest.Hang))
		got := make([]byte, len(output))
		// The rest fits into the buffers on the way.
		n, err := io.ReadFull(conn, got[:len(got)-50_000])
		if !breaks && err == nil {
			<-closed // and what follows cannot be sent to it
			for range 10 {
				if _, err := io.WriteString(conn, "late"); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if err == nil {
			var more int
			more, err = io.ReadFull(conn, got[n:])
			n += more
		}
		if err != nil || string(got) != output {
			t.Errorf("%s: %d of %d bytes, %v", name, n, len(output), err)
		}
		if breaks {
			fmt.Fprint(conn, "late")
		}
		if rest, err := io.ReadAll(conn); len(rest) > 0 || (err == nil) == breaks {
			t.Errorf("%s: it ends with %q, %v", name, rest, err)
		}
		conn.Close()
	}
	endpointtest.Eventually(t, "close what has ended", func() bool { return s.Stats().Open == 0 })
}

// A caller that breaks off leaves no good end at the API server, and one that has said
// all does.
func TestUpgradeEndsInput(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s, _ := a.hosting(t, home, pin(other), nil)
	l := newLink(t, other, s, home)
	for name, breaks := range map[string]bool{"closes": false, "breaks off": true} {
		ended := make(chan error, 1)
		a.answering(func(w http.ResponseWriter, r *http.Request) {
			c, rw := endpointtest.SwitchTo101(w)
			defer c.Close()
			_, _ = io.ReadFull(rw, make([]byte, len("half")))
			fmt.Fprint(c, "read")
			_, err := io.ReadAll(rw)
			ended <- err
		})
		conn := endpointtest.MustUpgrade(t, l)
		_ = conn.SetDeadline(time.Now().Add(endpointtest.Hang))
		fmt.Fprint(conn, "half")
		if _, err := io.ReadFull(conn, make([]byte, len("read"))); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if breaks {
			tcp := endpointtest.TCPOf(t, conn)
			_ = tcp.SetLinger(0)
			_ = tcp.Close()
		}
		conn.Close()
		if err := <-ended; (err == nil) == breaks {
			t.Errorf("%s: the API server reads %v", name, err)
		}
	}
	endpointtest.Eventually(t, "close what has ended", func() bool { return s.Stats().Open == 0 })
}

// unsent is how much of what was sent has not arrived.
func unsent(t *testing.T, tcp *net.TCPConn) (n int) {
	raw, err := tcp.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	}
	if err != nil {
		t.Error(err)
	}
	return n
}

func TestUpgradeRefused(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	a.answering(shout)
	s, _ := a.hosting(t, home, pin(other), nil)
	l := newLink(t, other, s, home)
	const exec = endpointtest.PodsOfB + "/web/exec?command=sh"
	for name, r := range map[string]*http.Request{
		"no upgrade":         endpointtest.UpgradeRequest(t, "GET", exec),
		"HTTP/2":             endpointtest.UpgradeRequest(t, "GET", exec, "Upgrade", "h2c"),
		"no protocol":        endpointtest.UpgradeRequest(t, "POST", exec, "Upgrade", "SPDY/3.1"),
		"another's protocol": endpointtest.UpgradeRequest(t, "POST", exec, "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "portforward.k8s.io"),
		"POST of WebSocket":  endpointtest.UpgradeRequest(t, "POST", exec, "Upgrade", "websocket", "Sec-WebSocket-Key", socketKey, "Sec-WebSocket-Version", "13", "Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
		"no key":             endpointtest.UpgradeRequest(t, "GET", exec, "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
		"short key":          endpointtest.UpgradeRequest(t, "GET", exec, "Upgrade", "websocket", "Sec-WebSocket-Key", "eA==", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
		"old version":        endpointtest.UpgradeRequest(t, "GET", exec, "Upgrade", "websocket", "Sec-WebSocket-Key", socketKey, "Sec-WebSocket-Version", "8", "Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
		"two upgrades":       endpointtest.UpgradeRequest(t, "GET", exec, "Upgrade", "websocket", "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"),
		"two connections":    endpointtest.UpgradeRequest(t, "POST", exec, "Connection", "Authorization", "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"),
		"another's":          endpointtest.UpgradeRequest(t, "POST", "/api/v1/namespaces/c-shop/pods/web/exec?command=sh", "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"),
		"no such thing":      endpointtest.UpgradeRequest(t, "GET", endpointtest.PodsOfB+"/web/log", "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"),
	} {
		conn, resp, err := l.Upgrade(t.Context(), r)
		if err != nil || conn != nil || resp.StatusCode != 400 && resp.StatusCode != 403 {
			t.Errorf("%s: %v, %v, %v", name, conn, resp, err)
			continue
		}
		if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), `"kind":"Status"`) {
			t.Errorf("%s: %s", name, body)
		}
	}
	if seen := a.taken(); len(seen) != 0 {
		t.Errorf("arrived: %q", seen)
	}
	good := func() *http.Request {
		return endpointtest.UpgradeRequest(t, "POST", exec, "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io")
	}
	// The API server's own words are passed on; an upgrade to something else is not.
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","reason":"NotFound"}`)
	})
	if conn, resp, err := l.Upgrade(t.Context(), good()); err != nil || conn != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("%v, %v, %v", conn, resp, err)
	}
	// What a kubelet says of a container that does not run is text, and so may be anything else.
	for text, passed := range map[string]bool{
		`container not found ("web")`: true, `container not found ("web")` + "\n": true,
		`container not found ("web"); run curl`: false, `container not found ("../web")`: false, `container not found ("` + strings.Repeat("w", 64) + `")`: false,
		`container not found (web)`: false, "container not found (\"we\nb\")": false, `open /etc/passwd: no`: false, ``: false,
	} {
		a.answering(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, text)
		})
		conn, resp, err := l.Upgrade(t.Context(), good())
		if err != nil || conn != nil {
			t.Fatalf("%q: %v, %v", text, conn, err)
		}
		var said metav1.Status
		if err := json.NewDecoder(resp.Body).Decode(&said); err != nil || passed != (resp.StatusCode == http.StatusInternalServerError) || passed != (said.Message == strings.TrimSpace(text)) {
			t.Errorf("%q: %d %q, %v", text, resp.StatusCode, said.Message, err)
		}
	}
	for _, head := range []string{"Upgrade: h2c\r\n", "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: a b\r\n"} {
		a.answering(func(w http.ResponseWriter, r *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer c.Close()
			fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+head+"\r\n")
		})
		if conn, resp, err := l.Upgrade(t.Context(), good()); err != nil || conn != nil || resp.StatusCode != http.StatusBadGateway {
			t.Errorf("%q: %v, %v, %v", head, conn, resp, err)
		}
	}
}

// Upgraded connections are bounded, and end when the peer may not any more, when
// the link is closed and when the server stops.
func TestUpgradeEnds(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	a.answering(shout)
	decisions := pin(other)
	s, guests := a.hosting(t, home, decisions, nil)
	l := newLink(t, other, s, home)
	open := func(namespace string) (net.Conn, *http.Response) {
		conn, resp, err := l.Upgrade(t.Context(), endpointtest.UpgradeRequest(t, "POST", "/api/v1/namespaces/"+namespace+"/pods/web/exec?command=sh",
			"Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"))
		if err != nil {
			t.Fatal(err)
		}
		if conn != nil {
			t.Cleanup(func() { conn.Close() })
			_ = conn.SetDeadline(time.Now().Add(endpointtest.Hang))
		}
		return conn, resp
	}
	farm, _ := open("b-farm")
	for range upgradesPerPeer - 1 {
		if conn, resp := open("b-shop"); conn == nil {
			t.Fatalf("%v", resp)
		}
	}
	if conn, resp := open("b-shop"); conn != nil || resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("%v", resp)
	}
	guests.evict("b-farm")
	s.Recheck(endpointtest.IDB)
	_, _ = io.Copy(io.Discard, farm)
	endpointtest.Eventually(t, "end one", func() bool { return s.Stats().Open == upgradesPerPeer-1 })
	decisions.block(endpointtest.IDB, true)
	s.Recheck(endpointtest.IDB)
	endpointtest.Eventually(t, "end all", func() bool { return s.Stats().Open == 0 })
	decisions.block(endpointtest.IDB, false)
	var conn net.Conn
	endpointtest.Eventually(t, "give the places back", func() bool {
		conn, _ = open("b-shop")
		return conn != nil
	})
	l.Close()
	if _, err := io.ReadAll(conn); err == nil {
		t.Error("it ends in good order")
	}
	endpointtest.Eventually(t, "end the last", func() bool { return s.Stats().Open == 0 })
}
