package vnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/peer"
)

// errUnchanged: a node is not what was written, as if somebody else wrote at the
// same time, or had the API server change it.
var errUnchanged = errors.New("the API server took the change and shows another; look for whoever edits the node, and for webhooks that do")

// reconcile takes the next steps for a node, and returns after how long it wants
// to be called again; 0 for not before something changes.
func (s *session) reconcile(ctx context.Context, id peer.ClusterID) (time.Duration, error) {
	node := s.latest(string(id))
	if node != nil && !ours(node) {
		s.settle(id, true)
		return 0, nil
	}
	p, expired, expires, ok := s.provider(id, node != nil)
	if !ok {
		return 0, nil // nothing is known about it yet, or nothing is left of it
	}
	if !p.Wanted {
		return s.remove(ctx, p, node)
	}
	if node == nil {
		if p.Offer == nil {
			return 0, nil
		}
		if !s.policy.tried() {
			return 0, nil // then all nodes are looked at
		}
		created, err := s.create(ctx, id)
		if err != nil || created == nil {
			return 0, err
		}
		node = created
	}
	if node.DeletionTimestamp != nil {
		return 0, nil // it goes, and is made anew then
	}
	again := time.Duration(0)
	if expires > 0 && !p.Reachable {
		again = expires
	}
	return again, s.shape(ctx, node, wanted(p, judge(p, expired), s.cfg.Kubelet(), node))
}

// provider returns how the node of a provider is to stand: as Set said, or gone,
// if everybody was heard and nobody wants the node. ok is false when it is not known
// how, or there is nothing to do.
func (s *session) provider(id peer.ClusterID, exists bool) (p Provider, expired bool, expires time.Duration, ok bool) {
	s.Nodes.mu.Lock()
	defer s.Nodes.mu.Unlock()
	r := s.records[id]
	switch {
	case r == nil && exists && s.settled:
		r = &record{want: Provider{ID: id, Gone: true}}
		s.records[id] = r
	case r == nil:
		return Provider{}, false, 0, false
	case !exists && !r.want.Wanted:
		delete(s.records, id)
		return Provider{}, false, 0, false
	}
	now := s.cfg.Now()
	return r.want, r.expired(now), r.expiresIn(now), true
}

// settle drops what is remembered for a node that is not ours to make.
func (s *session) settle(id peer.ClusterID, taken bool) {
	s.Nodes.mu.Lock()
	defer s.Nodes.mu.Unlock()
	if r := s.records[id]; r != nil && taken && !r.want.Wanted {
		delete(s.records, id)
	}
}

// create makes a node with what says whose it is. It has the taint from its first
// moment on, and no capacity. nil without an error: somebody else made one, which
// the cache tells.
func (s *session) create(ctx context.Context, id peer.ClusterID) (*corev1.Node, error) {
	var made corev1.Node
	err := s.client.Create(ctx, nodesPath, map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": string(id), "labels": firmLabels(id)},
		"spec":     map[string]any{"providerID": providerID(id), "taints": []corev1.Taint{taint}},
	}, &made)
	if apierrors.IsAlreadyExists(err) {
		// The cache may be behind, but not for long: then the node is looked at again.
		err = s.client.Get(ctx, nodePath(id), &made)
		if apierrors.IsNotFound(err) {
			return nil, err
		}
		if err == nil && !ours(&made) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	s.cfg.Logger.Info("made a node for a provider", "node", string(id))
	s.put(&made)
	return &made, nil
}

// applied is a node as it is applied on the server.
type applied struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Metadata   appliedMeta        `json:"metadata"`
	Spec       *appliedSpec       `json:"spec,omitempty"`
	Status     *corev1.NodeStatus `json:"status,omitempty"`
}

type appliedMeta struct {
	Name string `json:"name"`
	// UID keeps an apply from making a node that was deleted meanwhile.
	UID    types.UID         `json:"uid"`
	Labels map[string]string `json:"labels,omitempty"`
}

type appliedSpec struct {
	ProviderID    string `json:"providerID"`
	Unschedulable bool   `json:"unschedulable,omitempty"`
}

// shape makes a node as wanted. It writes only what differs.
func (s *session) shape(ctx context.Context, node *corev1.Node, w want) error {
	id := peer.ClusterID(node.Name)
	a := applied{APIVersion: "v1", Kind: "Node", Metadata: appliedMeta{Name: node.Name, UID: node.UID}}
	if !hasTaint(node) {
		patch, err := json.Marshal(map[string]any{
			// All taints are one field: those that others set at this moment must not be
			// lost.
			"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
			"spec":     map[string]any{"taints": tainted(node)},
		})
		if err != nil {
			return fmt.Errorf("taint node %s: %w", id, err)
		}
		if node, err = s.write(node.Name, func(into *corev1.Node) error {
			return s.client.Patch(ctx, nodePath(id), manager, types.MergePatchType, patch, into)
		}); err != nil {
			return err
		}
	}
	if metaDiffers(node, w) {
		a.Metadata.Labels, a.Spec = w.labels, &appliedSpec{ProviderID: providerID(id), Unschedulable: w.cordon}
		var err error
		if node, err = s.write(node.Name, func(into *corev1.Node) error {
			return s.client.Apply(ctx, nodePath(id), manager, true, a, into)
		}); err != nil {
			return err
		}
		if metaDiffers(node, w) {
			return fmt.Errorf("labels and cordon of node %s: %w", id, errUnchanged)
		}
	}
	if !statusDiffers(node, w) {
		return nil
	}
	status := w.status
	status.Conditions = timed(node, status.Conditions, metav1.NewTime(s.cfg.Now()))
	a.Metadata.Labels, a.Spec, a.Status = nil, nil, &status
	node, err := s.write(node.Name, func(into *corev1.Node) error {
		return s.client.Apply(ctx, nodePath(id)+"/status", manager, true, a, into)
	})
	if err == nil && statusDiffers(node, w) {
		err = fmt.Errorf("status of node %s: %w", id, errUnchanged)
	}
	return err
}

// write does a write that returns the node, and keeps that.
func (s *session) write(name string, do func(into *corev1.Node) error) (*corev1.Node, error) {
	var written corev1.Node
	if err := do(&written); err != nil {
		s.drop(name)
		return nil, err
	}
	s.put(&written)
	return &written, nil
}
