package endpointtest

import (
	"log/slog"
	"testing"

	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// IDs of clusters.
const IDC, IDD = peer.ClusterID("c"), peer.ClusterID("d")

// Box is a cluster, as far as its endpoint sees one.
type Box struct {
	Key      *trust.Key
	Issuer   *trust.Issuer
	Identity peer.Identity
}

// New returns a cluster with a key of its own.
func New(t testing.TB, id peer.ClusterID) *Box {
	t.Helper()
	key, err := trust.LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &Box{
		Key:      key,
		Issuer:   trust.NewIssuer(key, func() peer.ClusterID { return id }),
		Identity: peer.Identity{ClusterID: id, ClusterName: "box <" + string(id) + ">", GuestNamespace: "liqo"},
	}
}

// Identify returns what the cluster says about itself.
func (b *Box) Identify() peer.Identity { return b.Identity }

// Logger returns one that says nothing.
func (b *Box) Logger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// IDs of clusters, the first as a real one looks.
const IDA, IDB = peer.ClusterID("0558de48-097b-4b7d-ba04-6bd2a0f9d24f"), peer.ClusterID("b")
