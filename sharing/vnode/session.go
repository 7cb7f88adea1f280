package vnode

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

const (
	nodesPath = "/api/v1/nodes"
	podsPath  = "/api/v1/pods"
	leasePath = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

	// workers is how many nodes are worked on at the same time.
	workers = 4
	// retryFirst and retryMax bound the pause before a node is tried again with which
	// something failed.
	retryFirst = 50 * time.Millisecond
	retryMax   = 30 * time.Second
	// gather is how long changes of pods are collected until their node is looked at.
	gather = 100 * time.Millisecond
	// maxExcluded bounds the nodes whose pods the API server is asked to leave out.
	maxExcluded = 64
)

// pod is as much of a pod as matters here.
type pod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
}

// DeepCopyObject implements runtime.Object.
func (p *pod) DeepCopyObject() runtime.Object {
	out := *p
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// mirrorAnnotation marks the pods that stand for files of a kubelet.
const mirrorAnnotation = corev1.MirrorPodAnnotationKey

// stays reports whether a pod is none that could go elsewhere: it belongs to the
// node, and others like it come as long as there is the node.
func (p *pod) stays() bool {
	if _, mirror := p.Annotations[mirrorAnnotation]; mirror {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(p)
	return owner != nil && owner.Kind == "DaemonSet"
}

func trimPod(p *pod) {
	stays := p.stays()
	p.ObjectMeta = metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, DeletionTimestamp: p.DeletionTimestamp,
	}
	if stays {
		p.Annotations = map[string]string{mirrorAnnotation: ""}
	}
}

// session is one connection to the API server.
type session struct {
	*Nodes
	client *kube.Client
	nodes  *kube.Cache[*corev1.Node]
	pods   *kube.Cache[*pod]
	queue  *work.Queue[peer.ClusterID]
	beats  chan struct{} // the set of nodes changed; capacity 1
	real   chan struct{} // the set of other nodes changed; capacity 1
	policy *policy
	// unannotated: the agent may not annotate nodes.
	unannotated atomic.Bool

	mu sync.Mutex
	// byNode are the pods that are bound to each node.
	byNode map[string]map[types.UID]*pod
}

func newSession(n *Nodes, client *kube.Client) *session {
	s := &session{
		Nodes: n, client: client,
		beats:  make(chan struct{}, 1),
		real:   make(chan struct{}, 1),
		byNode: make(map[string]map[types.UID]*pod),
	}
	s.nodes = kube.NewCache(kube.Kind[*corev1.Node]{Fresh: func() *corev1.Node { return &corev1.Node{} }, Trim: trimNode, Index: byProvider, Changed: s.nodeChanged})
	s.pods = kube.NewCache(kube.Kind[*pod]{Fresh: func() *pod { return &pod{} }, Trim: trimPod, Changed: s.podChanged})
	s.queue = work.New(work.Config[peer.ClusterID]{Backoff: work.Backoff{First: retryFirst, Max: retryMax}, Observe: s.attempted})
	s.policy = newPolicy(s)
	return s
}

// run works until ctx ends. Every goroutine it starts has ended when it returns.
func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer func() {
		cancel()
		running.Wait()
	}()
	running.Go(func() { s.nodes.Follow(ctx, s.client, kube.Query{Path: nodesPath}) })
	if !await(ctx, s.nodes.Synced()) {
		return nil
	}
	running.Go(func() { s.followPods(ctx) })
	if !await(ctx, s.pods.Synced()) {
		return nil
	}
	// From here on Set reaches the queue. What it missed before is added right after.
	s.Nodes.mu.Lock()
	s.session = s
	s.lookAtAll()
	s.Nodes.mu.Unlock()
	running.Go(func() {
		s.queue.Run(ctx, workers, func(ctx context.Context, id peer.ClusterID) work.Outcome {
			return work.Result(s.reconcile(ctx, id))
		})
	})
	running.Go(func() { s.beat(ctx) })
	running.Go(func() { s.policy.run(ctx) })
	<-ctx.Done()
	return nil
}

func await(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// followPods follows the pods of all nodes but the real ones: on most boxes, those
// of virtual nodes only.
func (s *session) followPods(ctx context.Context) {
	for ctx.Err() == nil {
		fields := s.podFields()
		following, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.pods.Follow(following, s.client, kube.Query{Path: podsPath, Fields: fields})
		}()
		for ctx.Err() == nil && s.podFields() == fields {
			await(ctx, s.real)
		}
		stop()
		<-done
	}
}

