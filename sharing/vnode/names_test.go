package vnode

import (
	"testing"
	"time"

	"liqo.io/agent/internal/attack"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/spec"
)

const (
	honest  = peer.ClusterID("11111111-1111-4111-8111-111111111111")
	hostile = peer.ClusterID("22222222-2222-4222-8222-222222222222")
)

// called has a provider be called something, and returns what its node is called
// then.
func (a *agent) called(id peer.ClusterID, name string) string {
	p := testProvider(id)
	p.Called = name
	a.Set(p)
	wait(time.Minute)
	return a.Set(p).Name
}

// gone has a provider have no node any more.
func (a *agent) gone(id peer.ClusterID) {
	a.Set(spec.Node{ID: id, Gone: true})
	wait(2 * time.Minute)
}

// someone makes a node as others do.
func (f *fake) someone(name string, spec map[string]any) {
	f.with(func() {
		f.create(nodePath(name), map[string]any{"metadata": map[string]any{"name": name}, "spec": spec})
	})
}

// TestAttackNodeNames: what a provider calls itself decides neither about nodes that
// are there nor about what the names of nodes mean.
func TestAttackNodeNames(t *testing.T) {
	for _, tc := range []struct {
		what, want string
		try        func(f *fake, a *agent) string
	}{
		{"call itself like a machine of the cluster (worker)", "liqo-worker", func(f *fake, a *agent) string {
			f.someone("worker", map[string]any{})
			return a.called(hostile, "worker")
		}},
		{"call itself so that its node would be a machine that has that very name (liqo-worker)", "liqo-worker-22222222", func(f *fake, a *agent) string {
			f.someone("liqo-worker", map[string]any{})
			return a.called(hostile, "worker")
		}},
		{"call itself like the machine that the agent is on (liqo-host), before that has a node", "liqo-host-22222222", func(_ *fake, a *agent) string {
			return a.called(hostile, "host")
		}},
		{"call itself like another provider", "liqo-barn, liqo-barn-22222222", func(_ *fake, a *agent) string {
			return a.called(honest, "barn") + ", " + a.called(hostile, "barn")
		}},
		{"take the name of a provider that is away, for the pods that are pinned to its node", "liqo-barn, liqo-barn-22222222, liqo-barn", func(_ *fake, a *agent) string {
			names := a.called(honest, "barn")
			a.gone(honest)
			names += ", " + a.called(hostile, "barn")
			return names + ", " + a.called(honest, "barn")
		}},
		{"call itself like another provider later", "liqo-barn, liqo-shed, liqo-shed", func(_ *fake, a *agent) string {
			return a.called(honest, "barn") + ", " + a.called(hostile, "shed") + ", " + a.called(hostile, "barn")
		}},
		{"call itself like the node of another, suffix and all", "liqo-barn-22222222, liqo-barn, liqo-barn-22222222-2", func(_ *fake, a *agent) string {
			names := a.called(honest, "barn-22222222") + ", " + a.called("other", "barn")
			return names + ", " + a.called(hostile, "barn")
		}},
		{"call itself something that is no name of a node", "liqo-kube-system", func(_ *fake, a *agent) string {
			return a.called(hostile, "../../KUBE-system\x00/")
		}},
	} {
		bubble.Test(t, func(t *testing.T) {
			f := newFake()
			a := f.start(t)
			defer a.stop()
			attack.Attempt{What: tc.what, As: "provider", Want: tc.want}.Saw(t, tc.try(f, a))
			for _, wrong := range f.wrong {
				t.Error(wrong)
			}
		})
	}
}

// TestNamesLast: a node keeps its name through restarts, whatever its provider is
// called, and one that an older agent named by cluster ID keeps that while it is
// there.
func TestNamesLast(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake()
		a := f.start(t)
		again := func() {
			a.stop()
			a = f.start(t)
		}
		defer func() { a.stop() }()
		is := func(want, called string) {
			t.Helper()
			if name := a.called(barn, called); name != want {
				t.Errorf("it is called %s, want %s", name, want)
			}
		}
		remove := func() {
			f.with(func() { f.store(f.pathOf(barn), nil) })
		}
		f.someone(string(barn), map[string]any{"providerID": providerID(barn)})
		is(string(barn), "box-b")
		again()
		is(string(barn), "box-b")
		if hostname := textAt(f.node(barn), "metadata", "labels", "kubernetes.io/hostname"); hostname != string(barn) {
			t.Errorf("its label says %s", hostname)
		}
		remove()
		is("liqo-box-b", "box-b")
		again()
		is("liqo-box-b", "box-c")
		remove()
		is("liqo-box-b", "box-c")
		again()
		remove()
		is("liqo-box-b", "box-c")
		a.gone(barn)
		again()
		is("liqo-box-b", "box-d")

		// A machine has got the name meanwhile.
		a.gone(barn)
		f.someone("liqo-box-b", map[string]any{})
		is("liqo-box-d", "box-d")
		again()
		is("liqo-box-d", "box-e")
		if hostname := textAt(f.node(barn), "metadata", "labels", "kubernetes.io/hostname"); hostname != "liqo-box-d" {
			t.Errorf("its label says %s", hostname)
		}
	})
}

// TestOneNode: an agent that had been put back to an older version left a node of
// another name.
func TestOneNode(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake()
		a := f.start(t)
		defer func() { a.stop() }()
		first := a.called(barn, "barn")
		a.stop()
		f.someone(string(barn), map[string]any{"providerID": providerID(barn)})
		a = f.start(t)
		if name := a.called(barn, "barn"); name != first {
			t.Errorf("it is called %s", name)
		}
		if nodes := a.Nodes.Nodes(); len(nodes) != 1 || nodes[0].Name != first {
			t.Errorf("%+v", nodes)
		}
		f.with(func() {
			if f.objects[nodePath(string(barn))] != nil || f.objects[leasePath+"/"+string(barn)] != nil {
				t.Errorf("the other one is left: %v, %v", f.objects[nodePath(string(barn))], f.objects[leasePath+"/"+string(barn)])
			}
		})
	})
}
