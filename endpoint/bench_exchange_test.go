package endpoint

import (
	"context"
	"net/http"
	"testing"
)

// BenchmarkExchange is one call of a peer: on a kept connection, on a new one with
// a resumed session, and with a full handshake in which both sides show
// certificates. The figures are those of both ends together.
func BenchmarkExchange(b *testing.B) {
	them, us := newBox(b, idA), newBox(b, idB)
	p := servePeer(b, them, "127.0.0.1:0", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 600)) })
	target := targetOf(them, p.addr)
	for name, keep := range map[string]int{"kept": 1, "resumed": 0, "full": 0} {
		b.Run(name, func(b *testing.B) {
			c := NewClient(ClientConfig{Issuer: us.issuer, Keep: keep})
			defer c.Close()
			body := make([]byte, 200)
			before := ownCPU(b)
			b.ReportAllocs()
			for b.Loop() {
				if name == "full" {
					c.Forget(target.Fingerprint)
				}
				if _, err := c.Exchange(context.Background(), target, Request{Method: "POST", Path: PathState, Body: body}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((ownCPU(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
			e, ok := c.memory.byKey[target.Fingerprint]
			if !ok {
				b.Fatal("no session is remembered")
			}
			b.ReportMetric(float64(e.Value.(*remembered).size()), "B/session")
		})
	}
}
