//go:build linux

package integration

import (
	"io"
	"net/netip"
	"testing"
	"time"
)

// Clusters whose pods have only IPv6 addresses, and that reach each other only by IPv6, are connected like others.
func TestIPv6Only(t *testing.T) {
	boxes := newBoxes(t, pods6, lan6)
	for _, x := range boxes {
		x.says("Connected tls 1500")
		if x.seen.Addr().Is4() || x.seen.Bits() != pods6.Bits() || x.seen.Overlaps(pods6) || !netip.MustParsePrefix("fd00::/8").Contains(x.seen.Addr()) {
			t.Errorf("box %s knows the pods of the other one by %s", x.Name, x.seen)
		}
	}
	for i, x := range boxes {
		other := boxes[1-i]
		conn, err := x.dial(x.pods[1], other.pods[0], hang)
		if err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 4000) // more than a packet
		if _, err := conn.Write(answer); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
		if conn, err := x.dial(x.pods[0], other.pods[1], time.Second); err == nil {
			t.Errorf("a pod of box %s is reached that is not granted", other.Name)
			_ = conn.Close()
		}
	}
	for _, x := range boxes {
		if err := x.run.Stop(); err != nil {
			t.Error(err)
		}
	}
}
