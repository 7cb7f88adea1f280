package host

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"liqo.io/agent/peer"
)

// Settings are those of [sharing] that matter to guests.
type Settings struct {
	// Prefix is what the names of guest namespaces begin with. Those that exist keep
	// theirs.
	Prefix string
	// PodSecurity is the Pod Security Standard that guest namespaces enforce, baseline
	// or restricted.
	PodSecurity string
	// Enforce says what is held to the offer: "requests", or "limits" for limits of
	// cpu and memory as well, which every container then has to have.
	Enforce string
	// MaxNamespaces is how many namespaces one consumer may have.
	MaxNamespaces int
}

// Config is what a Host needs. All but Now is required.
type Config struct {
	// Settings returns the current settings. It must be quick and safe for concurrent
	// use.
	Settings func() Settings
	// User returns the name under which a consumer's requests reach the API server.
	User func(peer.ClusterID) string
	// Changed is called when what Set returns for a consumer is another, and when
	// somebody was found to have something here. It is called without a lock, must be
	// quick, and may call Set.
	Changed func(peer.ClusterID)
	Logger  *slog.Logger
	// Now is the clock, time.Now if nil.
	Now func() time.Time
}

// Tenancy is how a consumer's use of this cluster is to stand.
type Tenancy struct {
	ID   peer.ClusterID
	Name string // of the cluster, for people; may be empty
	// Admitted: it may run pods, up to Offer. Else all it has here is to go.
	Admitted bool
	// Offer is what it was offered, as Kubernetes quantities by resource; nil while
	// that is nothing yet: what it has stays as it is then, and nothing is added.
	Offer map[string]string
	// Arch is the architecture that the offer is of, which pods are held to; "" for
	// any.
	Arch string
}

// Tenant is how a consumer's use of this cluster stands.
type Tenant struct {
	// Busy: some of its namespaces are still there, or it is not known yet whether
	// there are any.
	Busy       bool
	Namespaces int
	// Pods counts those that have not ended.
	Pods int
	// Used is what these ask for, as Kubernetes quantities by resource; with "pods".
	Used map[string]string
}

// Reasons of a Refused, besides those of package workload.
const (
	ReasonNotAdmitted       = "NotAdmitted"       // not, or not any more
	ReasonNothingOffered    = "NothingOffered"    // admitted, but there is no offer yet
	ReasonNotReady          = "NotReady"          // we do not know enough yet; try again
	ReasonTerminating       = "Terminating"       // the namespace is being deleted; try again
	ReasonBadName           = "BadName"           // no name that Kubernetes would take
	ReasonNotYours          = "NotYours"          // no namespace of this consumer
	ReasonTooManyNamespaces = "TooManyNamespaces" // more than Settings.MaxNamespaces
	ReasonOfferUsedUp       = "OfferUsedUp"       // what is left of the offer is too little
	ReasonNotOffered        = "NotOffered"        // a resource that is not part of the offer
	ReasonLimitsMissing     = "LimitsMissing"     // a container without limits, which Settings.Enforce asks for
	ReasonTooManyPods       = "TooManyPods"       // too many objects, most of which have ended
	ReasonTooManyObjects    = "TooManyObjects"    // too many or too large ConfigMaps and Secrets
)

// Refused is why a consumer may not do something. All errors that a Host returns to
// the gateway are of this type, unless ctx ended or the API server failed.
type Refused struct {
	Reason  string // one word for programs
	Message string // a sentence for people
	// Retry is when it makes sense to try again, 0 if not by itself.
	Retry time.Duration
}

func (r *Refused) Error() string { return r.Message }

// refuse returns a Refused.
func refuse(reason, format string, args ...any) *Refused {
	return &Refused{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// after says when to try again.
func (r *Refused) after(d time.Duration) *Refused {
	r.Retry = d
	return r
}

// Host keeps what consumers have in this cluster. Its methods may be called from any
// goroutine.
type Host struct {
	cfg Config

	mu sync.Mutex
}

// New returns a Host. It starts nothing.
func New(cfg Config) *Host {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Host{cfg: cfg}
}

// Run keeps guest namespaces as they are to be until ctx ends, and then returns nil.
// It is to run while there is a connection to the local API server, once at a time,
// and may be called again after it returned. An error means that there is no client
// for local.
func (h *Host) Run(ctx context.Context, local *rest.Config) error {
	<-ctx.Done()
	return nil
}

// Set tells how a consumer's use of this cluster is to stand, and returns how it
// stands. It is to be called again and again with what is so then; it is quick, the
// work happens in Run. Without a connection the answer is the last that was known.
func (h *Host) Set(t Tenancy) Tenant { return Tenant{Busy: true} }

// Tenants returns everyone who has a namespace here, from what the API server said
// last, in order. Nobody is known before the first connection.
func (h *Host) Tenants() []peer.ClusterID { return nil }

// Namespace returns the guest namespace that stands for the namespace origin of a
// consumer, after it was made if needed. It returns when pods can be created there,
// at most after some seconds.
func (h *Host) Namespace(ctx context.Context, id peer.ClusterID, origin string) (string, error) {
	return "", refuse(ReasonNotReady, "not yet")
}

// Release gives back the guest namespace that stands for origin, with everything in
// it. That there is none is no error; that it is gone when Release returns is not
// promised.
func (h *Host) Release(ctx context.Context, id peer.ClusterID, origin string) error { return nil }

// Owns is whether a namespace is one of an admitted consumer's. It may be being
// deleted.
func (h *Host) Owns(id peer.ClusterID, namespace string) bool { return false }

// Pod takes what a consumer wants to create in one of its namespaces, and returns
// what may be created. Room in the offer is reserved for it until it is seen, for 30 s
// at most. done must be called once, with what the API server answered: nil when it
// certainly did not create the pod, the pod when it did, and anything else when that
// is not known.
func (h *Host) Pod(ctx context.Context, id peer.ClusterID, namespace string, body []byte) (clean []byte, done func(created []byte), err error) {
	return nil, nil, refuse(ReasonNotReady, "not yet")
}

// PodPatch takes a consumer's patch of one of its pods, and returns the patch that
// may be sent, with its media type.
func (h *Host) PodPatch(id peer.ClusterID, namespace, name string, body []byte) (clean []byte, contentType string, err error) {
	return nil, "", refuse(ReasonNotReady, "not yet")
}

// Object takes a ConfigMap or Secret, by the plural name of its resource, that a
// consumer wants to apply in one of its namespaces, and returns what may be applied.
func (h *Host) Object(id peer.ClusterID, namespace, resource, name string, body []byte) (clean []byte, err error) {
	return nil, refuse(ReasonNotReady, "not yet")
}
