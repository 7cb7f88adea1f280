package client

import (
	"crypto/tls"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
)

// Nor is anything of the client's.
func TestNothingFollowsAGapOfTheClient(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	seen := make(chan error, 1)
	addr := endpointtest.ListenTLS(t, "127.0.0.1", home, func(c *tls.Conn) {
		_, err := io.Copy(io.Discard, c)
		seen <- err
	})
	c := New(Config{Issuer: other.Issuer})
	t.Cleanup(c.Close)
	k, failure := c.open(t.Context(), dialRequest{target: peer.Target{Fingerprint: home.Key.Fingerprint()}}, candidate{addr: addr})
	if failure != nil {
		t.Fatal(failure)
	}
	_ = k.tcp.SetDeadline(time.Unix(1, 0)) // as abortOnDone
	if _, err := io.WriteString(k.tls, "lost"); err == nil {
		t.Fatal("was written after the deadline")
	}
	k.Close()
	if err := <-seen; !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}
