package peering

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// Between is what is left between us and a peer while peerings are ended.
type Between struct {
	// Outgoing: something of our consuming its resources is left, here or there.
	// Incoming: something of its consuming ours is.
	Outgoing, Incoming bool
	// Reachable: it can be told.
	Reachable bool
}

// Left reports whether anything is left.
func (b Between) Left() bool { return b.Outgoing || b.Incoming }

// Between tells what is left between us and a peer. Without a connection to the API
// server nothing can be seen of it, and known is false. Any goroutine may call it at
// any time.
func (c *Controller) Between(id peer.ClusterID) (between Between, known bool) {
	s := c.current()
	if s == nil {
		return Between{}, false
	}
	f := weigh(c.peek(s, id), c.cfg.Now())
	return f.between(), true
}

func (f *facts) between() Between {
	heard := f.heard()
	outgoing, incoming := f.leftHere()
	return Between{
		Outgoing:  outgoing || heard != nil && heard.Request != nil,
		Incoming:  incoming || heard != nil && heard.Advertisement != nil,
		Reachable: f.Reachable(),
	}
}

// leftHere reports whether anything is left in this cluster.
func (f *facts) leftHere() (outgoing, incoming bool) {
	out := f.outgoing
	outgoing = out.keep || out.draining || f.unsaid() || f.finalizers() && !f.undone() || f.Advertisement != nil || !f.usesNode() && f.Use.Busy
	return outgoing, f.Request != nil || f.Hosting
}

// unsaid reports whether an object still says that the peer is to be joined, and it is
// not.
func (f *facts) unsaid() bool {
	return !f.intent.join && slices.ContainsFunc(f.live(), func(fc *api.ForeignCluster) bool { return fc.Spec.Join })
}

// ClaimClusterID has the ConfigMap with the cluster ID say id, whatever it says now.
// It is for a cluster that got its identity from elsewhere: after a restore or a
// reset. Without a ConfigMap there is nothing to do: the Controller makes one. The
// errors are those of ClusterIDFromAPI.
func ClaimClusterID(ctx context.Context, kubeconfig, namespace string, id peer.ClusterID) (before peer.ClusterID, err error) {
	found, err := newLocator().load(kubeconfig)
	if err != nil {
		return "", err
	}
	c, err := newClient(found.config, nil)
	if err != nil {
		return "", err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	if before, err = readClusterID(ctx, c, namespace); err != nil {
		return "", fmt.Errorf("cluster ID from the API server: %w", err)
	}
	if before == "" || before == id {
		return before, nil
	}
	return before, c.applyJSON(ctx, configMapPath(namespace), configMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		Metadata: appliedMeta{Name: ClusterIDConfigMap, Labels: map[string]string{api.LabelManagedBy: api.ManagedByAgent}},
		Data:     map[string]string{ClusterIDKey: string(id)},
	}, ManagerIdentity, true)
}
