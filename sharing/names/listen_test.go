package names

import (
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
)

// TestConversationTimes: a query by TCP may come as late as an idle connection may last, and its answer is taken as late again,
// however long it took to find.
func TestConversationTimes(t *testing.T) {
	query, err := new(dns.Msg).SetQuestion("shop.default.svc.cluster.local.", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	query = append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)
	for name, tc := range map[string]struct {
		asks, reads time.Duration // since it connected, and since it asked
		answered    bool
	}{
		"at once":           {answered: true},
		"a late query":      {asks: idleTimeout - unknownFor/2, answered: true},
		"a late reader":     {reads: idleTimeout, answered: true},
		"both":              {asks: idleTimeout - unknownFor/2, reads: idleTimeout, answered: true},
		"a query too late":  {asks: idleTimeout + time.Second},
		"a reader too late": {reads: idleTimeout + 2*unknownFor},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := New(Config{Namespaces: func(peer.ClusterID) map[string]string { return nil }, Outside: func() bool { return false }, Changed: func() {}, Logger: slog.New(slog.DiscardHandler)})
				s.Set(&State{Pods: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}}) // the source is unknown, so the answer takes unknownFor
				guest, ours := net.Pipe()
				defer guest.Close()
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer ours.Close()
					s.converse(t.Context(), netip.MustParseAddr("10.42.0.9"), ours)
				}()
				time.Sleep(tc.asks)
				_, err := guest.Write(query)
				var length [2]byte
				if err == nil {
					time.Sleep(tc.reads)
					_, err = io.ReadFull(guest, length[:])
				}
				if (err == nil) != tc.answered {
					t.Errorf("answered: %v", err)
				}
				_ = guest.Close()
				<-ended
			})
		})
	}
}
