package exchange

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"liqo.io/agent/liqo/document"
)

// TestConnect: networks are connected after all else, and disconnected last.
func TestConnect(t *testing.T) {
	w := newConnected(t)
	w.mustBePeered(t)
	if got, want := w.consumer.writes[5:], []string{"create configuration", "create gatewayclient", "create publickey"}; !slices.Equal(got, want) {
		t.Errorf("the consumer wrote %q, want %q", got, want)
	}
	if got, want := w.provider.writes[3:], []string{"create configuration", "create gatewayserver", "create publickey"}; !slices.Equal(got, want) {
		t.Errorf("the provider wrote %q, want %q", got, want)
	}
	server, client := w.provider.here.Connected.Server, w.consumer.here.Connected.Client
	if want := (Endpoint{"192.0.2.7", server.Port, document.GatewayMTU}); client.Endpoint != want {
		t.Errorf("the client calls %+v, want %+v", client.Endpoint, want)
	}
	if got := w.consumer.here.Connected.Configuration.Ranges; !got.equal(w.provider.network.Ranges) {
		t.Errorf("the consumer has %+v", got)
	}
	w.consumer.writes, w.provider.writes = nil, nil
	w.mustBeApart(t)
	if want := []string{
		"delete resourceslice", "delete virtualnode", "delete identity", "delete gatewayclient", "delete publickey", "delete configuration",
		"delete signed-nonce", "delete foreigncluster", "delete namespace",
	}; !slices.Equal(w.consumer.writes, want) {
		t.Errorf("the consumer undid %q, want %q", w.consumer.writes, want)
	}
	if want := []string{
		"delete tenant", "delete gatewayserver", "delete publickey", "delete configuration", "delete certificate", "delete nonce", "delete foreigncluster", "delete namespace",
	}; !slices.Equal(slices.Compact(w.provider.writes), want) {
		t.Errorf("the provider undid %q, want %q", w.provider.writes, want)
	}
}

// TestGatewayFollows: a new address of the provider changes the GatewayClient, and a new gateway its port and key.
func TestGatewayFollows(t *testing.T) {
	w := newConnected(t)
	w.mustBePeered(t)
	before := *w.consumer.here.Connected.Client
	w.consumer.writes, w.provider.writes = nil, nil
	w.address = netip.MustParseAddr("192.0.2.99")
	w.mustBePeered(t)
	if client := w.consumer.here.Connected.Client; client.Address != "192.0.2.99" || client.UID != before.UID || client.Port != before.Port {
		t.Errorf("the client is %+v, was %+v", client, before)
	}
	if want := []string{"move identity", "move identity", "apply gatewayclient"}; !slices.Equal(w.consumer.writes, want) || len(w.provider.writes) > 0 {
		t.Errorf("written: %q, and at the provider %q", w.consumer.writes, w.provider.writes)
	}
	w.provider.here.Connected.Server, w.consumer.writes = nil, nil
	w.mustBePeered(t)
	if want := []string{"apply gatewayclient", "apply publickey"}; !slices.Equal(w.consumer.writes, want) {
		t.Errorf("written: %q", w.consumer.writes)
	}
}

