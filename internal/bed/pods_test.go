//go:build linux

package bed

import (
	"context"
	"net"
	"testing"
)

// Whoever asks one of a host's pods, whichever, gets to the network that stands for all of them, and sees the pod's address.
func TestPods(t *testing.T) {
	b := New(t)
	h := b.AddHost("a", "10.77.0.1/24")
	pods := h.AddPods()
	var l net.Listener
	if err := pods.Do(func() (err error) { l, err = net.Listen("tcp4", ":0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range []string{"10.42.0.2", "10.42.0.200"} {
		ctx, cancel := context.WithTimeout(t.Context(), Hang)
		defer cancel()
		c, err := h.DialContext(ctx, "tcp", net.JoinHostPort(pod, port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if local, _, _ := net.SplitHostPort(s.LocalAddr().String()); local != pod {
			t.Errorf("who asked %s was answered by %s", pod, local)
		}
		if from, _, _ := net.SplitHostPort(s.RemoteAddr().String()); from != "10.42.0.1" {
			t.Errorf("the host asks as %s", from)
		}
	}
}
