package peering

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/foreign"
	"liqo.io/agent/peering/plan"
)

const (
	testID  = peer.ClusterID("0558de48-097b-4b7d-ba04-6bd2a0f9d24f")
	idB     = peer.ClusterID("bbbbbbbb-0000-4000-8000-000000000002")
	barnURL = "https://barn.example:6447"
)

var t0 = time.Unix(1_800_000_000, 0)

// barn is a neighbour that is present.
func barn() *peer.Peer {
	return &peer.Peer{
		ID: testID, Name: "barn", Namespace: "liqo", Fingerprint: peer.FingerprintOf([]byte("key")), Phase: peer.PhasePresent, Source: peer.LAN,
		URL: "https://192.0.2.1:6447", TTL: 2 * time.Minute, LastSeen: t0,
	}
}

// creation returns the actions that create the ForeignCluster of a peer and show its
// status.
func creation(p *peer.Peer) (create, status plan.Action) {
	actions := plan.Plan(plan.Observed{ID: p.ID, Peer: p}, t0).Actions
	return actions[0], actions[1]
}

// made returns the ForeignCluster that the agent makes for p.
func made(p *peer.Peer) *api.ForeignCluster {
	create, update := creation(p)
	spec, status := create.Spec, update.Status
	fc := &api.ForeignCluster{}
	fc.Name, fc.UID, fc.Labels = create.Name, "uid-made", spec.Labels
	fc.Spec.ClusterIdentity, fc.Spec.TrustMode = &spec.ClusterIdentity, api.TrustUnknown
	fc.Spec.Namespace, fc.Spec.DiscoveryType, fc.Spec.AuthURL = spec.Namespace, spec.DiscoveryType, spec.AuthURL
	fc.Status.Fingerprint, fc.Status.TTL, fc.Status.Conditions = status.Fingerprint, status.TTL, status.Conditions
	return fc
}

// changed returns a changed copy.
func changed(fc *api.ForeignCluster, change func(*api.ForeignCluster)) *api.ForeignCluster {
	fc = fc.DeepCopy()
	change(fc)
	return fc
}

// manual returns a ForeignCluster that a person wrote.
func manual(name string, id peer.ClusterID) *api.ForeignCluster {
	fc := &api.ForeignCluster{}
	fc.Name, fc.UID = name, types.UID("uid-"+name)
	fc.Spec.DiscoveryType, fc.Spec.AuthURL = api.DiscoveryManual, barnURL
	if id != "" {
		fc.Spec.ClusterIdentity = &api.ClusterIdentity{ClusterID: string(id)}
	}
	return fc
}

// offerOf is the n-th Advertisement by age.
func offerOf(n int, status api.AdvertisementStatus) *api.Advertisement {
	adv := &api.Advertisement{}
	adv.Name, adv.UID = fmt.Sprintf("cluster-%03d", n), types.UID(fmt.Sprint(n))
	adv.CreationTimestamp = metav1.NewTime(t0.Add(time.Duration(n) * time.Second))
	adv.Status.AdvertisementStatus = status
	return adv
}

// versioned returns an object as the API server has it, in a version.
func versioned(fc *api.ForeignCluster, version int) *foreign.Cluster {
	return &foreign.Cluster{ForeignCluster: *changed(fc, func(fc *api.ForeignCluster) { fc.ResourceVersion = strconv.Itoa(version) })}
}
