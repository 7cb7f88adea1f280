package objects_test

import (
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/objects"
)

// TestStore: a store finds what is about a cluster, and says who deleted nothing.
func TestStore(t *testing.T) {
	foreign := objects.Kind[*api.ForeignCluster]{
		Fresh: func() *api.ForeignCluster { return &api.ForeignCluster{} },
		About: func(fc *api.ForeignCluster) []peer.ClusterID { return objects.ClusterIDs(fc.ClusterID(), fc.Name) },
		Trim:  func(fc *api.ForeignCluster) { fc.ManagedFields = nil },
	}
	object := func(name, id string, version int) *api.ForeignCluster {
		fc := &api.ForeignCluster{}
		fc.Name, fc.UID, fc.ResourceVersion = name, types.UID("uid-"+name+"-"+id), strconv.Itoa(version)
		fc.Spec.ClusterIdentity = &api.ClusterIdentity{ClusterID: id}
		return fc
	}
	var told []string
	s := objects.NewStore(foreign, func(before, after *api.ForeignCluster, restored bool) {
		if restored {
			told = append(told, "restored without "+before.Name)
		}
	}, nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	about := func(id peer.ClusterID, want ...string) {
		t.Helper()
		var got []string
		for _, fc := range s.About(id) {
			got = append(got, fc.Name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%v are about %s, want %v", got, id, want)
		}
	}
	tell := kubetest.Tell(s)
	must(tell.Update(object("barn", "barn", 9)))
	must(tell.Update(object("mine", "barn", 10)))
	about("barn", "barn", "mine")
	s.Deleted("barn", s.UID("barn"))
	about("barn", "mine")

	// An object under a cluster's name concerns both clusters.
	s.Wrote(object("barn", "other", 30))
	about("barn", "barn", "mine")
	about("other", "barn")
	must(tell.Delete(object("barn", "other", 31)))
	about("other")
	if ids := s.IDs(); len(ids) != 2 || !slices.Contains(ids, "barn") || !slices.Contains(ids, "mine") {
		t.Errorf("there are objects about %v", ids)
	}

	must(tell.Replace("8"))
	if !slices.Equal(told, []string{"restored without mine"}) || s.Len() != 0 {
		t.Errorf("told %q, %d objects are left", told, s.Len())
	}
}
