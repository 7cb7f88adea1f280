package state

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"testing"

	"liqo.io/agent/peer"
)

func testBlocks(i int) NetworkBlocks {
	return NetworkBlocks{
		Pods:   []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24"), netip.MustParsePrefix("fd42::/64")},
		Theirs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("241.%d.0.0/24", i)), netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/64", i+1))},
		Ours:   []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("241.9.%d.0/24", i))},
	}
}

func TestNetworks(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "agent.db")
	s := open(t, path, Options{})
	want := map[peer.ClusterID]NetworkBlocks{"a": testBlocks(1), "b": testBlocks(2)}
	for id, b := range want {
		must(t, s.SetNetwork(ctx, id, testBlocks(7)))
		must(t, s.SetNetwork(ctx, id, b))
	}
	must(t, s.Close())
	s = open(t, path, Options{})
	before := s.Transactions()
	got, err := s.Networks(ctx)
	must(t, err)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("stored: %v, want %v", got, want)
	}
	must(t, s.SetNetwork(ctx, "a", testBlocks(1)))
	if n := s.Transactions() - before; n != 0 {
		t.Errorf("storing the same again took %d transactions", n)
	}
	if err := s.SetNetwork(ctx, "not an id", testBlocks(1)); err == nil {
		t.Error("blocks of something that is no cluster were stored")
	}
}
