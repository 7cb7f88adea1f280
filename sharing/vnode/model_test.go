package vnode

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/spec"
)

// step is something that happens.
type step struct {
	What string
	Who  peer.ClusterID
	N    int
}

// foreign is a node of somebody else, which has the name that the node of the third
// provider would have.
const foreign = "liqo-three"

var providers = []peer.ClusterID{"one", "two", "three"}

var happenings = []string{
	"want", "want", "want", "unwant", "unwant", "give up", "unreachable", "no offer", "rename", "wait", "wait", "long wait",
	"pod", "pod", "end pod", "budget", "no budget", "daemon",
	"delete node", "cordon", "uncordon", "relabel", "untaint", "taint", "break status", "kill lease",
	"down", "up", "slow", "fast", "restart", "settle",
}

// TestModel: after anything that may happen, nodes come to be as they are to be, and
// then nothing is written but Leases.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				What: rapid.SampledFrom(happenings).Draw(rt, "what"),
				Who:  rapid.SampledFrom(providers).Draw(rt, "who"),
				N:    rapid.IntRange(0, 3).Draw(rt, "n"),
			}
		}), 1, 40).Draw(rt, "steps")
		// A bubble has a goroutine of its own, and rapid's Fatal wants to be called on this
		// one.
		var failed error
		bubble.Test(t, func(t *testing.T) { failed = play(t, steps) })
		if failed != nil {
			rt.Fatal(failed)
		}
	})
}

