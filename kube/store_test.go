package kube

import (
	"maps"
	"runtime"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// podAt returns one version of a pod.
func podAt(name string, uid types.UID, version int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: uid, ResourceVersion: strconv.Itoa(version)}}
}

// listener is a cache, and what it told.
type listener struct {
	*Cache[*corev1.Pod]
	t          *testing.T
	told, lost []string
}

func listen(t *testing.T) *listener {
	l := &listener{t: t}
	version := func(p *corev1.Pod) string {
		if p == nil {
			return "-"
		}
		return p.ResourceVersion
	}
	l.Cache = NewCache(Kind[*corev1.Pod]{
		Fresh:   func() *corev1.Pod { return &corev1.Pod{} },
		Changed: func(before, after *corev1.Pod) { l.told = append(l.told, version(before)+">"+version(after)) },
		Lost:    func(before *corev1.Pod) { l.lost = append(l.lost, version(before)) },
	})
	return l
}

func (l *listener) store() *sink[*corev1.Pod] { return (*sink[*corev1.Pod])(l.Cache) }

// expect checks the version of pod a, "" for none, and what was told since the last call.
func (l *listener) expect(version string, told ...string) {
	l.t.Helper()
	got := ""
	if p := l.Get("n", "a"); p != nil {
		got = p.ResourceVersion
	}
	if got != version || !slices.Equal(l.told, told) {
		l.t.Errorf("version %q after %v, want %q after %v", got, l.told, version, told)
	}
	l.told = nil
}

func (l *listener) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func TestOwnWrites(t *testing.T) {
	l := listen(t)
	store := l.store()
	l.must(store.Replace(nil, "5"))
	l.must(store.Add(podAt("a", "1", 9)))
	l.expect("9", "->9")

	// The answer to a write of ours comes before its event, and before those of what it
	// holds besides, which are no news then.
	l.Wrote(podAt("a", "1", 12))
	l.expect("12", "9>12")
	l.must(store.Update(podAt("a", "1", 10)))
	l.Wrote(podAt("a", "1", 12))
	l.Wrote(podAt("a", "1", 11))
	l.expect("12")

	// A list that is older than our write neither reverts nor removes it.
	l.must(store.Replace([]any{podAt("a", "1", 11)}, "11"))
	l.must(store.Replace(nil, "11"))
	l.expect("12")
	l.must(store.Update(podAt("a", "1", 12)))
	l.expect("12")
	l.must(store.Replace(nil, "13"))
	l.expect("", "12>-")

	// Nor does the end of an earlier one of that name.
	l.Wrote(podAt("a", "2", 16))
	l.must(store.Delete(podAt("a", "1", 15)))
	l.expect("16", "->16")
	l.must(store.Delete(podAt("a", "2", 17)))
	l.expect("", "16>-")

	// Our own delete; that of another object of that name does not count, nor while a
	// finalizer holds it.
	l.must(store.Add(podAt("a", "3", 20)))
	l.Deleted("n", "a", "another")
	l.expect("20", "->20")
	held := podAt("a", "3", 21)
	held.Finalizers = []string{"x"}
	l.must(store.Update(held))
	l.Deleted("n", "a", "3")
	l.expect("21", "20>21")
	l.must(store.Update(podAt("a", "3", 22)))
	l.Deleted("n", "a", "3")
	l.expect("", "21>22", "22>-")
	// What was told of the time before does not bring it back.
	l.must(store.Update(podAt("a", "3", 23)))
	l.must(store.Replace([]any{podAt("a", "3", 23)}, "23"))
	l.expect("")
	l.must(store.Delete(podAt("a", "3", 24)))
	l.expect("")
	if len(l.own) != 0 {
		t.Errorf("remembered for ever: %v", l.own)
	}
}

// TestRestoredBackup: an older history counts in full, whatever we wrote or deleted in the
// one that is lost, and nobody deleted what is missing in it.
func TestRestoredBackup(t *testing.T) {
	l := listen(t)
	store := l.store()
	l.must(store.Replace([]any{podAt("a", "1", 19), podAt("c", "3", 18)}, "20"))
	l.Wrote(podAt("a", "1", 22))
	l.Wrote(podAt("b", "2", 23))
	l.Deleted("n", "c", "3")
	l.told = nil
	l.must(store.Replace([]any{podAt("a", "1", 7), podAt("c", "3", 6)}, "8"))
	slices.Sort(l.told)
	l.expect("7", "->6", "22>7")
	if l.Len() != 2 || !slices.Equal(l.lost, []string{"23"}) || len(l.own) != 0 {
		t.Errorf("%d objects are there, %v were lost", l.Len(), l.lost)
	}
}

