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
	"liqo.io/agent/sharing/spec"
)

// errUnchanged: a node is not what was written, as if somebody else wrote at the
// same time, or had the API server change it.
var errUnchanged = errors.New("the API server accepted the change, but the node shows something else; find out who edits the node, such as a webhook")

// reconcile takes the next steps for a node, and returns after how long it wants
// to be called again; 0 for not before something changes.
func (s *session) reconcile(ctx context.Context, id peer.ClusterID) (time.Duration, error) {
	node := s.own(id)
	if node != nil {
		if err := s.prune(ctx, node); err != nil {
			return 0, err
		}
	}
	p, ok := s.provider(id, node != nil)
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
		created, err := s.create(ctx, p)
		if err != nil {
			return 0, err
		}
		node = created
	}
	if node.DeletionTimestamp != nil {
		return 0, nil // it goes, and is made anew then
	}
	if err := s.shape(ctx, node, wanted(p, judge(p), s.cfg.Kubelet(), node)); err != nil {
		return 0, err
	}
	return 0, s.annotate(ctx, node)
}

// annotate tells scrapers where a node says what its pods use. It is no part of what is
// applied: an agent that may not annotate nodes, by the policy of an earlier version, does
// the rest.
func (s *session) annotate(ctx context.Context, node *corev1.Node) error {
	if s.cfg.MetricsPath == nil || s.unannotated.Load() {
		return nil
	}
	path := s.cfg.MetricsPath(node.Name)
	if node.Annotations[AnnotationMetricsPath] == path {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID, "annotations": map[string]string{AnnotationMetricsPath: path}}})
	if err != nil {
		return fmt.Errorf("annotate node %s: %w", node.Name, err)
	}
	var written corev1.Node
	err = s.client.Patch(ctx, nodePath(node.Name), manager, types.MergePatchType, patch, &written)
	if apierrors.IsForbidden(err) {
		if !s.unannotated.Swap(true) {
			s.cfg.Logger.Warn("The agent may not annotate virtual nodes, so kubectl top does not know what a node uses; run `sudo liqo-agent rbac --apply`, and restart the agent.", "node", node.Name, "error", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	s.nodes.Wrote(&written)
	return nil
}

// provider returns how the node of a provider is to stand: as Set said, or gone,
// if everybody was heard and nobody wants the node. ok is false when it is not known
// how, or there is nothing to do.
func (s *session) provider(id peer.ClusterID, exists bool) (p spec.Node, ok bool) {
	s.Nodes.mu.Lock()
	defer s.Nodes.mu.Unlock()
	r := s.records[id]
	switch {
	case r == nil && exists && s.settled:
		r = &record{want: spec.Node{ID: id, Gone: true}}
		s.records[id] = r
	case r == nil:
		return spec.Node{}, false
	case !exists && !r.want.Wanted:
		delete(s.records, id)
		return spec.Node{}, false
	}
	return r.want, true
}

// prune deletes the other nodes of a provider: an older agent, which names nodes
// another way, was at work in between.
func (s *session) prune(ctx context.Context, node *corev1.Node) error {
	for _, n := range s.nodes.All() {
		if n.UID != node.UID && n.Name != node.Name && whose(n) == whose(node) {
			if err := s.deleteNode(ctx, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// create makes a node with what says whose it is. It has the taint from its first
// moment on, and no capacity.
func (s *session) create(ctx context.Context, p spec.Node) (*corev1.Node, error) {
	name, err := s.name(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("name the node of %s: %w", p.ID, err)
	}
	var made corev1.Node
	err = s.client.Create(ctx, nodesPath, map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": name, "labels": firmLabels(p.ID)},
		"spec":     map[string]any{"providerID": providerID(p.ID), "taints": []corev1.Taint{taint}},
	}, &made)
	if taken := err; apierrors.IsAlreadyExists(err) {
		// The cache is behind: this one is ours already, or the next attempt is another name.
		if err = s.client.Get(ctx, nodePath(name), &made); err == nil && whose(&made) != p.ID {
			err = taken
		}
	}
	if err != nil {
		return nil, err
	}
	s.cfg.Logger.Info("created a node for a provider", "node", name, "cluster", p.ID)
	s.nodes.Wrote(&made)
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
	id, path := whose(node), nodePath(node.Name)
	a := applied{APIVersion: "v1", Kind: "Node", Metadata: appliedMeta{Name: node.Name, UID: node.UID}}
	if !hasTaint(node) {
		patch, err := json.Marshal(map[string]any{
			// All taints are one field: those that others set at this moment must not be
			// lost.
			"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
			"spec":     map[string]any{"taints": tainted(node)},
		})
		if err != nil {
			return fmt.Errorf("taint node %s: %w", node.Name, err)
		}
		node = &corev1.Node{}
		if err := s.client.Patch(ctx, path, manager, types.MergePatchType, patch, node); err != nil {
			return err
		}
		s.nodes.Wrote(node)
	}
	if metaDiffers(node, w) {
		a.Metadata.Labels, a.Spec = w.labels, &appliedSpec{ProviderID: providerID(id), Unschedulable: w.cordon}
		var err error
		if node, err = s.nodes.Apply(ctx, s.client, path, manager, true, a); err != nil {
			return err
		}
		if metaDiffers(node, w) {
			return fmt.Errorf("labels and cordon of node %s: %w", a.Metadata.Name, errUnchanged)
		}
	}
	if !statusDiffers(node, w) {
		return nil
	}
	status := w.status
	status.Conditions = timed(node, status.Conditions, metav1.NewTime(s.cfg.Now()))
	a.Metadata.Labels, a.Spec, a.Status = nil, nil, &status
	node, err := s.nodes.Apply(ctx, s.client, path+"/status", manager, true, a)
	if err == nil && statusDiffers(node, w) {
		err = fmt.Errorf("status of node %s: %w", a.Metadata.Name, errUnchanged)
	}
	return err
}
