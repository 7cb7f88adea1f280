package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/vnode"
)

// TestNode: what a node looks like, that nothing is written while nothing changes,
// and that what people do to it is left alone or repaired.
func TestNode(t *testing.T) {
	t.Parallel()
	k := bed.New(t).AddCluster(t.Context(), "box", "10.77.0.1/24")
	r := runNodes(t, k, nil)
	p := wantedProvider(providerID)
	node := r.ready(t, k, p)

	for key, want := range map[string]string{
		"liqo.io/type": "virtual-node", "liqo.io/cluster-id": string(providerID), "liqo.io/cluster-name": "barn", "node-role.kubernetes.io/agent": "",
		"kubernetes.io/hostname": barnNode, "kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "barn",
		"offer.liqo.io/color": "red", "app.kubernetes.io/managed-by": "liqo-agent",
	} {
		if got, there := node.Labels[key]; !there || got != want {
			t.Errorf("label %s is %q", key, got)
		}
	}
	if _, there := node.Labels["node-role.kubernetes.io/control-plane"]; there {
		t.Error("a provider makes its node part of the control plane")
	}
	if len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "virtual-node.liqo.io/not-allowed" || node.Spec.Taints[0].Effect != corev1.TaintEffectNoExecute {
		t.Errorf("taints %+v", node.Spec.Taints)
	}
	if q := node.Status.Allocatable["example.com/gpu"]; q.Value() != 2 || len(node.Status.Images) != 3 || node.Status.NodeInfo.KubeletVersion != "v1.36.3+k3s1" ||
		node.Status.DaemonEndpoints.KubeletEndpoint.Port != 10350 || len(node.Status.Addresses) != 1 || node.Status.Addresses[0].Address != "10.77.0.1" {
		t.Errorf("%+v", node.Status)
	}
	if nodes := r.Nodes.Nodes(); len(nodes) != 1 || nodes[0] != (vnode.Node{Name: barnNode, ID: providerID, UID: node.UID, Accepting: true}) {
		t.Errorf("%+v", nodes)
	}
	bedtest.Within(t, "lease", func() error {
		_, err := k.Request(t.Context(), "GET", leasesPath+barnNode, "", nil)
		return err
	})

	// until awaits that the node is as it should be.
	until := func(what string, check func(n *corev1.Node) bool) *corev1.Node {
		t.Helper()
		var n *corev1.Node
		bedtest.Within(t, what, func() error {
			var err error
			if n, err = getNode(t, k, barnNode); err != nil {
				return err
			}
			if !check(n) {
				return fmt.Errorf("%v %+v %+v", n.Labels, n.Spec, n.Status)
			}
			return nil
		})
		return n
	}
	path := nodesPath + barnNode

	// What people add stays, and what is ours is repaired.
	request(t, k, "PATCH", path, merge, `{"metadata":{"labels":{"mine":"1","liqo.io/type":null,"offer.liqo.io/color":"blue"},"annotations":{"note":"x"}}}`)
	until("labels", func(n *corev1.Node) bool {
		return n.Labels["liqo.io/type"] == "virtual-node" && n.Labels["offer.liqo.io/color"] == "red" && n.Labels["mine"] == "1" && n.Annotations["note"] == "x"
	})
	request(t, k, "PATCH", path, merge, `{"spec":{"taints":[{"key":"other","effect":"NoSchedule"}]}}`)
	until("taints", func(n *corev1.Node) bool {
		return len(n.Spec.Taints) == 2 && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "other" })
	})
	request(t, k, "PATCH", path+"/status", strategic, `{"status":{"conditions":[{"type":"Ready","status":"Unknown"},{"type":"Other","status":"True"}],"capacity":{"cpu":"100"}}}`)
	until("status", func(n *corev1.Node) bool {
		cpu := n.Status.Capacity[corev1.ResourceCPU]
		return readyCondition(n).Status == corev1.ConditionTrue && cpu.Value() == 4 && len(n.Status.Conditions) == 6
	})

	// Our cordon comes and goes, a person's stays.
	away := p
	away.Offer = nil
	r.Set(away)
	n := until("cordon", func(n *corev1.Node) bool {
		return n.Spec.Unschedulable && readyCondition(n).Reason == vnode.ReasonNoOffer
	})
	if cpu := n.Status.Capacity[corev1.ResourceCPU]; cpu.Value() != 4 || n.Labels["offer.liqo.io/color"] != "red" {
		t.Errorf("without an offer it changes: %v", n)
	}
	request(t, k, "PATCH", path, merge, `{"spec":{"unschedulable":null}}`)
	until("cordon once more", func(n *corev1.Node) bool { return n.Spec.Unschedulable })
	r.Set(p)
	until("uncordon", func(n *corev1.Node) bool {
		return !n.Spec.Unschedulable && readyCondition(n).Status == corev1.ConditionTrue
	})
	request(t, k, "PATCH", path, merge, `{"spec":{"unschedulable":true}}`)
	p.Reachable, p.Why = false, "no route to host"
	r.Set(p)
	until("unreachable", func(n *corev1.Node) bool {
		return readyCondition(n).Status == corev1.ConditionFalse && readyCondition(n).Reason == vnode.ReasonUnreachable
	})
	if s := r.Set(p); s.Ready || s.Reason != vnode.ReasonUnreachable || s.Message != "no route to host" || !s.Busy {
		t.Errorf("%+v", s)
	}
	p.Reachable, p.Why, p.Offer = true, "", offer("2", 0)
	delete(p.Offer.ResourceQuota.Hard, "example.com/gpu")
	delete(p.Offer.Labels, "offer.liqo.io/color")
	r.Set(p)
	n = until("another offer", func(n *corev1.Node) bool {
		_, gpu := n.Status.Capacity["example.com/gpu"]
		_, gpuToo := n.Status.Allocatable["example.com/gpu"]
		_, color := n.Labels["offer.liqo.io/color"]
		return readyCondition(n).Status == corev1.ConditionTrue && !gpu && !gpuToo && !color && len(n.Status.Images) == 0
	})
	if !n.Spec.Unschedulable {
		t.Error("a person's cordon is undone")
	}

	// An agent that starts finds all as it is to be, and writes nothing but the lease.
	version := n.ResourceVersion
	lease := func() string { return request(t, k, "GET", leasesPath+barnNode, "", "") }
	before := lease()
	r.stop()
	r = runNodes(t, k, nil)
	r.ready(t, k, p)
	bedtest.Within(t, "renewal", func() error {
		if lease() == before {
			return errors.New("it is as before")
		}
		return nil
	})
	if n, err := getNode(t, k, barnNode); err != nil || n.ResourceVersion != version {
		t.Errorf("%v: it was written for nothing: %v", err, n)
	}

	// Deleted by somebody, it is made anew.
	request(t, k, "DELETE", path, "", "")
	until("new node", func(m *corev1.Node) bool {
		return m.UID != n.UID && readyCondition(m).Status == corev1.ConditionTrue && len(m.Spec.Taints) == 1
	})
	bedtest.Within(t, "lease of the new node", func() error {
		n, err := getNode(t, k, barnNode)
		if err == nil && !strings.Contains(lease(), string(n.UID)) {
			err = errors.New(lease())
		}
		return err
	})

	// Removed, with what belongs to it.
	r.Settled()
	const policies = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/" + vnode.OffloadingName
	const bindings = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/" + vnode.OffloadingName
	request(t, k, "PATCH", policies, merge, `{"spec":{"matchConditions":[]}}`)
	request(t, k, "DELETE", bindings, "", "")
	bedtest.Within(t, "repaired policy", func() error {
		if text := request(t, k, "GET", policies, "", ""); !strings.Contains(text, "no-daemon") {
			return errors.New(text)
		}
		_, err := k.Request(t.Context(), "GET", bindings, "", nil)
		return err
	})
	p.Wanted, p.Offer = false, nil
	bedtest.Within(t, "removal", func() error {
		if s := r.Set(p); s != (spec.NodeStatus{}) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	for _, path := range []string{path, leasesPath + barnNode, policies, bindings} {
		awaitGone(t, k, path)
	}

	t.Run("name taken", func(t *testing.T) {
		body := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + barnNode + `"}}`
		request(t, k, "POST", strings.TrimSuffix(nodesPath, "/"), jsonMIME, body)
		before := request(t, k, "GET", nodesPath+barnNode, "", "")
		node := r.ready(t, k, wantedProvider(shedID))
		if node.Name != "liqo-barn-11111111" {
			t.Errorf("it is called %s", node.Name)
		}
		if after := request(t, k, "GET", nodesPath+barnNode, "", ""); after != before {
			t.Errorf("the other one was touched: %s", after)
		}
		// An agent that knows nothing of its provider removes it once all were heard.
		r.stop()
		r = runNodes(t, k, nil)
		bedtest.Within(t, "nodes", func() error {
			if nodes := r.Nodes.Nodes(); len(nodes) != 1 || !nodes[0].Accepting {
				return fmt.Errorf("%+v", nodes)
			}
			return nil
		})
		r.Settled()
		awaitGone(t, k, nodesPath+node.Name)
	})
}
