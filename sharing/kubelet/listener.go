package kubelet

import (
	"net"
	"sync"
)

// maxConns bounds connections, with maxHeader each what callers can use up before
// it is known who they are.
const (
	maxConns  = 128
	maxHeader = 128 << 10 // bytes; commands of exec are in the header
)

// bounded is a listener with a limit to the connections that are open. Those
// beyond it are closed at once: a caller that waits for a place would only see a
// time-out.
type bounded struct {
	net.Listener
	places chan struct{}
}

func newBounded(l net.Listener, most int) *bounded {
	return &bounded{Listener: l, places: make(chan struct{}, most)}
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.places <- struct{}{}:
			return &counted{TCPConn: conn.(*net.TCPConn), leave: sync.OnceFunc(func() { <-b.places })}, nil
		default:
			_ = conn.Close() // it was never anybody's
		}
	}
}

// counted is a connection that gives back its place when it is closed.
type counted struct {
	*net.TCPConn
	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}
