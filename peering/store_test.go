package peering

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

func versioned(fc *api.ForeignCluster, version int) *foreignCluster {
	return &foreignCluster{ForeignCluster: *changed(fc, func(fc *api.ForeignCluster) { fc.ResourceVersion = strconv.Itoa(version) })}
}

// fcStore is a store of ForeignClusters that tells of every cluster that a change
// is about.
func fcStore(tell func(peer.ClusterID)) *store[*foreignCluster] {
	kind := foreignClusterKind()
	return newStore(kind, func(before, after *foreignCluster, _ bool) {
		var ids []peer.ClusterID
		for _, fc := range []*foreignCluster{before, after} {
			if fc != nil {
				ids = append(ids, kind.about(fc)...)
			}
		}
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			tell(id)
		}
	})
}

func TestStore(t *testing.T) {
	var told []peer.ClusterID
	s := fcStore(func(id peer.ClusterID) { told = append(told, id) })
	heard := func(want ...peer.ClusterID) {
		t.Helper()
		slices.Sort(told)
		slices.Sort(want)
		if !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
		told = nil
	}
	version := func(want string) {
		t.Helper()
		got := ""
		if about := s.about(testID); len(about) > 0 {
			got = about[0].ResourceVersion
		}
		if got != want {
			t.Errorf("the store has version %q, want %q", got, want)
		}
	}
	fc := made(barn())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	select {
	case <-s.synced:
		t.Error("synced before the first list")
	default:
	}
	must(s.Replace(nil, "5"))
	<-s.synced
	must(s.Add(versioned(fc, 9)))
	heard(testID)
	version("9")

	// The answer to a write of ours comes before its event, and before those of what it
	// holds besides, which are no news then.
	s.wrote(versioned(fc, 12))
	heard(testID)
	must(s.Update(versioned(fc, 10)))
	s.wrote(versioned(fc, 12))
	heard()
	version("12")

	// A list that is older than our write neither reverts nor removes it.
	must(s.Replace([]any{versioned(fc, 11)}, "11"))
	version("12")
	must(s.Replace(nil, "11"))
	version("12")
	must(s.Update(versioned(fc, 12)))
	heard()
	must(s.Replace(nil, "13"))
	version("")
	heard(testID)

	// An older history, after the API server was restored from a backup, counts in full.
	must(s.Add(versioned(fc, 20)))
	must(s.Add(versioned(manual("mine", testID), 21)))
	heard(testID, testID, "mine")
	must(s.Replace([]any{versioned(fc, 7)}, "8"))
	version("7")
	heard(testID, testID, "mine")
	if s.len() != 1 {
		t.Errorf("%d objects are left", s.len())
	}

	// Our own delete; the event for another object of that name does not count.
	s.deleted(fc.Name, "another")
	version("7")
	s.deleted(fc.Name, fc.UID)
	version("")
	heard(testID)
	// What was delivered of the time before does not bring it back.
	must(s.Update(versioned(fc, 8)))
	version("")
	heard()
	must(s.Delete(versioned(fc, 9)))
	heard(testID)

	// An object under a cluster's name concerns both clusters.
	must(s.Add(versioned(manual(string(testID), "other"), 30)))
	heard(testID, "other")
	if n := len(s.about(testID)); n != 1 {
		t.Errorf("%d objects about the cluster whose name is taken", n)
	}
	must(s.Delete(versioned(manual(string(testID), "other"), 31)))
	heard(testID, "other")
	if len(s.ids()) != 0 || s.len() != 0 {
		t.Errorf("left: %v", s.ids())
	}
}

