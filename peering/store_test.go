package peering

import (
	"slices"
	"strconv"
	"testing"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// Add, Update, Delete and Replace have a store told of objects as an API server tells.

func (s *store[T]) Add(obj any) error { return s.Update(obj) }

func (s *store[T]) Update(obj any) error {
	s.trimmed(obj)
	return s.Told().Update(obj)
}

func (s *store[T]) Delete(obj any) error { return s.Told().Delete(obj) }

func (s *store[T]) Replace(list []any, version string) error {
	for _, obj := range list {
		s.trimmed(obj)
	}
	return s.Told().Replace(list, version)
}

func (s *store[T]) trimmed(obj any) {
	if o, ok := obj.(T); ok {
		s.kind.trim(o)
	}
}

func versioned(fc *api.ForeignCluster, version int) *foreignCluster {
	return &foreignCluster{ForeignCluster: *changed(fc, func(fc *api.ForeignCluster) { fc.ResourceVersion = strconv.Itoa(version) })}
}

// TestStore: a store finds what is about a cluster, and says who deleted nothing.
func TestStore(t *testing.T) {
	var told []string
	s := newStore(foreignClusterKind(), func(before, after *foreignCluster, restored bool) {
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
		for _, fc := range s.about(id) {
			got = append(got, fc.Name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%v are about %s, want %v", got, id, want)
		}
	}
	must(s.Add(versioned(made(barn()), 9)))
	must(s.Add(versioned(manual("mine", testID), 10)))
	about(testID, made(barn()).Name, "mine")
	s.deleted(made(barn()).Name, s.uid(made(barn()).Name))
	about(testID, "mine")

	// An object under a cluster's name concerns both clusters.
	s.Wrote(versioned(manual(string(testID), "other"), 30))
	about(testID, string(testID), "mine")
	about("other", string(testID))
	must(s.Delete(versioned(manual(string(testID), "other"), 31)))
	about("other")
	if ids := s.ids(); len(ids) != 2 || !slices.Contains(ids, testID) || !slices.Contains(ids, "mine") {
		t.Errorf("there are objects about %v", ids)
	}

	must(s.Replace(nil, "8"))
	if !slices.Equal(told, []string{"restored without mine"}) || s.Len() != 0 {
		t.Errorf("told %q, %d objects are left", told, s.Len())
	}
}