// TestLateAnswer: an answer that arrives after the watch told that the object was
// deleted does not bring it back.
func TestLateAnswer(t *testing.T) {
	l := listen(t)
	store := l.store()
	l.must(store.Replace([]any{podAt("a", "1", 1)}, "5"))
	l.must(store.Delete(podAt("a", "1", 8)))
	l.told = nil
	l.Wrote(podAt("a", "1", 7))
	l.expect("")
	// What the watch has not come to yet counts.
	l.Wrote(podAt("a", "2", 9))
	l.expect("9", "->9")
	l.must(store.Update(podAt("a", "2", 11)))
	l.Wrote(podAt("a", "2", 10))
	l.expect("11", "9>11")
}

// TestEarlierAnswer: the answer to a write that was carried out before we deleted the
// object does not bring it back, although it arrives after that of the deletion.
func TestEarlierAnswer(t *testing.T) {
	l := listen(t)
	l.must(l.store().Replace([]any{podAt("a", "1", 4)}, "5"))
	l.Deleted("n", "a", "1")
	l.told = nil
	l.Wrote(podAt("a", "1", 6))
	l.expect("")
	// Another object of that name counts.
	l.Wrote(podAt("a", "2", 8))
	l.expect("8", "->8")
}

// TestDeletedBeforeItsPredecessor: what we made and deleted stays away while the watch still
// tells of an object that had its name before.
func TestDeletedBeforeItsPredecessor(t *testing.T) {
	l := listen(t)
	store := l.store()
	l.must(store.Replace([]any{podAt("a", "1", 1)}, "1"))
	l.Wrote(podAt("a", "2", 5))
	l.Deleted("n", "a", "2")
	for i, late := range []func() error{
		func() error { return store.Replace([]any{podAt("a", "1", 3)}, "3") },
		func() error { return store.Update(podAt("a", "1", 3)) },
		func() error { return store.Delete(podAt("a", "1", 4)) },
		func() error { return store.Replace(nil, "4") },
		func() error { return store.Update(podAt("a", "2", 5)) },
	} {
		if l.must(late()); l.Len() != 0 {
			t.Fatalf("after %d it is back: %+v", i, l.All())
		}
	}
	l.must(store.Delete(podAt("a", "2", 6)))
	if l.Len() != 0 || len(l.own) != 0 {
		t.Errorf("%d objects are there, %d are remembered for ever", l.Len(), len(l.own))
	}
}

// TestLastFinalizer: the states that we gave an object before our finalizer, the last one,
// was taken from it do not bring it back.
func TestLastFinalizer(t *testing.T) {
	l := listen(t)
	state := func(version int) *corev1.Pod {
		p := podAt("a", "1", version)
		p.DeletionTimestamp = &metav1.Time{}
		return p
	}
	l.must(l.store().Replace([]any{state(4)}, "5"))
	l.Wrote(state(8))
	l.Deleted("n", "a", "1")
	l.told = nil
	l.must(l.store().Update(state(6)))
	l.must(l.store().Update(state(8)))
	l.expect("")
}