// TestStoreConverges delivers random histories of a few objects the way a
// reflector does, mixed with answers to writes, and compares the outcome, also with
// what somebody knows who looks only where the store tells to.
func TestStoreConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		queue, known := map[peer.ClusterID]bool{}, map[peer.ClusterID]string{}
		s := fcStore(func(id peer.ClusterID) { queue[id] = true })
		versions := func(id peer.ClusterID) string {
			var out []string
			for _, fc := range s.about(id) {
				out = append(out, fc.Name+" "+fc.ResourceVersion)
			}
			slices.Sort(out)
			return strings.Join(out, ", ")
		}
		look := func() {
			for id := range queue {
				known[id] = versions(id)
			}
			clear(queue)
		}
		truth := map[string]*foreignCluster{}
		clock := 1
		ended := map[types.UID]bool{} // what we deleted ourselves
		var events []func()
		deliver := func(n int) {
			for range min(n, len(events)) {
				events[0]()
				events = events[1:]
			}
		}
		list := func() {
			var items []any
			for _, fc := range truth {
				items = append(items, fc.DeepCopyObject())
			}
			events = nil
			_ = s.Replace(items, strconv.Itoa(clock))
		}
		list()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			clock++
			switch rapid.SampledFrom([]string{"write", "own-write", "delete", "own-delete", "deliver", "relist", "look"}).Draw(t, "step") {
			case "write", "own-write":
				fc := versioned(manual(name, peer.ClusterID("id-"+rapid.SampledFrom([]string{"1", "2"}).Draw(t, "id"))), clock)
				fc.UID = types.UID(strconv.Itoa(clock))
				if old := truth[name]; old != nil {
					fc.UID, fc.Spec = old.UID, old.Spec
				}
				truth[name] = fc
				events = append(events, func() { _ = s.Update(fc.DeepCopyObject()) })
				if rapid.Bool().Draw(t, "ours") {
					s.wrote(fc.DeepCopyObject().(*foreignCluster))
				}
			case "delete", "own-delete":
				if fc := truth[name]; fc != nil {
					delete(truth, name)
					gone := versioned(&fc.ForeignCluster, clock)
					events = append(events, func() { _ = s.Delete(gone) })
					if rapid.Bool().Draw(t, "ours") {
						// Nobody deletes what it does not know.
						ended[fc.UID] = s.uid(name) == fc.UID
						s.deleted(name, fc.UID)
					}
				}
			case "deliver":
				deliver(rapid.IntRange(1, 5).Draw(t, "events"))
			case "relist":
				list()
			case "look":
				look()
			}
			for _, fc := range s.all() {
				if ended[fc.UID] {
					t.Fatalf("%s is back, version %s", fc.Name, fc.ResourceVersion)
				}
			}
		}
		deliver(len(events))
		look()
		if s.len() != len(truth) {
			t.Fatalf("%d objects, want %d", s.len(), len(truth))
		}
		byID := map[peer.ClusterID]int{}
		for name, fc := range truth {
			byID[peer.ClusterID(fc.ClusterID())]++
			byID[peer.ClusterID(name)]++
			if got := s.objects[name]; got == nil || got.ResourceVersion != fc.ResourceVersion {
				t.Fatalf("%s is %+v, want version %s", name, got, fc.ResourceVersion)
			}
		}
		for _, id := range []peer.ClusterID{"a", "b", "c", "id-1", "id-2"} {
			if known[id] != versions(id) {
				t.Fatalf("of %s is known %q, and nobody tells to look for %q", id, known[id], versions(id))
			}
		}
		for id, n := range byID {
			if got := len(s.about(id)); got != n {
				t.Fatalf("%d objects about %s, want %d", got, id, n)
			}
		}
		if len(s.ids()) != len(byID) {
			t.Fatalf("index has %v, want %v", s.ids(), byID)
		}
		if len(s.buried) > 0 {
			t.Fatalf("remembered for ever: %v", s.buried)
		}
	})
}

// TestLateAnswer: an answer that arrives after the watch told that the object was
// deleted does not bring it back.
func TestLateAnswer(t *testing.T) {
	s := fcStore(func(peer.ClusterID) {})
	object := func(name string, version int) *foreignCluster { return versioned(manual(name, testID), version) }
	if err := s.Replace([]any{object("a", 1)}, "5"); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(object("a", 8)); err != nil {
		t.Fatal(err)
	}
	s.wrote(object("a", 7))
	if s.len() != 0 {
		t.Errorf("%+v is back", s.get("a"))
	}
	// What the watch has not come to yet counts.
	s.wrote(object("b", 10))
	s.wrote(object("a", 9))
	if s.len() != 2 || len(s.about(testID)) != 2 {
		t.Errorf("%d objects, want two", s.len())
	}
	if err := s.Update(object("b", 11)); err != nil {
		t.Fatal(err)
	}
	s.wrote(object("b", 10))
	if got := s.get("b"); got == nil || got.ResourceVersion != "11" {
		t.Errorf("an older answer counts: %+v", got)
	}
}
