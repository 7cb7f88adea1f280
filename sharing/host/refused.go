package host

import (
	"fmt"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

// Reasons of a Refused, besides those of package workload.
const (
	ReasonNotAdmitted       = "NotAdmitted"       // not, or not any more
	ReasonNothingOffered    = "NothingOffered"    // admitted, but there is no offer yet
	ReasonNotReady          = "NotReady"          // we do not know enough yet; try again
	ReasonTerminating       = "Terminating"       // the namespace is being deleted; try again
	ReasonBadName           = "BadName"           // no name that Kubernetes would take, or a reserved one
	ReasonNotYours          = "NotYours"          // no namespace of this consumer
	ReasonTooManyNamespaces = "TooManyNamespaces" // more than Settings.MaxNamespaces
	ReasonOfferUsedUp       = "OfferUsedUp"       // what is left of the offer is too little
	ReasonNotOffered        = "NotOffered"        // a resource that is not part of the offer
	ReasonTooManyPods       = "TooManyPods"       // too many objects, most of which have ended
	ReasonTooManyObjects    = "TooManyObjects"    // too many or too large ConfigMaps, Secrets, Services or EndpointSlices
	ReasonNoServices        = "NoServices"        // the agent may not read Services here
	ReasonNoStorage         = "NoStorage"         // no claims here: none offered, or no class for them
	ReasonNoExpansion       = "NoExpansion"       // the class of a claim cannot expand it
)

// When to try again.
const (
	retryNotReady    = 2 * time.Second
	retryTerminating = 2 * time.Second
	retryUsedUp      = 10 * time.Second
)

// Refused is why a consumer may not do something. All errors that a Host returns to
// the gateway are of this type, unless the caller gave up or the API server failed.
type Refused struct {
	Reason  string // one word for programs
	Message string // a sentence for people
	// Retry is when it makes sense to try again, 0 if not by itself.
	Retry time.Duration
}

func (r *Refused) Error() string { return r.Message }

func refuse(reason, format string, args ...any) *Refused {
	return &Refused{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func refusedBy(r *workload.Refusal) *Refused {
	return &Refused{Reason: r.Reason, Message: r.Message}
}

// after says when to try again.
func (r *Refused) after(d time.Duration) *Refused {
	r.Retry = d
	return r
}

func unknown(id peer.ClusterID) *Refused {
	return refuse(ReasonNotReady, "this cluster does not know yet whether %s may run pods; try again later", id).after(retryNotReady)
}

func nothingOffered(id peer.ClusterID) *Refused {
	return refuse(ReasonNothingOffered, "this cluster offers %s nothing yet; try again later", id).after(retryUsedUp)
}

func terminating(namespace string) *Refused {
	return refuse(ReasonTerminating, "namespace %s is being deleted; try again when it is gone", namespace).after(retryTerminating)
}