// TestOwnWritesConverge delivers random histories of a few objects the way a reflector
// does, mixed with answers to writes in any order and with lists that were made a while
// before they arrive, and compares the outcome, also with what somebody knows who goes by
// what is told.
func TestOwnWritesConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known := map[string]string{}
		c := NewCache(Kind[*corev1.Pod]{
			Fresh: func() *corev1.Pod { return &corev1.Pod{} },
			Index: func(p *corev1.Pod) []string { return []string{"all", string(p.UID)} },
			Changed: func(before, after *corev1.Pod) {
				was := ""
				if before != nil {
					was = before.ResourceVersion
				}
				name := ""
				if after == nil {
					name = before.Name
				} else {
					name = after.Name
				}
				if known[name] != was {
					t.Fatalf("%s is said to have had version %q, which was %q", name, was, known[name])
				}
				if delete(known, name); after != nil {
					known[name] = after.ResourceVersion
				}
			},
		})
		store := (*sink[*corev1.Pod])(c)
		truth := map[string]*corev1.Pod{}
		wrote := map[types.UID]int{}  // the newest version that we were answered
		ended := map[types.UID]bool{} // what we deleted ourselves
		clock := 1
		var events, answers []func()
		var listed func() // takes in the list that is on its way
		deliver := func(n int) {
			for range min(n, len(events)) {
				events[0]()
				events = events[1:]
			}
		}
		list := func() {
			var items []any
			for _, p := range truth {
				items = append(items, p.DeepCopy())
			}
			version := strconv.Itoa(clock)
			events, listed = nil, func() {
				listed = nil
				_ = store.Replace(items, version)
			}
		}
		list()
		listed()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			ours := rapid.Bool().Draw(t, "ours")
			clock++
			switch rapid.SampledFrom([]string{"write", "write", "delete", "deliver", "relist"}).Draw(t, "step") {
			case "write":
				p := podAt(name, types.UID(strconv.Itoa(clock)), clock)
				if old := truth[name]; old != nil {
					p.UID = old.UID
				}
				truth[name] = p
				events = append(events, func() { _ = store.Update(p.DeepCopy()) })
				if ours {
					version := clock
					answers = append(answers, func() {
						c.Wrote(p.DeepCopy())
						wrote[p.UID] = max(wrote[p.UID], version)
					})
				}
			case "delete":
				if p := truth[name]; p != nil {
					delete(truth, name)
					gone := podAt(name, p.UID, clock)
					events = append(events, func() { _ = store.Delete(gone) })
					if found := c.Get("n", name); ours && found != nil && found.UID == p.UID { // nobody deletes what it does not know
						answers = append(answers, func() {
							c.Deleted("n", name, p.UID)
							ended[p.UID] = true
						})
					}
				}
			case "deliver":
				if n := rapid.IntRange(1, 5).Draw(t, "events"); listed == nil {
					deliver(n)
				} else {
					listed()
				}
			case "relist":
				list()
			}
			if n := len(answers); n > 0 && rapid.Bool().Draw(t, "answered") { // in any order
				i := rapid.IntRange(0, n-1).Draw(t, "answer")
				answers[i]()
				answers = slices.Delete(answers, i, i+1)
			}
			for _, p := range c.All() {
				if version, _ := strconv.Atoi(p.ResourceVersion); ended[p.UID] || version < wrote[p.UID] {
					t.Fatalf("%s is as it was before a write of ours, in version %s", p.Name, p.ResourceVersion)
				}
			}
		}
		if listed != nil {
			listed()
		}
		deliver(len(events))
		for _, answer := range answers {
			answer()
		}
		want := map[string]string{}
		for name, p := range truth {
			want[name] = p.ResourceVersion
			got := c.Get("n", name)
			if got == nil || got.ResourceVersion != p.ResourceVersion {
				t.Fatalf("%s is %+v, want version %s", name, got, p.ResourceVersion)
			}
			if found := c.By(string(p.UID)); len(found) != 1 || found[0] != got {
				t.Fatalf("by its UID %s is %+v", name, found)
			}
		}
		if c.Len() != len(truth) || !maps.Equal(known, want) {
			t.Fatalf("%d objects, of which %v is known; want %v", c.Len(), known, want)
		}
		if n := len(c.Indexes()); len(c.By("all")) != len(truth) || n != len(truth)+min(len(truth), 1) {
			t.Fatalf("%d objects are found by %d, want %d", len(c.By("all")), n, len(truth))
		}
		if len(c.own) > 0 {
			t.Fatalf("remembered for ever: %v", c.own)
		}
	})
}

// An object that was forgotten after our write is no change when a list from before the
// write does not have it.
func TestForgottenAfterWrite(t *testing.T) {
	l := listen(t)
	l.must(l.store().Replace(nil, "5"))
	written := podAt("a", "1", 9)
	l.Wrote(written)
	l.Forget(written)
	l.expect("", "->9")
	l.must(l.store().Replace(nil, "8"))
	l.expect("")
}

// With a constraint that is more than methods, every kind would have code of its own in
// the binary.
func TestOneCodeForAllKinds(t *testing.T) {
	var told []uintptr
	teller := func() {
		pc, _, _, _ := runtime.Caller(2)
		told = append(told, runtime.FuncForPC(pc).Entry())
	}
	NewCache(Kind[*corev1.Pod]{Changed: func(_, _ *corev1.Pod) { teller() }}).Wrote(podAt("a", "1", 1))
	NewCache(Kind[*corev1.Node]{Changed: func(_, _ *corev1.Node) { teller() }}).Wrote(&corev1.Node{})
	if len(told) != 2 || told[0] != told[1] {
		t.Errorf("Changed of two kinds is called by the functions at %x", told)
	}
}
