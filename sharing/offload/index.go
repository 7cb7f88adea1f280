package offload

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/sharing/workload"
)

// kind is the kind of what a key names.
type kind string

const (
	aPod       kind = "pod"
	aNamespace kind = "namespace" // name is empty
	aSweep     kind = "sweep"     // what is copied for pods, also by earlier runs, in a remote namespace; name is empty
	strays     kind = "strays"    // remote pods of a namespace without a local pod; name is empty
	aConfigMap kind = "configmaps"
	aSecret    kind = "secrets"
	aService   kind = "services"
	aSlice     kind = "endpointslices" // reconciled with its Service
	anEvent    kind = "event"          // name is the provider's, namespace ours
	aToken     kind = "tokens"         // those of a pod, and their Secret at the provider
)

// key names something to reconcile, by local names.
type key struct {
	kind            kind
	namespace, name string
}

// index finds the pods of a node by namespace, and by the ConfigMaps and Secrets that they
// reference. It is updated with each event of the cache of pods, and safe for concurrent use.
type index struct {
	sendable func(*corev1.Pod) bool // whether a pod can be sent to a provider

	mu    sync.Mutex
	pods  map[string]map[key]bool // by namespace; true: sendable, or sent already
	users map[key]map[key]bool    // by ConfigMap or Secret
}

func newIndex(sendable func(*corev1.Pod) bool) *index {
	return &index{sendable: sendable, pods: make(map[string]map[key]bool), users: make(map[key]map[key]bool)}
}

// references returns the ConfigMaps and Secrets that a pod references; true: optional.
func references(pod *corev1.Pod) map[key]bool {
	out := make(map[key]bool)
	configMaps, secrets := workload.References(pod)
	for _, r := range configMaps {
		out[key{aConfigMap, pod.Namespace, r.Name}] = r.Optional
	}
	for _, r := range secrets {
		out[key{aSecret, pod.Namespace, r.Name}] = r.Optional
	}
	return out
}

func podKey(pod *corev1.Pod) key { return key{aPod, pod.Namespace, pod.Name} }

// change takes in a change of a pod, and returns what is no longer referenced.
func (x *index) change(before, after *corev1.Pod) (unused []key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	sendable := false
	if before != nil {
		k := podKey(before)
		sendable = x.pods[k.namespace][k]
		drop(x.pods, k.namespace, k)
		for ref := range references(before) {
			drop(x.users, ref, k)
			unused = append(unused, ref)
		}
	}
	if after != nil {
		k := podKey(after)
		if before == nil || before.UID != after.UID {
			sendable = x.sendable(after)
		}
		put(x.pods, k.namespace, k, sendable || ran(&after.Status))
		for ref := range references(after) {
			put(x.users, ref, k, true)
		}
	}
	left := unused[:0]
	for _, ref := range unused {
		if len(x.users[ref]) == 0 {
			left = append(left, ref)
		}
	}
	return left
}

// reconsider asks again whether a pod can be sent.
func (x *index) reconsider(pod *corev1.Pod) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := podKey(pod)
	if _, there := x.pods[k.namespace][k]; there {
		x.pods[k.namespace][k] = x.sendable(pod) || ran(&pod.Status)
	}
}

func put[K comparable](in map[K]map[key]bool, where K, k key, value bool) {
	if in[where] == nil {
		in[where] = make(map[key]bool)
	}
	in[where][k] = value
}

func drop[K comparable](in map[K]map[key]bool, where K, k key) {
	delete(in[where], k)
	if len(in[where]) == 0 {
		delete(in, where)
	}
}

// needs reports whether a namespace has pods for the provider. Pods of DaemonSets, which
// are on every node, do not count.
func (x *index) needs(namespace string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, sendable := range x.pods[namespace] {
		if sendable {
			return true
		}
	}
	return false
}

// in returns the pods of a namespace; "" for all.
func (x *index) in(namespace string) []key {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []key
	for ns, pods := range x.pods {
		if namespace == "" || ns == namespace {
			for k := range pods {
				out = append(out, k)
			}
		}
	}
	return out
}

// namespaces returns the namespaces with pods.
func (x *index) namespaces() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []string
	for ns := range x.pods {
		out = append(out, ns)
	}
	return out
}

// using returns the pods that reference a ConfigMap or Secret.
func (x *index) using(ref key) []key {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []key
	for k := range x.users[ref] {
		out = append(out, k)
	}
	return out
}
