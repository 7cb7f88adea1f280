package integration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/vnode"
)

const (
	shedID = peer.ClusterID("11111111-1111-4111-8111-111111111111") // another provider

	barnNode = "liqo-barn" // what the node of the provider is called

	nodesPath  = "/api/v1/nodes/"
	leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"
)

// offer is one with that much cpu.
func offer(cpu string, images int) *api.AdvertisementSpec {
	made := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	o := &api.AdvertisementSpec{
		ResourceQuota: api.ResourceQuota{Hard: map[string]string{"cpu": cpu, "memory": "8Gi", "ephemeral-storage": "20Gi", "pods": "50", "example.com/gpu": "2"}},
		Labels: map[string]string{
			"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux", "liqo.io/provider-version": "v1.36.3+k3s1",
			"topology.kubernetes.io/zone": "barn", "node-role.kubernetes.io/control-plane": "true", "offer.liqo.io/color": "red",
		},
		Timestamp: made, TimeToLive: metav1.NewTime(made.Add(6 * time.Hour)),
	}
	for i := range images {
		o.Images = append(o.Images, api.ContainerImage{Names: []string{fmt.Sprintf("example.com/image-%d:1", i)}, SizeBytes: int64(1000 - i)})
	}
	return o
}

// wantedProvider is one that shares and can be reached.
func wantedProvider(id peer.ClusterID) spec.Node {
	return spec.Node{ID: id, Name: "barn", Called: "barn", Wanted: true, Offer: offer("4", 3), Reachable: true}
}

// runningNodes are Nodes at work.
type runningNodes struct {
	*vnode.Nodes
	log  *bedtest.Log
	stop func()

	mu      sync.Mutex
	changed map[peer.ClusterID]int
}

// names are what nodes are called.
type names struct {
	mu sync.Mutex
	of map[peer.ClusterID]string
}

func newNames() *names { return &names{of: make(map[peer.ClusterID]string)} }

func (n *names) NodeName(id peer.ClusterID) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of[id]
}

func (n *names) NameNode(_ context.Context, id peer.ClusterID, name string) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[id] = name
	return true, nil
}

// runNodes runs Nodes until the test ends or stop is called.
func runNodes(t *testing.T, k *bed.Kube, change func(*vnode.Config)) *runningNodes {
	t.Helper()
	r := &runningNodes{log: &bedtest.Log{}, changed: make(map[peer.ClusterID]int)}
	config := vnode.Config{
		Settings: func() vnode.Settings { return vnode.Settings{Heartbeat: heartbeat, DrainTimeout: time.Hour} },
		Kubelet: func() vnode.Kubelet {
			return vnode.Kubelet{Address: netip.MustParseAddr("10.77.0.1"), Port: 10350}
		},
		Changed: func(id peer.ClusterID) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.changed[id]++
		},
		Names:  newNames(),
		Logger: r.log.Logger(),
	}
	if change != nil {
		change(&config)
	}
	r.Nodes = vnode.New(config)
	r.stop = bedtest.Run(t, r.log, nil, func(ctx context.Context) error { return r.Run(ctx, k.RESTConfig()) })
	return r
}

func getNode(t *testing.T, k *bed.Kube, name string) (*corev1.Node, error) {
	t.Helper()
	n, err := get[corev1.Node](t, k, nodesPath+name)
	return &n, err
}

// ready awaits that the node is ready and Set says so.
func (r *runningNodes) ready(t *testing.T, k *bed.Kube, p spec.Node) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	bedtest.Within(t, "ready node", func() error {
		s := r.Set(p)
		if !s.Ready || s.Name == "" || s.Assigned != s.Name || !s.Busy {
			return fmt.Errorf("%+v", s)
		}
		var err error
		node, err = getNode(t, k, s.Name)
		if err == nil && readyCondition(node).Status != corev1.ConditionTrue {
			err = errors.New("not ready")
		}
		return err
	})
	return node
}

// readyCondition returns the condition Ready of a node, an empty one if it has none.
func readyCondition(n *corev1.Node) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}
