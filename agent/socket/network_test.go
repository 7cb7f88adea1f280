package socket

import (
	"errors"
	"testing"

	"liqo.io/agent/agent/control"
)

func TestNetwork(t *testing.T) {
	m := &memory{network: control.Network{Reason: "SeveralNodes", Message: "This cluster has 2 nodes.", Peers: []control.NetworkPeer{{ID: idBarn, State: control.NetworkOff}}}}
	_, c := serve(t, m)
	got, err := c.Network(t.Context())
	if err != nil || got.Reason != "SeveralNodes" || len(got.Peers) != 1 || got.Peers[0].State != control.NetworkOff || got.Peers[0].Theirs == nil || got.Peers[0].Dropped == nil {
		t.Errorf("Network = %+v, %v", got, err)
	}
	m.change(func() { m.peers = []control.Peer{{ID: idBarn, Name: "barn"}} })
	if got, err := c.ProbeNetwork(t.Context(), "barn"); err != nil || got.RTTMicroseconds != 42 || got.Message != idBarn {
		t.Errorf("ProbeNetwork = %+v, %v", got, err)
	}
	if _, err := c.ProbeNetwork(t.Context(), "nobody"); !errors.Is(err, control.ErrNotFound) {
		t.Errorf("of nobody: %v", err)
	}
	m.change(func() { m.fail = &control.Error{Kind: control.ErrUnavailable, Message: "no network"} })
	if _, err := c.Network(t.Context()); !errors.Is(err, control.ErrUnavailable) {
		t.Errorf("what the backend says arrives as %v", err)
	}
}