// TestConnectBoth: two clusters that consume each other have one connection, whatever comes first, and have it until
// neither consumes the other.
func TestConnectBoth(t *testing.T) {
	for seed := range uint64(30) {
		there, r := newConnected(t), rand.New(rand.NewPCG(seed, 2))
		back := newConnected(t)
		back.consumer, back.provider, back.address, back.from = there.provider, there.consumer, there.from, there.address
		ways := []*world{there, back}
		for i := range 80 {
			w := ways[r.IntN(2)]
			switch {
			case seed%3 == 2: // for a while, each of them finds out only at times
				there.both, back.both = r.IntN(2) == 0, r.IntN(2) == 0
			case i < 40 && seed%3 == 0: // the other way comes later
				w = ways[seed/3%2]
			default:
				there.both, back.both = true, true
			}
			switch r.IntN(6) {
			case 0:
				carry(w.consumer, w.consumerPlan(), r.IntN(4))
			case 1:
				carry(w.provider, w.providerPlan(), r.IntN(4))
			case 2:
				w.consumer.liqo(w.provider)
			case 3:
				w.provider.liqo(w.consumer)
			case 4:
				w.consumerAsks()
			case 5:
				w.providerReplies()
			}
		}
		there.both, back.both = true, true
		rest := func() {
			t.Helper()
			for range 6 { // each settles with what the other one changed
				for _, w := range ways {
					w.calls = nil
					w.settle(t)
				}
			}
		}
		rest()
		for _, w := range ways {
			w.mustBePeered(t)
		}
		barn, mill := there.consumer.here.Connected, there.provider.here.Connected
		if (barn.Server == nil) == (mill.Server == nil) || (barn.Client == nil) == (mill.Client == nil) {
			t.Errorf("the gateways are %+v and %+v", barn, mill)
		}
		// One way ends. What connects the networks stays as it is.
		ends, stays := ways[r.IntN(2)], there
		if ends == there {
			stays = back
		}
		ends.wanted, stays.both = false, false
		rest()
		ends.admitted = false
		rest()
		stays.mustBePeered(t)
		if got := there.consumer.here.Connected; !reflect.DeepEqual(got, barn) {
			t.Errorf("with one way left: %+v, was %+v", got, barn)
		}
		ends.both = false
		stays.mustBeApart(t)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// TestOneServer: of two clusters that made a GatewayServer at the same time, the one whose ID is less keeps it.
func TestOneServer(t *testing.T) {
	there := newConnected(t)
	back := newConnected(t)
	back.consumer, back.provider, back.address, back.from = there.provider, there.consumer, there.from, there.address
	there.both, back.both = true, true
	for _, w := range []*world{there, back, there, back, there, back} {
		w.calls = nil
		w.settle(t)
	}
	barn, mill := &there.consumer.here.Connected, &there.provider.here.Connected
	kept := *barn.Server
	mill.Client, mill.Server = nil, &Gateway{Object: there.provider.object("barn"), Ours: true, Endpoint: Endpoint{MTU: document.GatewayMTU}}
	for _, w := range []*world{there, back, there, back, there, back} {
		w.calls = nil
		w.settle(t)
	}
	there.mustBePeered(t)
	back.mustBePeered(t)
	if barn.Server == nil || barn.Server.UID != kept.UID || mill.Client == nil || mill.Server != nil {
		t.Errorf("the gateways are %+v and %+v", barn, mill)
	}
}

// TestBothGateways: a gateway that each direction of a pair made, before it saw the other one's, is mended; no Liqo works with two.
func TestBothGateways(t *testing.T) {
	w := newConnected(t)
	w.mustBePeered(t)
	for _, b := range []*box{w.consumer, w.provider} {
		c := &b.here.Connected
		before := *c
		extra := &Gateway{Object: b.object(string(b.id)), Ours: true, Endpoint: Endpoint{MTU: document.GatewayMTU}}
		if b.writes = nil; c.Server == nil {
			c.Server = extra
		} else {
			c.Client = extra
		}
		w.mustBePeered(t)
		if !reflect.DeepEqual(*c, before) || len(b.writes) != 1 {
			t.Errorf("%s: %+v, after %q", b.id, *c, b.writes)
		}
	}
}

// TestCut: a peer that is blocked has no way into the network while the rest ends.
func TestCut(t *testing.T) {
	w := newConnected(t)
	w.mustBePeered(t)
	w.wanted, w.admitted, w.cut = false, false, true
	for _, b := range []*box{w.consumer, w.provider} {
		d := w.providerPlan()
		if b == w.consumer {
			d = w.consumerPlan()
		}
		carry(b, d, -1)
		if b.here.Connected != (Connected{}) || b.here.Identity == nil && b.here.Tenant == nil {
			t.Errorf("%s: left: %+v, after %q", b.id, b.here, b.writes)
		}
	}
	w.mustBeApart(t)
}

// TestSwitchedOff: where networks are not to be connected any more, those that Liqo connects are disconnected, also while the
// two are not peered completely. The rest of the peering stays as it is, and the networks come back.
func TestSwitchedOff(t *testing.T) {
	for _, ready := range []bool{true, false} {
		w := newConnected(t)
		w.mustBePeered(t)
		if w.cut = true; !ready {
			w.consumer.here.Slices, w.provider.here.Tenant.Auth = nil, nil
		}
		consumer, provider := w.consumerPlan(), w.providerPlan()
		carry(w.consumer, consumer, 3) // whatever follows may fail
		carry(w.provider, provider, 3)
		if w.consumer.here.Connected != (Connected{}) || w.provider.here.Connected != (Connected{}) {
			t.Errorf("ready %v: left: %+v, %+v", ready, w.consumer.here.Connected, w.provider.here.Connected)
		}
		consumer, provider = w.settle(t)
		for _, d := range []Decision{consumer, provider} {
			if !d.Ready || d.Connecting || d.Reason != ReasonReady || d.Unconnected != "sharing.network is off." || len(d.Actions) > 0 {
				t.Errorf("ready %v: %+v", ready, d)
			}
		}
		if w.consumer.here.Connected != (Connected{}) || w.provider.here.Connected != (Connected{}) {
			t.Errorf("ready %v: made again: %+v, %+v", ready, w.consumer.here.Connected, w.provider.here.Connected)
		}
		w.cut = false
		w.mustBePeered(t)
	}
}

// TestNetworkFails: what fails for the networks is told, and keeps the two from nothing else.
func TestNetworkFails(t *testing.T) {
	w := newConnected(t)
	w.mustBePeered(t)
	w.consumer.here.Connected.Configuration = nil
	d := w.consumerPlan()
	if d.Fail(d.Actions[0].Kind, errors.New("it is refused")); !d.Ready || d.Reason != ReasonReady || !strings.Contains(d.Unconnected, "it is refused") {
		t.Errorf("%+v", d)
	}
	if d.Fail(SliceObject, errors.New("it is refused")); d.Ready || d.Reason != ReasonFailed {
		t.Errorf("%+v", d)
	}
}

// TestUnconnected: networks are left alone where one of the two cannot connect them, and people are told why.
func TestUnconnected(t *testing.T) {
	for name, c := range map[string]struct {
		change             func(w *world)
		consumer, provider string
	}{
		"off at the consumer": {func(w *world) { w.consumer.network = Network{Problem: "It is off."} }, "It is off.", "The other cluster does not connect its network: It is off."},
		"off at the provider": {func(w *world) { w.provider.network = Network{Problem: "It is off."} }, "The other cluster does not connect its network: It is off.", "It is off."},
		"ranges that are refused": {func(w *world) {
			w.provider.network.Pods = []netip.Prefix{netip.MustParsePrefix("8.8.8.0/24")}
		}, "refused: 8.8.8.0/24", "Liqo in the other cluster"},
		"where a node is": {func(w *world) {
			w.consumer.network.Taken = []netip.Prefix{netip.MustParsePrefix("10.42.7.0/24")}
		}, "the network 10.42.7.0/24 of a node", "Liqo in the other cluster"},
	} {
		w := newConnected(t)
		c.change(w)
		consumer, provider := w.settle(t)
		if !consumer.Ready || !provider.Ready || !strings.Contains(consumer.Unconnected, c.consumer) || !strings.Contains(provider.Unconnected, c.provider) {
			t.Errorf("%s: %s %q; %s %q", name, consumer.Reason, consumer.Unconnected, provider.Reason, provider.Unconnected)
		}
		if w.consumer.here.Connected != (Connected{}) {
			t.Errorf("%s: there is %+v", name, w.consumer.here.Connected)
		}
	}
	// The agent of the provider, or of the consumer, is from before.
	w := newConnected(t)
	w.mustBePeered(t)
	consumer, provider := *w.said, *w.heard
	consumer.Network, provider.Network = nil, nil
	w.said, w.heard = &consumer, &provider
	for who, d := range map[string]Decision{"provider": w.consumerPlan(), "consumer": w.providerPlan()} {
		if len(d.Actions) > 0 || !strings.Contains(d.Unconnected, "The agent of the "+who) {
			t.Errorf("%s from before: %q, %+v", who, d.Unconnected, d.Actions)
		}
	}
}

// TestHostileNetwork: what is refused changes nothing of what is connected.
func TestHostileNetwork(t *testing.T) {
	w := newConnected(t)
	w.mustBePeered(t)
	for name, change := range map[string][2]string{
		"another cluster's":   {`"clusterID":"mill"`, `"clusterID":"farm"`},
		"all addresses":       {`10.42.0.0/16`, `0.0.0.0/0`},
		"another protocol":    {`{`, `{"protocol":"TCP",`},
		"another host":        {`{`, `{"addresses":["198.51.100.1"],`},
		"a long key":          {`"publicKey":"`, `"publicKey":"AAAA`},
		"the API server's":    {`10.42.0.0/16`, `10.0.0.0/16`},
		"a port that is none": {`"port":`, `"port":1`},
	} {
		said := *w.said
		said.Network = []byte(strings.Replace(string(said.Network), change[0], change[1], 1))
		good := w.said
		w.said = &said
		d := w.consumerPlan()
		if len(d.Actions) > 0 || !d.Ready || !strings.Contains(d.Unconnected, "refused") {
			t.Errorf("%s: %q, %+v", name, d.Unconnected, d.Actions)
		}
		w.said = good
	}
}

// TestConnectedByHand: what liqoctl made in a namespace in care is used as it is, and stays.
func TestConnectedByHand(t *testing.T) {
	w := newConnected(t)
	w.mustBePeered(t)
	by := func(b *box) {
		c := &b.here.Connected
		c.Configuration.Ours, c.Key.Ours = false, false
		if c.Server != nil {
			c.Server.Ours = false
		} else {
			c.Client.Ours, c.Client.Address = false, "198.51.100.7" // of a load balancer
		}
		b.here.Namespaces[0].Made, b.writes = false, nil
	}
	by(w.consumer)
	by(w.provider)
	w.mustBePeered(t)
	if len(w.consumer.writes)+len(w.provider.writes) > 0 {
		t.Errorf("written: %q, %q", w.consumer.writes, w.provider.writes)
	}
	w.wanted = false
	w.settle(t)
	w.admitted = false
	w.settle(t)
	for _, b := range []*box{w.consumer, w.provider} {
		if c := b.here.Connected; c.Configuration == nil || c.Key == nil || c.Server == nil && c.Client == nil || len(b.here.Namespaces) != 1 {
			t.Errorf("%s: left: %+v", b.id, b.here)
		}
	}
}

// TestOldKey: people are told of a key by hand with which nothing can be connected.
func TestOldKey(t *testing.T) {
	w := newConnected(t)
	w.mustBePeered(t)
	w.consumer.here.Connected.Key = &PublicKey{Object: w.consumer.object("mill"), Key: make([]byte, 32)}
	if d := w.consumerPlan(); len(d.Actions) > 0 || !strings.Contains(d.Unconnected, "PublicKey mill") {
		t.Errorf("%q, %+v", d.Unconnected, d.Actions)
	}
}

// TestSeveralGateways: Liqo does not work with several gateways for a cluster, and neither does the agent.
func TestSeveralGateways(t *testing.T) {
	w := newConnected(t)
	w.mustBePeered(t)
	w.consumer.here.Connected.Server = &Gateway{Object: w.consumer.object("mill")}
	if d := w.consumerPlan(); len(d.Actions) > 0 || !strings.Contains(d.Unconnected, "one gateway") {
		t.Errorf("%q, %+v", d.Unconnected, d.Actions)
	}
	w.consumer.here.Connected.Server, w.consumer.here.Connected.Several = nil, "gatewayclients"
	if d := w.consumerPlan(); len(d.Actions) > 0 || !strings.Contains(d.Unconnected, "several of gatewayclients") {
		t.Errorf("%q, %+v", d.Unconnected, d.Actions)
	}
}
