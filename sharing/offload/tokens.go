package offload

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/sharing/workload"
)

// Service account tokens of pods at the provider. Where the local namespace says so, this cluster's
// API server is asked for the tokens that a pod mounts, each bound to that pod, and they are in a
// Secret beside the copy, which mounts them in their place. When they are to be renewed follows from
// themselves: an agent that starts reads the Secret. A Secret that somebody changed at the provider
// is not read, but made anew.

// Tokens are renewed after a random part of their lifetime in this range: late enough to write
// seldom, and early enough that the provider's kubelet has the new one in time, which takes it up
// to two minutes. The shortest lifetime is ten.
const renewFrom, renewTo = 0.65, 0.75

// maxSaid bounds of how many owners of pods it is known that an event said something about tokens.
const maxSaid = 1000

// maxStrays bounds how many Secrets of pods that do not exist are deleted in one look.
const maxStrays = 100

// tokenCounts count what the local API server answered.
type tokenCounts struct{ issued, refused atomic.Uint64 }

// mayHaveTokens reports whether a namespace wants its pods to have tokens at providers.
func mayHaveTokens(ns *metadata) bool {
	return ns != nil && ns.Labels[workload.LabelEnabled] == "true" && ns.Labels[workload.LabelTokens] == "true"
}

// tokensOf returns "" if pods of a local namespace have tokens with them, otherwise why not and what
// to do, as the end of a sentence.
func (pc *controller) tokensOf(namespace string) string {
	if why := pc.s.o.cfg.Tokens(namespace); why != "" {
		return why
	}
	if mayHaveTokens(pc.s.namespaces.Get("", namespace)) {
		return ""
	}
	return "the provider would see it: to let it, label the namespace " + workload.LabelTokens + "=true, and replace the pod"
}

// tokensChanged takes in that pods of a local namespace may have tokens, or may not any more.
func (pc *controller) tokensChanged(namespace string) {
	for _, k := range pc.index.in(namespace) {
		if pod := pc.pods.Get(k.namespace, k.name); pod != nil {
			pc.index.reconsider(pod)
		}
		pc.queue.Add(k)
	}
}

// TokensChanged says that what Config.Tokens returns may have changed.
func (o *Offload) TokensChanged() {
	for _, pc := range o.controllers() {
		for _, namespace := range pc.index.namespaces() {
			pc.tokensChanged(namespace)
		}
	}
}

// enqueueTokens has the tokens of a pod reconciled, if it has some, or is to have.
func (pc *controller) enqueueTokens(k key, v view, rn *remoteNamespace) {
	if rn == nil {
		return
	}
	ref := key{aToken, k.namespace, k.name}
	rn.mu.Lock()
	sent := rn.copies[ref] != nil
	rn.mu.Unlock()
	if c := v.copy(); sent || c != nil && workload.MountsTokens(c) {
		pc.queue.Add(ref)
	}
}

// resendTokens has the tokens of a pod sent again, if it has some.
func (pc *controller) resendTokens(k key, rn *remoteNamespace) {
	ref := key{aToken, k.namespace, k.name}
	c := rn.hold(ref)
	c.version = ""
	there := c.there
	rn.letGo(ref, c)
	if there {
		pc.queue.Add(ref)
	}
}

// sendTokens gives a pod its tokens before it is created at the provider. It returns why it cannot
// have them.
func (pc *controller) sendTokens(ctx context.Context, rn *remoteNamespace, v view) (*workload.Refusal, error) {
	if !v.origin.Tokens || !workload.WantsTokens(&v.local.Spec) {
		return nil, nil
	}
	ref := key{aToken, v.local.Namespace, v.local.Name}
	c := rn.hold(ref)
	defer rn.letGo(ref, c)
	if c.version == string(v.local.UID) && pc.s.o.cfg.Now().Before(c.due) {
		return nil, nil
	}
	return pc.renewTokens(ctx, rn, c, v.local)
}

// reconcileTokens renews the tokens of a pod in time, and takes them back when it has ended or may
// have them no more.
func (pc *controller) reconcileTokens(ctx context.Context, k key) (again time.Duration, err error) {
	p, rn := pc.provider.Load(), pc.remoteNamespace(k.namespace)
	if p.Gone || !p.Reachable || rn == nil || !rn.known() {
		return 0, nil // enqueued again with the pod
	}
	if rest := pc.holds(); rest > 0 {
		return rest, nil
	}
	local, remote := pc.pods.Get(k.namespace, k.name), rn.pod(k.name)
	c := rn.hold(k)
	defer rn.letGo(k, c)
	var mounts, waits bool
	if local != nil && !terminal(local) && pc.tokensOf(k.namespace) == "" {
		mounts = remote != nil && workload.IsCopy(local, remote) && workload.MountsTokens(remote)
		waits = !mounts && local.DeletionTimestamp == nil && c.version == string(local.UID) // its copy is about to be created
	}
	if !mounts && !waits {
		return 0, pc.takeBack(ctx, rn, k, c)
	}
	if c.version != string(local.UID) && !c.there {
		if err := pc.adoptTokens(ctx, rn, c, local); err != nil {
			return 0, err
		}
	}
	now := pc.s.o.cfg.Now()
	if rest := c.due.Sub(now); c.version == string(local.UID) && rest > 0 {
		return rest, nil
	}
	why, err := pc.renewTokens(ctx, rn, c, local)
	if err == nil && why != nil {
		pc.warn(ctx, podKey(local), local, why)
		err = why // tried again, with a backoff
	}
	if err != nil {
		return 0, err
	}
	return c.due.Sub(now), nil
}

