package relay

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"liqo.io/agent/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// patience bounds whatever a test waits for. It measures nothing: these machines are shared.
const patience = 2 * time.Minute

// small is for sockets on which little may be under way.
const small = 4 << 10

// pair returns the two ends of a TCP connection.
func pair(t *testing.T) (*net.TCPConn, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{near, far} {
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	return near.(*net.TCPConn), far.(*net.TCPConn)
}

// secured puts TLS on a connection.
func secured(t *testing.T, near, far *net.TCPConn) (client, server *tls.Conn) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"relay"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	client = tls.Client(near, &tls.Config{InsecureSkipVerify: true})
	server = tls.Server(far, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	if err := errors.Join(client.Handshake(), <-shaken); err != nil {
		t.Fatal(err)
	}
	return client, server
}

// chain is a caller, a provider, and a Join in between.
type chain struct {
	caller   *tls.Conn
	provider *net.TCPConn
	ended    chan struct{}
	stop     context.CancelFunc
}

// join joins them with little room on the way to the caller.
func join(t *testing.T, linger time.Duration) *chain {
	t.Helper()
	near, far := pair(t)
	_ = near.SetReadBuffer(small)
	_ = far.SetWriteBuffer(small)
	caller, a := secured(t, near, far)
	b, provider := pair(t)
	ctx, stop := context.WithCancel(t.Context())
	c := &chain{caller: caller, provider: provider, ended: make(chan struct{}), stop: stop}
	go func() {
		defer close(c.ended)
		Join(ctx, a, b, Options{Linger: linger, Moved: func() {}})
	}()
	t.Cleanup(func() {
		stop()
		c.wait(t)
	})
	return c
}

func (c *chain) wait(t *testing.T) {
	t.Helper()
	select {
	case <-c.ended:
	case <-time.After(patience):
		t.Error("it does not end")
	}
}

// untilQuick repeats a test until this machine was quick enough, which once returns.
func untilQuick(t *testing.T, once func(*testing.T) bool) {
	t.Helper()
	for end := time.Now().Add(patience); !once(t); {
		if time.Now().After(end) {
			t.Fatal("this machine was never quick enough")
		}
	}
}

func random(n int) []byte {
	out := make([]byte, n)
	_, _ = rand.Read(out)
	return out
}

// taken waits until the other end's kernel has everything that was sent.
func taken(t *testing.T, c net.Conn) {
	t.Helper()
	for deadline := time.Now().Add(patience); unsent(c) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is not taken")
		}
	}
}

// A provider that closes with the last byte gets what the caller says later as a
// reset. That must not cost what it had sent.
func TestProviderThatClosesFirst(t *testing.T) {
	c := join(t, patience)
	want := random(150 << 10) // more than there is room for on the way to the caller
	if _, err := c.provider.Write(want); err != nil {
		t.Fatal(err)
	}
	taken(t, c.provider)
	_ = c.provider.Close()
	// The first is answered with a reset, and the others cannot be sent any more.
	for range 10 {
		if _, err := c.caller.Write([]byte("late")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // not to come as one
	}
	if got, err := io.ReadAll(c.caller); !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
	}
	_ = c.caller.Close()
	c.wait(t)
}

// The same for a caller that goes on talking when everything has been sent to it,
// but not arrived.
func TestCallerThatTalksToTheEnd(t *testing.T) {
	c := join(t, patience)
	want := random(100 << 10)
	go func() {
		_, _ = c.provider.Write(want)
		_ = c.provider.CloseWrite()
		_, _ = io.Copy(io.Discard, c.provider)
		_ = c.provider.Close()
	}()
	var got bytes.Buffer
	part := make([]byte, 1000)
	for {
		n, err := c.caller.Read(part)
		got.Write(part[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("after %d bytes: %v", got.Len(), err)
		}
		if got.Len()%100 == 0 {
			if _, err := c.caller.Write([]byte("ping")); err != nil {
				t.Fatalf("after %d bytes: %v", got.Len(), err)
			}
		}
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d of %d bytes", got.Len(), len(want))
	}
	select {
	case <-c.ended:
		t.Error("it ended although the caller did not")
	default:
	}
	_ = c.caller.Close()
	c.wait(t)
}

// A provider whose connection breaks leaves all that came before, and no good end.
func TestProviderThatBreaksOff(t *testing.T) {
	c := join(t, patience)
	want := random(100 << 10)
	if _, err := c.provider.Write(want); err != nil {
		t.Fatal(err)
	}
	// Its reset must not overtake what it has sent: the caller takes all of that first.
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c.caller, got); err != nil || !bytes.Equal(got, want) {
		t.Fatal(err)
	}
	_ = c.provider.SetLinger(0)
	_ = c.provider.Close()
	if rest, err := io.ReadAll(c.caller); err == nil || len(rest) > 0 {
		t.Errorf("it ends with %d bytes in good order", len(rest))
	}
	_ = c.caller.Close()
	c.wait(t)
}

