package remote

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

// constant always says the same.
type constant struct{ response client.Response }

func (c constant) Exchange(context.Context, peer.Target, client.Request) (client.Response, error) {
	return c.response, nil
}

// BenchmarkSteadyLook is one look at a peer at which all is as it is to be, apart
// from the call itself.
func BenchmarkSteadyLook(b *testing.B) {
	box := newBox(b)
	box.state.Request = &wire.RequestState{UID: "u", Spec: *request()}
	box.state.Advertisement = &wire.OfferState{UID: "v", Spec: *offer("4")}
	body, err := json.Marshal(box.state)
	if err != nil {
		b.Fatal(err)
	}
	s := New(Config{
		Peers: constant{client.Response{Status: 200, Body: body}}, Greeting: greeting,
		Changed: func(peer.ClusterID) {}, Logger: slog.New(slog.DiscardHandler),
	})
	s.Set(them, plan.RemoteSpec{Target: box.target(), Contact: true, Request: request(), Advertisement: offer("4")})
	b.ReportAllocs()
	for b.Loop() {
		s.Set(them, plan.RemoteSpec{Target: box.target(), Contact: true, Request: request(), Advertisement: offer("4")})
		s.Check(them)
		s.do(context.Background(), job{id: them})
	}
	if got := s.Get(them); got.Err != nil || got.State == nil {
		b.Fatal(got.Err)
	}
}
