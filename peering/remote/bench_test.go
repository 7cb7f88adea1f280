package remote

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// constant always says the same.
type constant struct{ response endpoint.Response }

func (c constant) Exchange(context.Context, endpoint.Target, endpoint.Request) (endpoint.Response, error) {
	return c.response, nil
}

// BenchmarkSteadyLook is one look at a peer at which all is as it is to be, apart
// from the call itself.
func BenchmarkSteadyLook(b *testing.B) {
	box := newBox(b)
	box.state.Request = &endpoint.RequestState{UID: "u", Spec: *request()}
	box.state.Advertisement = &endpoint.OfferState{UID: "v", Spec: *offer("4")}
	body, err := json.Marshal(box.state)
	if err != nil {
		b.Fatal(err)
	}
	s := New(Config{
		Peers: constant{endpoint.Response{Status: 200, Body: body}}, Greeting: greeting,
		Changed: func(peer.ClusterID) {}, Logger: slog.New(slog.DiscardHandler),
	})
	s.Set(them, Desired{Target: box.target(), Contact: true, Request: request(), Advertisement: offer("4")})
	b.ReportAllocs()
	for b.Loop() {
		s.Set(them, Desired{Target: box.target(), Contact: true, Request: request(), Advertisement: offer("4")})
		s.Check(them)
		s.mu.Lock()
		s.queue[0].due = s.queue[0].started
		s.mu.Unlock()
		work, _ := s.next(context.Background())
		work()
	}
	if got := s.Get(them); got.Err != nil || got.State == nil {
		b.Fatal(got.Err)
	}
}