// podFields selects the pods that are bound, and not to nodes of others.
func (s *session) podFields() string {
	fields := "spec.nodeName!="
	var others []string
	for _, n := range s.nodes.All() {
		if whose(n) == "" {
			others = append(others, n.Name)
		}
	}
	slices.Sort(others)
	for _, name := range others[:min(len(others), maxExcluded)] {
		fields += ",spec.nodeName!=" + name
	}
	return fields
}

func (s *session) nodeChanged(before, after *corev1.Node) {
	real := func(n *corev1.Node) bool { return n != nil && whose(n) == "" }
	if real(before) != real(after) {
		work.Wake(s.real)
	}
	id := cmp.Or(whose(after), whose(before))
	if id == "" {
		return
	}
	if before == nil || after == nil || before.UID != after.UID {
		work.Wake(s.beats)
		s.policy.wake()
	}
	s.queue.Add(id)
}

func (s *session) podChanged(before, after *pod) {
	s.mu.Lock()
	for _, p := range []*pod{before, after} {
		if p == nil || p.Spec.NodeName == "" {
			continue
		}
		on := s.byNode[p.Spec.NodeName]
		if p == after {
			if on == nil {
				on = make(map[types.UID]*pod)
				s.byNode[p.Spec.NodeName] = on
			}
			on[p.UID] = p
		} else if delete(on, p.UID); len(on) == 0 {
			delete(s.byNode, p.Spec.NodeName)
		}
	}
	s.mu.Unlock()
	if id := whose(s.nodes.Get("", cmp.Or(before, after).Spec.NodeName)); id != "" {
		s.queue.AddAfter(id, gather)
	}
}

// looked reports whether it is known which nodes there are: a session counts once both of its
// caches are complete.
func (s *session) looked() bool { return s != nil }

// look has a node looked at.
func (s *session) look(id peer.ClusterID) {
	if s != nil {
		s.queue.Add(id)
		s.policy.wake()
	}
}

// lookAtAll has every node looked at that there is or is to be. Nodes.mu is held.
func (s *session) lookAtAll() {
	if s == nil {
		return
	}
	for id := range s.records {
		s.queue.Add(id)
	}
	for _, n := range s.nodes.All() {
		if id := whose(n); id != "" {
			s.queue.Add(id)
		}
	}
	work.Wake(s.beats)
	s.policy.wake()
}

// own returns the node of a provider, nil when there is none. Should there be
// several, it is the one with the name that is remembered, or else the first.
func (s *session) own(id peer.ClusterID) *corev1.Node {
	var found *corev1.Node
	for _, n := range s.nodes.By(string(id)) {
		switch {
		case n.Name == s.cfg.Names.NodeName(id):
			return n
		case found == nil || n.Name < found.Name:
			found = n
		}
	}
	return found
}

// bound returns the pods on a node.
func (s *session) bound(node string) []*pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*pod, 0, len(s.byNode[node]))
	for _, p := range s.byNode[node] {
		out = append(out, p)
	}
	return out
}

// patientRetries is how often something is tried again until its trouble is worth
// telling: some seconds.
const patientRetries = 6

// attempted takes in how the reconcile of a node ended.
func (s *session) attempted(id peer.ClusterID, a work.Attempt) {
	s.fail(id, a.Err, a.Failures)
	s.news(id)
}

// fail remembers what went wrong with a node, nil for nothing, and logs it once.
// What just happens when several write at a time is no failure until it lasts.
func (s *session) fail(id peer.ClusterID, err error, failures int) {
	failure := ""
	if err != nil {
		passing := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || errors.Is(err, context.DeadlineExceeded) ||
			apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown
		if passing && failures <= patientRetries {
			return
		}
		failure = text.Sentence(err.Error())
	}
	s.Nodes.mu.Lock()
	r := s.records[id]
	fresh := r != nil && r.failure != failure
	if fresh {
		r.failure = failure
	}
	s.Nodes.mu.Unlock()
	if fresh && err != nil {
		s.cfg.Logger.Warn("the node of a provider cannot be reconciled; trying again", "cluster", id, "error", err)
	}
}

func nodePath(name string) string { return nodesPath + "/" + name }
