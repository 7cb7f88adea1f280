package offload

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"liqo.io/agent/sharing/workload"
)

// server is an API server with the pods of one namespace, and what the agent has
// been told of them.
type server struct {
	version int
	pods    map[string]*corev1.Pod
	told    map[string]*corev1.Pod
	known   bool
	came    func(*corev1.Pod) // is told of pods that were not there when told was listed; may be nil
	events  []func()          // not delivered yet
}

func newServer() *server {
	return &server{pods: map[string]*corev1.Pod{}, told: map[string]*corev1.Pod{}}
}

func (s *server) put(pod *corev1.Pod) {
	s.version++
	pod = pod.DeepCopy()
	pod.ResourceVersion = strconv.Itoa(s.version)
	s.pods[pod.Name] = pod
	version := s.version
	s.events = append(s.events, func() {
		// The answer to a write may have told of a later one.
		told := s.told[pod.Name]
		if told == nil && s.came != nil {
			s.came(pod)
		}
		if told == nil || versionOf(told) <= version {
			s.told[pod.Name] = pod
		}
	})
}

func versionOf(pod *corev1.Pod) int {
	version, err := strconv.Atoi(pod.ResourceVersion)
	if err != nil {
		panic(err)
	}
	return version
}

func (s *server) delete(name string) {
	s.version++
	delete(s.pods, name)
	s.events = append(s.events, func() { delete(s.told, name) })
}

func (s *server) change(name string, change func(*corev1.Pod)) {
	if pod := s.pods[name]; pod != nil {
		pod = pod.DeepCopy()
		change(pod)
		s.put(pod)
	}
}

// end begins the deletion of a pod, or makes it shorter.
func (s *server) end(name string, grace int64, now time.Time) {
	s.change(name, func(pod *corev1.Pod) {
		if pod.DeletionTimestamp == nil || *pod.DeletionGracePeriodSeconds > grace {
			at := metav1.NewTime(now.Add(time.Duration(grace) * time.Second))
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
		}
	})
	if grace == 0 {
		s.delete(name)
	}
}

// deliver has the agent be told of the next change.
func (s *server) deliver() bool {
	if len(s.events) == 0 || !s.known {
		return false
	}
	s.events[0]()
	s.events = s.events[1:]
	return true
}

// list tells the agent everything.
func (s *server) list() {
	s.told, s.events, s.known = map[string]*corev1.Pod{}, nil, true
	for name, pod := range s.pods {
		s.told[name] = pod
	}
}

func (s *server) forget() { s.told, s.events, s.known = map[string]*corev1.Pod{}, nil, false }

// world is a consumer, a provider and the agent between them.
type world struct {
	t         *rapid.T
	a, b      *server
	states    map[string]podState
	reachable bool
	now       time.Time
	serial    int
	ran       map[types.UID]bool // of ours: that were shown as running
	copies    map[types.UID]int  // of ours: how often a copy was created
	writes    int
}

var names = []string{"one", "two", "three"}

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, a: newServer(), b: newServer(), states: map[string]podState{}, reachable: true, now: moment,
		ran: map[types.UID]bool{}, copies: map[types.UID]int{},
	}
	w.a.came = func(pod *corev1.Pod) {
		m := w.states[pod.Name].about(pod, nil)
		m.unsent = true
		w.states[pod.Name] = m
	}
	w.a.list()
	w.b.list()
	return w
}

func (w *world) uid(prefix string) types.UID {
	w.serial++
	return types.UID(fmt.Sprintf("%s-%d", prefix, w.serial))
}

// fate is what becomes of a request to the provider.
type fate string

const (
	done     fate = "done"
	notDone  fate = "it never arrives"
	noAnswer fate = "its answer is lost"
)

// look is what a worker does with one pod.
func (w *world) look(name string, fate fate) {
	if !w.a.known {
		return
	}
	v := view{
		local: w.a.told[name], remote: w.b.told[name], known: w.b.known, ready: true,
		reachable: w.reachable, origin: here, now: w.now,
	}
	m := w.states[name].about(v.local, v.remote)
	v.state = m
	s := plan(v)
	if s.status != nil {
		w.status(name, v, *s.status)
	}
	if s.verb != wait && s.verb != finish && !w.reachable {
		w.t.Fatalf("%s: %s at a provider that is not reachable", name, s.verb)
	}
	if s.verb != wait {
		w.writes++
	}
	switch {
	case s.verb == finish:
		if local := w.a.pods[name]; local != nil && local.UID == v.local.UID {
			if !v.asked() && w.copies[local.UID] > 0 {
				w.t.Fatalf("%s: ours is removed, and nobody knows what there is of it", name)
			}
			if c := w.b.pods[name]; c != nil && workload.IsCopy(local, c) && w.copies[local.UID] > 0 && m.seen {
				w.t.Fatalf("%s: ours is removed before its copy has ended", name)
			}
			w.a.delete(name)
		}
	case s.verb == wait || fate == notDone:
	default:
		m.unsent = m.unsent && s.verb != create
		before := m
		w.remote(name, v, s, &m)
		if fate == noAnswer {
			m = before
		}
	}
	w.states[name] = m
	if v.local == nil && v.remote == nil {
		delete(w.states, name)
	}
}