// TestFound: what the model found once.
func TestFound(t *testing.T) {
	for name, steps := range map[string][]step{
		"the agent ends right after the node was deleted": {{"want", "two", 0}, {"wait", "two", 3}, {"unwant", "two", 1}, {"delete node", "two", 1}, {"restart", "two", 2}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				if err := play(t, steps); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// world is what happened, and what is to come of it.
type world struct {
	f    *fake
	a    *agent
	said map[peer.ClusterID]spec.Node
	// called is what a provider is called now, and named what its node was called first.
	called, named map[peer.ClusterID]string
	// cordoned are the nodes that a person cordoned, by UID.
	cordoned map[string]bool
}

func play(t *testing.T, steps []step) error {
	w := &world{f: newFake(), said: make(map[peer.ClusterID]spec.Node), cordoned: make(map[string]bool),
		called: make(map[peer.ClusterID]string), named: make(map[peer.ClusterID]string)}
	w.f.heartbeat = time.Minute // most of what happens is heartbeats
	w.f.with(func() {
		w.f.create(nodePath(foreign), map[string]any{"metadata": map[string]any{"name": foreign}, "spec": map[string]any{}})
	})
	w.a = w.f.start(t)
	defer func() { w.a.stop() }()
	for _, s := range steps {
		w.take(t, s)
		if err := w.renamed(); err != nil {
			return err
		}
	}
	// Trouble ends, and everybody was heard.
	w.f.with(func() {
		w.f.down, w.f.delay, w.f.stuck = false, 0, false
		clear(w.f.blocked)
	})
	for _, id := range providers {
		if p, ok := w.said[id]; ok && !p.Reachable && p.Wanted {
			p.Reachable = true
			w.said[id] = p
		}
		w.say(id)
	}
	w.a.Settled()
	wait(10 * time.Minute)
	if err := w.check(); err != nil {
		return err
	}
	w.f.take()
	before := w.a.news("one") + w.a.news("two") + w.a.news("three")
	wait(2 * time.Minute)
	if writes := unleased(w.f.take()); len(writes) > 0 {
		return fmt.Errorf("written for nothing: %v", writes)
	}
	if w.a.news("one")+w.a.news("two")+w.a.news("three") != before {
		return errors.New("news about nothing")
	}
	return w.check()
}

func (w *world) say(id peer.ClusterID) {
	if p, ok := w.said[id]; ok {
		w.a.Set(p)
	}
}

// edit changes a node as people do.
func (w *world) edit(id peer.ClusterID, change func(node map[string]any)) {
	w.f.with(func() {
		if path := w.f.pathOf(id); path != "" {
			node := clone(w.f.objects[path])
			change(node)
			w.f.store(path, node)
		}
	})
}

func (w *world) take(t *testing.T, s step) {
	f := w.f
	pod := fmt.Sprintf("/api/v1/namespaces/shop/pods/%s-%d", s.Who, s.N)
	p := testProvider(s.Who)
	p.Called = cmp.Or(w.called[s.Who], p.Called)
	switch s.What {
	case "want":
		p.Offer = testOffer(fmt.Sprint(1 + s.N))
		if s.N == 0 {
			p.Offer.Labels = nil
			p.Offer.ResourceQuota.Hard["example.com/gpu"] = "1"
		}
	case "unwant", "give up":
		p.Wanted, p.Offer, p.Gone = false, nil, s.What == "give up"
	case "unreachable":
		p.Reachable = false
	case "no offer":
		p.Offer = nil
	case "rename":
		// Among the names are those of the others.
		w.called[s.Who] = []string{"one", "Two", "host", ""}[s.N]
	}
	switch s.What {
	case "want", "unwant", "give up", "unreachable", "no offer":
		w.said[s.Who] = p
		w.a.Set(p)
	case "wait":
		wait(time.Duration(s.N*s.N*s.N) * 300 * time.Millisecond)
	case "long wait":
		wait(time.Duration(1+s.N) * time.Minute)
	case "pod", "daemon":
		f.with(func() {
			node := f.objects[f.pathOf(s.Who)]
			if node == nil || f.objects[pod] != nil {
				return
			}
			if cordoned, _ := sub(node, "spec")["unschedulable"].(bool); cordoned && s.What == "pod" {
				return
			}
			metadata := map[string]any{"namespace": "shop", "name": fmt.Sprintf("%s-%d", s.Who, s.N)}
			if s.What == "daemon" {
				metadata["ownerReferences"] = []any{map[string]any{"kind": "DaemonSet", "name": "d", "controller": true}}
			}
			f.create(pod, map[string]any{"metadata": metadata, "spec": map[string]any{"nodeName": textAt(node, "metadata", "name")}})
		})
	case "end pod":
		f.with(func() {
			if f.objects[pod] != nil {
				f.store(pod, nil)
			}
		})
	case "budget", "no budget":
		f.with(func() { f.blocked[pod] = s.What == "budget" })
	case "delete node":
		f.with(func() {
			if path := f.pathOf(s.Who); path != "" {
				f.store(path, nil)
			}
		})
	case "cordon":
		w.edit(s.Who, func(n map[string]any) {
			// kubectl writes nothing where it is cordoned already.
			if now, _ := sub(n, "spec")["unschedulable"].(bool); !now {
				sub(n, "spec")["unschedulable"], sub(n, "spec")["personCordoned"] = true, true
				w.cordoned[textAt(n, "metadata", "uid")] = true
			}
		})
	case "uncordon":
		w.edit(s.Who, func(n map[string]any) {
			delete(sub(n, "spec"), "unschedulable")
			delete(sub(n, "spec"), "personCordoned")
			delete(w.cordoned, textAt(n, "metadata", "uid"))
		})
	case "relabel":
		w.edit(s.Who, func(n map[string]any) {
			sub(sub(n, "metadata"), "labels")["mine"] = "1"
			delete(sub(sub(n, "metadata"), "labels"), []string{"liqo.io/type", "liqo.io/cluster-id", "offer.liqo.io/color", "kubernetes.io/os"}[s.N])
		})
	case "untaint":
		w.edit(s.Who, func(n map[string]any) { delete(sub(n, "spec"), "taints") })
	case "taint":
		w.edit(s.Who, func(n map[string]any) {
			sub(n, "spec")["taints"] = []any{map[string]any{"key": "other", "effect": "NoSchedule"}}
		})
	case "break status":
		w.edit(s.Who, func(n map[string]any) {
			for _, field := range []string{"conditions", "capacity", "nodeInfo"}[:s.N] {
				delete(sub(n, "status"), field)
			}
		})
	case "kill lease":
		f.with(func() {
			if path := leasePath + "/" + f.names[s.Who]; f.objects[path] != nil {
				f.store(path, nil)
			}
		})
	case "down", "up":
		f.with(func() { f.down = s.What == "down" })
	case "slow", "fast":
		f.with(func() {
			f.delay = map[string]time.Duration{"slow": time.Duration(s.N) * 100 * time.Millisecond}[s.What]
		})
	case "restart":
		w.a.stop()
		w.a = f.start(t)
		if s.N > 0 {
			for _, id := range providers {
				w.say(id)
			}
		}
	case "settle":
		for _, id := range providers {
			w.say(id)
		}
		w.a.Settled()
	}
}

// renamed: a node has one name for ever.
func (w *world) renamed() error {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	for _, id := range providers {
		path := w.f.pathOf(id)
		if path == "" {
			continue
		}
		if first := w.named[id]; first != "" && first != path {
			return fmt.Errorf("the node of %s was %s and is %s", id, first, path)
		}
		w.named[id] = path
	}
	return nil
}

// check compares what is there with what is to be there.
func (w *world) check() error {
	f := w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.wrong) > 0 {
		return errors.New(strings.Join(f.wrong, "; "))
	}
	nodes := 0
	for _, id := range providers {
		p := w.said[id]
		p.ID = id
		object := f.objects[f.pathOf(id)]
		f.mu.Unlock()
		state, failure := w.a.Set(p), ""
		w.a.Nodes.mu.Lock()
		if r := w.a.records[id]; r != nil {
			failure = r.failure
		}
		w.a.Nodes.mu.Unlock()
		f.mu.Lock()
		switch {
		case failure != "":
			return fmt.Errorf("%s fails: %s", id, failure)
		case !p.Wanted && (object != nil || f.objects[leasePath+"/"+f.names[id]] != nil):
			return fmt.Errorf("%s is left: %+v", id, state)
		case !p.Wanted && state != (spec.NodeStatus{}), p.Wanted && object != nil && state.Ready != (p.Offer != nil):
			return fmt.Errorf("%s is said to be %+v", id, state)
		case p.Offer != nil && object == nil:
			return fmt.Errorf("%s is missing: %+v", id, state)
		}
		if object == nil {
			continue
		}
		nodes++
		var node corev1.Node
		if err := json.Unmarshal(mustMarshal(object), &node); err != nil {
			return err
		}
		want := wanted(p, judge(p), Kubelet{}, &node)
		cordon := want.cordon || w.cordoned[string(node.UID)]
		if metaDiffers(&node, want) || statusDiffers(&node, want) || !hasTaint(&node) || node.Spec.Unschedulable != cordon {
			return fmt.Errorf("%s is not as wanted: %s", id, mustMarshal(object))
		}
		if age := time.Since(f.leases[node.Name]); age > f.heartbeat+leaseMax {
			return fmt.Errorf("the lease of %s was not renewed for %v", id, age)
		}
	}
	if s := f.objects[nodePath(foreign)]; s == nil {
		return errors.New("the node of somebody else is gone")
	}
	policies := 0
	for path := range f.objects {
		if strings.Contains(path, "admissionregistration") {
			policies++
		}
	}
	wants := slices.ContainsFunc(providers, func(id peer.ClusterID) bool { return w.said[id].Offer != nil })
	if want := map[bool]int{true: 2}[nodes > 0 || wants]; policies != want {
		return fmt.Errorf("%d objects of the policy, and %d nodes", policies, nodes)
	}
	return nil
}
