package volumes

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

// Remote connects to one provider. Requests to its API server have the paths of an API server,
// and any host. Many goroutines use it.
type Remote interface {
	http.RoundTripper
	// Namespace returns the provider's namespace for a local one. The provider creates it if
	// necessary.
	Namespace(ctx context.Context, origin string) (string, error)
}

// Provider is a cluster that may keep data of this one.
type Provider struct {
	ID peer.ClusterID
	// Remote connects to it. It is a pointer, compared with ==.
	Remote Remote
	// Storage is what it offers, in bytes; 0: nothing more is placed there.
	Storage int64
	// Reachable: it answers, and has not been given up.
	Reachable bool
}

// Config is what Volumes work with. All but Now is required.
type Config struct {
	// Self returns this cluster's ID.
	Self func() peer.ClusterID
	// Class returns the name of the storage class.
	Class func() string
	// HomeClass returns the name of the class that claims in this cluster have behind them, "" for
	// the default one.
	HomeClass func() string
	// Changed is called when pods of a local namespace may mount other claims than before. It
	// must not block.
	Changed func(namespace string)
	// Used is called when the result of InUse may have changed. It must not block.
	Used   func()
	Logger *slog.Logger
	Now    func() time.Time // time.Now if nil
}

// Volumes provisions claims. Its methods may be called from any goroutine.
type Volumes struct {
	cfg Config

	mu        sync.Mutex
	providers map[peer.ClusterID]Provider
	settled   bool
	ready     chan struct{} // closed with the first session
	// session is the last one of which all caches were filled, nil before the first. What it
	// knows stays known after it ended.
	session *session
}

// New returns Volumes that do nothing before Run.
func New(cfg Config) *Volumes {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Volumes{cfg: cfg, providers: make(map[peer.ClusterID]Provider), ready: make(chan struct{})}
}

// Run provisions until ctx ends. It returns an error if there is no client for local. It may be
// called again after it returned.
func (v *Volumes) Run(ctx context.Context, local *rest.Config) error {
	client, err := kube.New(local)
	if err != nil {
		return err
	}
	defer client.Close()
	newSession(v, client).run(ctx)
	return nil
}

// Set sets the state of a provider. It may be called repeatedly; only changes have an effect.
func (v *Volumes) Set(p Provider) {
	v.mu.Lock()
	before, there := v.providers[p.ID]
	v.providers[p.ID] = p
	s := v.session
	v.mu.Unlock()
	if there && before == p {
		return
	}
	if s != nil {
		s.enqueueAll(p.ID)
	}
	if !there || (before.Storage > 0) != (p.Storage > 0) {
		v.cfg.Used()
	}
}

// Remove forgets a provider. Claims and volumes of its stay as they are.
func (v *Volumes) Remove(id peer.ClusterID) {
	v.mu.Lock()
	_, there := v.providers[id]
	delete(v.providers, id)
	s := v.session
	v.mu.Unlock()
	if there && s != nil {
		s.touch() // claims may have waited for it
	}
	if there {
		v.cfg.Used()
	}
}

// Touch takes changed settings into use.
func (v *Volumes) Touch() {
	if s := v.known(); s != nil {
		s.touch()
	}
}

// Settled says that all providers were set. Until then the storage class stays, and claims wait for
// providers that were not.
func (v *Volumes) Settled() {
	v.mu.Lock()
	v.settled = true
	s := v.session
	v.mu.Unlock()
	if s != nil {
		s.touch()
	}
	v.cfg.Used()
}

// attach makes a session of which all caches were filled the one that counts.
func (v *Volumes) attach(s *session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.session == nil {
		close(v.ready)
	}
	v.session = s
}

// provider returns a provider; false if it is not known.
func (v *Volumes) provider(id peer.ClusterID) (Provider, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p, there := v.providers[id]
	return p, there
}

// offers reports whether some provider offers storage.
func (v *Volumes) offers() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.providers {
		if p.Storage > 0 {
			return true
		}
	}
	return false
}

// InUse reports whether pods with claims may run on virtual nodes, because somebody offers storage or
// keeps some, and whether that is known: that nobody does is so once all were heard.
func (v *Volumes) InUse() (used, known bool) {
	if v.offers() {
		return true, true
	}
	s := v.known()
	if s == nil {
		return false, false
	}
	used = s.volumes.Len()+s.claims.Len() > 0
	return used, used || v.complete()
}

// complete reports whether all providers were set.
func (v *Volumes) complete() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.settled
}

// known returns the last session of which all caches were filled, nil before the first.
func (v *Volumes) known() *session {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.session
}