// takeBack deletes the Secret of a pod. c is held.
func (pc *controller) takeBack(ctx context.Context, rn *remoteNamespace, k key, c *copied) error {
	if !c.there {
		return nil
	}
	return pc.uncopy(ctx, rn, key{aSecret, k.namespace, c.secret}, c)
}

// adoptTokens takes over the Secret that an earlier process made for a pod, if it is complete. c is
// held.
func (pc *controller) adoptTokens(ctx context.Context, rn *remoteNamespace, c *copied, pod *corev1.Pod) error {
	var found struct {
		answered
		Data map[string][]byte `json:"data"`
	}
	name := workload.TokenSecret(pod.UID)
	err := rn.client.Get(ctx, key{kind: aSecret, name: name}.path(rn.name), &found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c.there, c.secret = true, name
	if ends, ok := workload.TokenEnds(pod, found.Data); ok {
		c.version, c.revision, c.due = string(pod.UID), found.revision(), pc.due(pod, ends)
	}
	return nil
}

// due returns when tokens of a pod are to be renewed of which the first ends then: after a part of
// the lifetime that is left, which is not longer than asked for whatever the provider says, and that
// of the CA alone after the longest. It is a time of the clock alone, without a monotonic reading: tokens end by the clock,
// which may be set meanwhile.
func (pc *controller) due(pod *corev1.Pod, ends time.Time) time.Time {
	now, longest := pc.s.o.cfg.Now(), workload.LongestToken
	for _, t := range workload.Tokens(&pod.Spec) {
		longest = min(longest, time.Duration(t.Seconds)*time.Second)
	}
	left := longest
	if !ends.IsZero() {
		left = min(left, ends.Sub(now))
	}
	return now.Add(time.Duration(float64(left) * (renewFrom + rand.Float64()*(renewTo-renewFrom)))).Round(0)
}

// renewTokens asks for the tokens of a pod, and sends them. It returns why the pod cannot have them.
// c is held.
func (pc *controller) renewTokens(ctx context.Context, rn *remoteNamespace, c *copied, pod *corev1.Pod) (*workload.Refusal, error) {
	name := workload.TokenSecret(pod.UID)
	if c.there && c.secret != name { // of an earlier pod of that name
		if err := pc.uncopy(ctx, rn, key{aSecret, pod.Namespace, c.secret}, c); err != nil {
			return nil, err
		}
	}
	ca := &corev1.ConfigMap{}
	if err := pc.s.local.Get(ctx, key{kind: aConfigMap, name: workload.RootCA}.path(pod.Namespace), ca); err != nil {
		return nil, err
	}
	var tokens []string
	var first time.Time
	for _, t := range workload.Tokens(&pod.Spec) {
		token, ends, err := pc.requestToken(ctx, pod, t)
		if refusal(err) || apierrors.IsNotFound(err) {
			pc.s.o.tokens.refused.Add(1)
			return noToken(pod, err), nil
		}
		if err != nil {
			return nil, err
		}
		pc.s.o.tokens.issued.Add(1)
		tokens = append(tokens, token)
		if first.IsZero() || ends.Before(first) {
			first = ends
		}
	}
	body, why := workload.TokenBody(pod, workload.Origin{Cluster: pc.s.o.cfg.Self(), Namespace: rn.name, Node: pc.node}, ca.Data["ca.crt"], tokens)
	if why != nil {
		return why, nil
	}
	c.there, c.secret, c.version = true, name, ""
	made, err := rn.apply(ctx, key{kind: aSecret, name: name}.path(rn.name), body, nil)
	switch {
	case err == nil:
		c.version, c.revision, c.due, c.written = string(pod.UID), made.revision(), pc.due(pod, first), rn.writes.Add(1)
	case refusal(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &workload.Refusal{Reason: workload.ReasonRefusedByProvider, Message: "The provider does not take the service account tokens of the pod: " + words(err)}, nil
	}
	return nil, err
}

// noToken says what to do if the API server gives no token.
func noToken(pod *corev1.Pod, err error) *workload.Refusal {
	return &workload.Refusal{Reason: workload.ReasonNoToken, Message: fmt.Sprintf("The API server of this cluster gives no token of the service account %s for the pod: %s. If the agent may not ask for it, run liqo-agent rbac --apply again.",
		account(pod), strings.TrimSuffix(words(err), "."))}
}

func account(pod *corev1.Pod) string {
	if name := pod.Spec.ServiceAccountName; name != "" {
		return name
	}
	return "default"
}

// tokenRequest is a TokenRequest of authentication.k8s.io/v1, as it is sent and answered.
type tokenRequest struct {
	metav1.TypeMeta `json:",inline"`
	Spec            struct {
		Audiences         []string `json:"audiences,omitempty"`
		ExpirationSeconds int64    `json:"expirationSeconds,omitempty"`
		BoundObjectRef    struct {
			Kind       string    `json:"kind"`
			APIVersion string    `json:"apiVersion"`
			Name       string    `json:"name"`
			UID        types.UID `json:"uid"`
		} `json:"boundObjectRef"`
	} `json:"spec"`
	Status *struct {
		Token               string      `json:"token"`
		ExpirationTimestamp metav1.Time `json:"expirationTimestamp"`
	} `json:"status,omitempty"`
}

// requestToken asks the local API server for a token of a pod's service account, bound to the pod:
// it is of no use when the pod is gone.
func (pc *controller) requestToken(ctx context.Context, pod *corev1.Pod, t workload.Token) (token string, ends time.Time, err error) {
	request := tokenRequest{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}}
	if t.Audience != "" {
		request.Spec.Audiences = []string{t.Audience}
	}
	request.Spec.ExpirationSeconds = t.Seconds
	bound := &request.Spec.BoundObjectRef
	bound.Kind, bound.APIVersion, bound.Name, bound.UID = "Pod", "v1", pod.Name, pod.UID
	var answer tokenRequest
	path := "/api/v1/namespaces/" + pod.Namespace + "/serviceaccounts/" + account(pod) + "/token"
	if err := pc.s.local.Create(ctx, path, request, &answer); err != nil {
		return "", time.Time{}, err
	}
	if answer.Status == nil || answer.Status.Token == "" {
		return "", time.Time{}, fmt.Errorf("POST %s: the answer has no token", path)
	}
	return answer.Status.Token, answer.Status.ExpirationTimestamp.Time, nil
}

// sweepTokens looks at the Secrets in a remote namespace that are of pods' tokens, and returns the
// others. What somebody changed or deleted is sent again, and what is of no pod any more goes. The
// Secrets were listed when rn.writes was since.
func (pc *controller) sweepTokens(ctx context.Context, rn *remoteNamespace, secrets []*workload.ObjectCopy, since uint64) (others []*workload.ObjectCopy, err error) {
	revisions := make(map[string]string)
	for _, o := range secrets {
		if workload.IsTokenSecret(o) {
			revisions[o.Name] = o.ResourceVersion
		} else {
			others = append(others, o)
		}
	}
	for _, k := range pc.index.in(rn.origin) {
		pod := pc.pods.Get(k.namespace, k.name)
		if pod == nil || !workload.WantsTokens(&pod.Spec) {
			continue
		}
		ref, name := key{aToken, k.namespace, k.name}, workload.TokenSecret(pod.UID)
		c := rn.hold(ref)
		if c.version == string(pod.UID) && c.written <= since && c.revision != revisions[name] {
			c.version = ""
		}
		if _, there := revisions[name]; there && (pc.tokensOf(k.namespace) != "" || terminal(pod)) {
			c.there, c.secret = true, name // of an earlier run
		}
		rn.letGo(ref, c)
		delete(revisions, name)
		pc.queue.Add(ref)
	}
	for i, name := range slices.Sorted(maps.Keys(revisions)) {
		if i == maxStrays {
			break // the next time
		}
		if err := rn.client.Delete(ctx, key{kind: aSecret, name: name}.path(rn.name), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return others, nil
}

// sayTokens says in an event that a pod which was created at the provider has no token, or cannot
// use it, and what to do: once for all pods of an owner.
func (pc *controller) sayTokens(ctx context.Context, v view) {
	var why *workload.Refusal
	switch {
	case !v.origin.Tokens && workload.LacksToken(&v.local.Spec):
		why = &workload.Refusal{Reason: workload.ReasonNoToken, Message: "The pod runs without its service account token, because " + pc.tokensOf(v.local.Namespace) + "."}
	case v.origin.Tokens && v.origin.Network == nil && workload.WantsTokens(&v.local.Spec):
		why = &workload.Refusal{Reason: workload.ReasonNoAPIServer, Message: "The pod has its service account token, but reaches the API server of this cluster only when the networks of the clusters are connected: see liqo-agent network list."}
	default:
		return
	}
	owner := v.local.UID
	if c := metav1.GetControllerOf(v.local); c != nil {
		owner = c.UID
	}
	pc.mu.Lock()
	said := pc.tokens[owner]
	if len(pc.tokens) >= maxSaid {
		clear(pc.tokens)
	}
	pc.tokens[owner] = true
	pc.mu.Unlock()
	if !said {
		pc.say(ctx, corev1.EventTypeNormal, "Pod", &v.local.ObjectMeta, why.Reason, why)
	}
}