// A caller that breaks off is no caller whose input has ended.
func TestCallerThatBreaksOff(t *testing.T) {
	c := join(t, patience)
	if _, err := c.caller.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(c.provider, got); err != nil {
		t.Fatal(err)
	}
	_ = c.caller.NetConn().(*net.TCPConn).SetLinger(0)
	_ = c.caller.NetConn().Close()
	if _, err := io.ReadAll(c.provider); err == nil {
		t.Error("its input ends in good order")
	}
	c.wait(t)
}

func TestHalfClose(t *testing.T) {
	c := join(t, patience)
	want := random(300 << 10)
	go func() {
		_, _ = c.caller.Write(want)
		_ = c.caller.CloseWrite()
	}()
	if got, err := io.ReadAll(c.provider); err != nil || !bytes.Equal(got, want) {
		t.Errorf("there: %d bytes, %v", len(got), err)
	}
	go func() {
		_, _ = c.provider.Write(want)
		_ = c.provider.Close()
	}()
	if got, err := io.ReadAll(c.caller); err != nil || !bytes.Equal(got, want) {
		t.Errorf("back: %d bytes, %v", len(got), err)
	}
	c.wait(t)
}

// Slow is not gone: what is taken little by little may take any time.
func TestSlowCaller(t *testing.T) {
	untilQuick(t, takesAll)
}

// takesAll returns false if it read too little for too long.
func takesAll(t *testing.T) bool {
	t.Helper()
	const linger = 2 * time.Second
	near, far := pair(t)
	_ = near.SetReadBuffer(4 * small) // and much room at the sender
	b, provider := pair(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Join(t.Context(), far, b, Options{Linger: linger, Moved: func() {}})
	}()
	want := random(450 << 10)
	go func() {
		_, _ = provider.Write(want)
		_ = provider.Close()
	}()
	begun := time.Now()
	reads, longest := []time.Time{begun}, time.Duration(0) // that 32 reads in a row took
	var got bytes.Buffer
	for range time.Tick(10 * time.Millisecond) {
		longest = max(longest, time.Since(reads[max(0, len(reads)-32)]))
		if _, err := io.CopyN(&got, near, 1<<10); err != nil {
			break
		}
		reads = append(reads, time.Now())
	}
	_ = near.Close()
	<-ended
	if longest > linger/2 { // the kernel takes more only when there is room for that of up to 30 reads
		return false
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d of %d bytes", got.Len(), len(want))
	}
	if time.Since(begun) < 2*linger {
		t.Errorf("it took only %v", time.Since(begun))
	}
	return true
}

// Nobody is waited for without end.
func TestCallerThatStays(t *testing.T) {
	c := join(t, 50*time.Millisecond)
	_ = c.provider.Close()
	c.wait(t)
	stuck := join(t, 50*time.Millisecond)
	if _, err := stuck.provider.Write(random(100 << 10)); err != nil {
		t.Fatal(err)
	}
	_ = stuck.caller.CloseWrite()
	stuck.wait(t) // although it takes nothing
}

// Who is stopped sees that it is no good end.
func TestStop(t *testing.T) {
	c := join(t, patience)
	c.stop()
	c.wait(t)
	if _, err := io.ReadAll(c.caller); err == nil {
		t.Error("the caller sees a good end")
	}
	if _, err := io.ReadAll(c.provider); err == nil {
		t.Error("the provider sees a good end")
	}
}

func TestConn(t *testing.T) {
	near, far := pair(t)
	conn := &Conn{Conn: far, Ahead: []byte("first")}
	_, _ = near.Write([]byte(" second"))
	_ = near.CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "first second" {
		t.Errorf("%q, %v", got, err)
	}
	if err := CloseWrite(conn); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(near); err != nil {
		t.Error(err)
	}
}

// Who sends without end, to somebody who is gone, keeps nothing open: what is thrown
// away is no movement.
func TestProviderThatNeverEnds(t *testing.T) {
	for name, leave := range map[string]func(c *chain){
		"closed": func(c *chain) { _ = c.caller.Close() },
		"reset": func(c *chain) {
			_ = c.caller.NetConn().(*net.TCPConn).SetLinger(0)
			_ = c.caller.NetConn().Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := join(t, 500*time.Millisecond)
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for {
					if _, err := c.provider.Write([]byte("more")); err != nil {
						return
					}
					time.Sleep(time.Millisecond) // little is enough
				}
			}()
			if _, err := io.ReadFull(c.caller, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			leave(c)
			c.wait(t)
			_ = c.provider.Close()
			<-sent
		})
	}
}