// Claim returns what a claim of this cluster is called at a provider, or why a pod there cannot
// mount it.
func (v *Volumes) Claim(id peer.ClusterID, namespace, name string) (remote string, why *workload.Refusal) {
	s := v.known()
	if s == nil {
		return "", &workload.Refusal{Reason: workload.ReasonMissingReference, Message: "The claims of this cluster are not known yet: wait."}
	}
	claim := s.claims.Get(namespace, name)
	if claim == nil {
		return "", &workload.Refusal{Reason: workload.ReasonNotOffloadable, Message: "The pod mounts the persistentVolumeClaim " + name + ", which does not exist or is not of the storage class " + v.cfg.Class() +
			": only data of claims of this class can be at a provider. Make such a claim, or keep the pod on nodes of its own cluster, with a node affinity for " + workload.LabelType + " NotIn " + workload.VirtualNode + "."}
	}
	volume := s.volumes.Get("", claim.Spec.VolumeName)
	switch {
	case claim.Spec.VolumeName == "":
		return "", &workload.Refusal{Reason: workload.ReasonMissingReference, Message: "The persistentVolumeClaim " + name + " has no volume yet. It gets one if the scheduler, and not nodeName, places the pod."}
	case volume == nil || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID || providerOf(volume) != id:
		return "", &workload.Refusal{Reason: workload.ReasonNotOffloadable, Message: "The data of the persistentVolumeClaim " + name + " is not at this provider: let the scheduler place the pod, which knows where it is."}
	}
	return volume.Annotations[annotationRemoteClaim], nil
}

// Look has it looked soon whether claims have volumes at their providers by now, of which those said that they had none. Pods
// that mount them get on only then.
func (v *Volumes) Look(namespace string, claims []string) {
	s := v.known()
	if s == nil {
		return
	}
	for _, name := range claims {
		claim := s.claims.Get(namespace, name)
		if claim == nil {
			continue
		}
		volume := s.volumes.Get("", claim.Spec.VolumeName)
		if volume == nil {
			continue
		}
		s.mu.Lock()
		st, pending := s.states[volume.UID]
		if pending = pending && st.phase == corev1.ClaimPending; pending {
			st.at = time.Time{}
			st.wanted++
			s.states[volume.UID] = st
		}
		s.mu.Unlock()
		if pending {
			s.queue.Add(key{kind: aVolume, name: volume.Name})
		}
	}
}

// Holds reports whether a provider has, or may have, data of a local namespace.
func (v *Volumes) Holds(id peer.ClusterID, namespace string) bool {
	s := v.known()
	if s == nil {
		return true
	}
	return slices.ContainsFunc(s.volumes.All(), func(v *corev1.PersistentVolume) bool {
		return providerOf(v) == id && v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == namespace
	}) || slices.ContainsFunc(s.claims.All(), func(c *corev1.PersistentVolumeClaim) bool {
		return c.Namespace == namespace && c.Annotations[annotationProvider] == string(id)
	})
}

// Ours reports whether claims exist, are of the storage class, and not in this cluster. It asks the
// API server, because pods come right after their claims, and waits for the first connection to it: a pod that
// is kept from virtual nodes when it is made is so for good.
func (v *Volumes) Ours(ctx context.Context, namespace string, names []string) bool {
	select {
	case <-v.ready:
	case <-ctx.Done():
		return false
	}
	s := v.known()
	for _, name := range names {
		claim := &corev1.PersistentVolumeClaim{}
		if err := s.client.Get(ctx, claimPath(namespace, name), claim); err != nil || !s.ofClass(claim) || atHome(claim) {
			return false
		}
	}
	return true
}

// atHome reports whether the volume of a claim of the class is in this cluster.
func atHome(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName != "" && claim.Spec.VolumeName != volumeName(claim.UID)
}

// Volume is data of a claim of the storage class.
type Volume struct {
	Provider        peer.ClusterID // "" for this cluster
	Namespace, Name string         // of the claim
	Storage         int64          // in bytes
	Since           time.Time
	// State is what is known of it, one of the States.
	State State
	// Message says more about the state, in a sentence, or is empty.
	Message string
}

// State is the state of a Volume.
type State string

// The states of a Volume.
const (
	StatePending  State = "Pending"  // the claim has no volume yet
	StateBound    State = "Bound"    // the provider has it
	StateHome     State = "Home"     // it is in this cluster
	StateUnknown  State = "Unknown"  // the provider does not answer
	StateParted   State = "Parted"   // there is no peering with the provider
	StateMissing  State = "Missing"  // the provider says that it does not have it
	StateDeleting State = "Deleting" // the claim was deleted, and the provider's copy not yet
	StateReleased State = "Released" // the claim was deleted, and the volume is to stay
)

// List returns the data of claims of the storage class: first that in this cluster, then that at
// providers, by provider, namespace and name. There is none before the first connection.
func (v *Volumes) List() []Volume {
	s := v.known()
	if s == nil {
		return nil
	}
	var out []Volume
	for _, volume := range s.volumes.All() {
		if providerOf(volume) != "" {
			out = append(out, s.describe(volume))
		}
	}
	for _, claim := range s.claims.All() {
		if s.ofOwnClass(claim) && atHome(claim) {
			out = append(out, Volume{
				Namespace: claim.Namespace, Name: claim.Name, Storage: claim.Status.Capacity.Storage().Value(), Since: claim.CreationTimestamp.Time, State: StateHome,
			})
		}
		if id := peer.ClusterID(claim.Annotations[annotationProvider]); id != "" && s.volumes.Get("", volumeName(claim.UID)) == nil {
			out = append(out, Volume{
				Provider: id, Namespace: claim.Namespace, Name: claim.Name, Storage: claim.Spec.Resources.Requests.Storage().Value(),
				Since: claim.CreationTimestamp.Time, State: StatePending,
			})
		}
	}
	slices.SortFunc(out, func(a, b Volume) int {
		return cmp.Or(strings.Compare(string(a.Provider), string(b.Provider)), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}