func (w *world) status(name string, v view, status corev1.PodStatus) {
	local := w.a.pods[name]
	if local == nil || local.UID != v.local.UID {
		return
	}
	if terminal(local) && status.Phase != local.Status.Phase {
		w.t.Fatalf("%s: from %s to %s", name, local.Status.Phase, status.Phase)
	}
	if !workload.SameStatus(&local.Status, &status) {
		w.writes++
		w.a.change(name, func(pod *corev1.Pod) { pod.Status = status })
	}
	w.a.told[name] = w.a.pods[name] // by the answer
	if ran(&status) {
		w.ran[local.UID] = true
	}
}

// remote does at the provider what a step says.
func (w *world) remote(name string, v view, s step, m *podState) {
	at := w.b.pods[name]
	switch s.verb {
	case create:
		if at != nil {
			return // AlreadyExists
		}
		if w.ran[v.local.UID] {
			w.t.Fatalf("%s: a pod that ran is created once more", name)
		}
		pod := remote(v.local, w.uid("copy"))
		w.copies[v.local.UID]++
		w.b.put(pod)
		m.created(v.local.UID, pod.UID)
	case change:
		if at != nil && at.UID == v.remote.UID {
			w.patch(name, s.patch)
			m.patched = v.remote.ResourceVersion + string(s.patch)
		}
	case confirm:
		m.confirmed(v.local, at)
	case remove:
		if local := w.a.pods[name]; v.remote != nil && v.copy() == nil && local != nil && workload.IsCopy(local, v.remote) {
			return // ours lives
		}
		if at == nil || at.UID != s.uid {
			m.deleted(s.uid, s.grace, true)
			return
		}
		if local := w.a.pods[name]; local != nil && workload.IsCopy(local, at) && local.DeletionTimestamp == nil && !terminal(local) {
			w.t.Fatalf("%s: the copy of a living pod is deleted", name)
		}
		grace := s.grace
		if grace == ownGrace {
			grace = 30
		}
		w.b.end(name, grace, w.now)
		m.deleted(s.uid, s.grace, false)
	}
}

// patch applies a patch as far as the agent makes any.
func (w *world) patch(name string, patch []byte) {
	var change corev1.Pod
	if err := json.Unmarshal(patch, &change); err != nil {
		w.t.Fatal(err)
	}
	w.b.change(name, func(pod *corev1.Pod) {
		maps.Copy(pod.Annotations, change.Annotations)
		for _, c := range change.Spec.Containers {
			pod.Spec.Containers[0].Image = c.Image
		}
	})
}

// kubelet does what the provider's kubelet does next for a pod.
func (w *world) kubelet(name string) bool {
	pod := w.b.pods[name]
	switch {
	case pod == nil:
		return false
	case pod.DeletionTimestamp != nil:
		w.b.delete(name)
	case pod.Status.Phase == corev1.PodPending:
		w.b.change(name, started)
	default:
		return false
	}
	return true
}

// settle lets everything happen that is due.
func (w *world) settle() {
	w.reachable = true
	for range 200 {
		busy := false
		for _, s := range []*server{w.a, w.b} {
			if !s.known {
				s.list()
			}
			for s.deliver() {
				busy = true
			}
		}
		before := w.writes
		for _, name := range names {
			w.look(name, done)
			busy = w.kubelet(name) || busy
		}
		if !busy && w.writes == before && len(w.a.events)+len(w.b.events) == 0 {
			return
		}
	}
	w.t.Fatal("it never comes to rest")
}

func (w *world) check() {
	for name, copied := range w.b.pods {
		local := w.a.pods[name]
		switch {
		case local == nil:
			w.t.Fatalf("%s: a leftover at the provider", name)
		case !workload.IsCopy(local, copied):
			w.t.Fatalf("%s: the copy is that of another pod", name)
		}
	}
	for name, local := range w.a.pods {
		copied := w.b.pods[name]
		switch {
		case local.DeletionTimestamp != nil:
			w.t.Fatalf("%s: it never ends", name)
		case terminal(local):
		case copied == nil:
			w.t.Fatalf("%s: it is lost: %s", name, local.Status.Phase)
		case local.Status.Phase != copied.Status.Phase:
			w.t.Fatalf("%s: %s here and %s there", name, local.Status.Phase, copied.Status.Phase)
		case local.Spec.Containers[0].Image != copied.Spec.Containers[0].Image:
			w.t.Fatalf("%s: the image is not carried over", name)
		}
	}
}

// TestStories: whatever happens in whatever order, it ends well.
func TestStories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		name := rapid.SampledFrom(names)
		fates := rapid.SampledFrom([]fate{done, done, done, notDone, noAnswer})
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				if n := name.Draw(t, "name"); w.a.pods[n] == nil {
					w.a.put(local(func(pod *corev1.Pod) { pod.Name, pod.UID = n, w.uid("mine") }))
				}
			},
			"delete":       func(t *rapid.T) { w.a.end(name.Draw(t, "name"), 30, w.now) },
			"force delete": func(t *rapid.T) { n := name.Draw(t, "name"); w.a.delete(n) },
			"new image": func(t *rapid.T) {
				w.a.change(name.Draw(t, "name"), func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "web:" + string(w.uid("v")) })
			},
			"node not ready": func(t *rapid.T) {
				w.a.change(name.Draw(t, "name"), func(pod *corev1.Pod) {
					for i := range pod.Status.Conditions {
						if pod.Status.Conditions[i].Type == corev1.PodReady {
							pod.Status.Conditions[i].Status = corev1.ConditionFalse
						}
					}
				})
			},
			"look": func(t *rapid.T) { w.look(name.Draw(t, "name"), fates.Draw(t, "fate")) },
			"tell a": func(*rapid.T) {
				if !w.a.known {
					w.a.list()
				}
				w.a.deliver()
			},
			"tell b": func(*rapid.T) {
				if !w.b.known && w.a.known {
					w.b.list()
				}
				w.b.deliver()
			},
			"list b again":     func(*rapid.T) { w.b.list() },
			"kubelet":          func(t *rapid.T) { w.kubelet(name.Draw(t, "name")) },
			"provider deletes": func(t *rapid.T) { w.b.end(name.Draw(t, "name"), 30, w.now) },
			"provider removes": func(t *rapid.T) { w.b.delete(name.Draw(t, "name")) },
			"finish there": func(t *rapid.T) {
				w.b.change(name.Draw(t, "name"), func(pod *corev1.Pod) {
					if pod.Status.Phase == corev1.PodRunning {
						pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}).Draw(t, "phase")
					}
				})
			},
			"away or back": func(*rapid.T) { w.reachable = !w.reachable },
			"crash": func(*rapid.T) {
				w.states = map[string]podState{}
				w.a.forget()
				w.b.forget()
			},
			"time": func(*rapid.T) { w.now = w.now.Add(7 * time.Second) },
		})
		w.settle()
		w.check()
		// At rest nothing is written.
		before := w.writes
		for _, n := range names {
			w.look(n, done)
		}
		if w.writes != before {
			t.Fatalf("%d writes without a change", w.writes-before)
		}
		// And a restart is no event.
		w.states = map[string]podState{}
		w.a.forget()
		w.b.forget()
		w.settle()
		if w.writes != before {
			t.Fatalf("%d writes because of a restart", w.writes-before)
		}
		w.check()
	})
}

func TestIndex(t *testing.T) {
	x := newIndex(func(pod *corev1.Pod) bool { return pod.Name != "daemon" })
	uses := func(name string, configMaps ...string) *corev1.Pod {
		return local(func(pod *corev1.Pod) {
			pod.Name = name
			for _, cm := range configMaps {
				pod.Spec.Containers[0].EnvFrom = append(pod.Spec.Containers[0].EnvFrom,
					corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: cm}}})
			}
		})
	}
	ref := key{aConfigMap, "shop", "shared"}
	x.change(nil, uses("one", "shared", "own"))
	x.change(nil, uses("two", "shared"))
	if n := len(x.using(ref)); n != 2 || !x.needs("shop") || len(x.in("")) != 2 || !slices.Equal(x.namespaces(), []string{"shop"}) {
		t.Errorf("%d pods use it, %v are there", n, x.in(""))
	}
	if unused := x.change(uses("one", "shared", "own"), nil); !slices.Equal(unused, []key{{aConfigMap, "shop", "own"}}) {
		t.Errorf("unused are %v", unused)
	}
	if unused := x.change(uses("two", "shared"), uses("two", "shared")); len(unused) != 0 {
		t.Errorf("unused are %v although a pod uses them", unused)
	}
	if unused := x.change(uses("two", "shared"), nil); !slices.Equal(unused, []key{ref}) || x.needs("shop") || len(x.namespaces()) != 0 {
		t.Errorf("unused are %v, %v are there", unused, x.in(""))
	}
	x.change(nil, uses("daemon"))
	if x.needs("shop") || len(x.in("shop")) != 1 {
		t.Error("a pod that is not for the provider needs a namespace there")
	}
	x.change(uses("daemon"), local(started, func(pod *corev1.Pod) { pod.Name = "daemon" }))
	if !x.needs("shop") {
		t.Error("a pod that was sent once needs no namespace there")
	}
}
