package admission

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// The operations that are decided about. Deleting is a matter of RBAC alone: a
// request must be able to go whatever its cluster's standing is.
const (
	OperationCreate = "CREATE"
	OperationUpdate = "UPDATE"

	operationDelete = "DELETE"
)

// Question is what the API server wants to know.
type Question struct {
	Operation string   // OperationCreate or OperationUpdate; DELETE is always allowed
	User      string   // who does it
	Groups    []string // of that user
	Name      string   // of the object; "" while the API server has not made one up
	// Request is the object as it would be stored.
	Request *api.PeeringRequest
	// Old is the object that is stored; nil when it is created.
	Old *api.PeeringRequest
}

// Policy is as much as the decision needs of what is decided about a peer.
type Policy struct {
	// Pinned: a key is trusted to be the peer's.
	Pinned bool
	// Blocked: a person wants nothing to do with it.
	Blocked bool
	// Never: the configuration lets it in under no circumstances (trust.accept is
	// "none", or accept is "never" in its [[peer]] entry). What a person refused
	// is not meant: such a request is stored, where a person can still accept it.
	Never bool
	// Accept is what is going to happen with its request; "" counts as pending.
	Accept api.RequestPhase
	// Message is why, a sentence for people, or "".
	Message string
}

// Cause names why a request was refused. Programs find it in the causes of the
// Status that the API server answers.
type Cause string

// The causes.
const (
	CauseBadReview   Cause = "BadReview"   // the question makes no sense
	CauseBadUser     Cause = "BadUser"     // a peer without a cluster ID
	CauseOtherName   Cause = "OtherName"   // the name is not that of the cluster that asks
	CauseOtherID     Cause = "OtherID"     // the cluster ID in the spec is not the name
	CauseBadSpec     Cause = "BadSpec"     // a peer's field that would be stored as it is not to be
	CauseBadMetadata Cause = "BadMetadata" // a peer's metadata that means something to others
	CauseBlocked     Cause = "Blocked"
	CauseNotTrusted  Cause = "NotTrusted"
	CauseNever       Cause = "AcceptsNobody"
)

// Verdict is the answer to a Question.
type Verdict struct {
	Allowed bool
	// Code, Reason, Message and Cause say why not; Code is an HTTP status, Message
	// a sentence for people.
	Code    int32
	Reason  metav1.StatusReason
	Message string
	Cause   Cause
	// Warnings are shown to whoever does it. They are no longer than what API
	// servers pass on, 256 characters each.
	Warnings []string
}

func forbidden(cause Cause, format string, args ...any) Verdict {
	return Verdict{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Cause: cause, Message: fmt.Sprintf(format, args...)}
}

func badReview(format string, args ...any) Verdict {
	return Verdict{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Cause: CauseBadReview, Message: fmt.Sprintf(format, args...)}
}

// Decide says whether a PeeringRequest may be created or changed like that.
// s must be the standing of the cluster that q.Subject names.
func Decide(q Question, s Policy) Verdict {
	if q.Operation == operationDelete {
		return Verdict{Allowed: true}
	}
	if v, ok := check(q); !ok {
		return v
	}
	peerID, isPeer := q.peer()
	if !isPeer && q.Old != nil && q.Old.Spec == q.Request.Spec {
		// Somebody sees to metadata: labels, or a finalizer that has to come off
		// whatever the cluster's standing is.
		return Verdict{Allowed: true}
	}
	if isPeer {
		if v, ok := checkPeer(q, peerID); !ok {
			return v
		}
	}
	if id := q.Request.ClusterID(); id != q.Name {
		return Verdict{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Cause: CauseOtherID, Message: fmt.Sprintf(
			"a PeeringRequest is named after the cluster that it is from, but %q has the spec.clusterIdentity.clusterID %q", text.Excerpt(q.Name), text.Excerpt(id))}
	}
	return decideByPolicy(q.Name, s)
}

// Subject is the cluster whose standing decides: the one that the object is
// named after. It may be no cluster ID at all.
func (q Question) Subject() peer.ClusterID { return peer.ClusterID(q.Name) }

// peer returns the cluster ID of the peer that asks, and whether it is one. A
// peer that is not named as the gateway does it has the ID "".
func (q Question) peer() (peer.ClusterID, bool) {
	name, named := api.PeerOf(q.User)
	if !named {
		return "", slices.Contains(q.Groups, api.PeerGroup)
	}
	id, err := peer.ParseClusterID(name)
	if err != nil {
		return "", true
	}
	return id, true
}

// check refuses a question that cannot be answered.
func check(q Question) (Verdict, bool) {
	switch {
	case q.Operation != OperationCreate && q.Operation != OperationUpdate:
		return badReview("the webhook for PeeringRequests was asked about the operation %q; it decides about %s and %s only", text.Excerpt(q.Operation), OperationCreate, OperationUpdate), false
	case q.Request == nil:
		return badReview("the webhook was asked about a PeeringRequest without being shown it"), false
	case q.Operation == OperationUpdate && q.Old == nil:
		return badReview("the webhook was asked about a change without being shown what was there before"), false
	case q.Operation == OperationCreate && q.Old != nil:
		return badReview("the webhook was asked about creating a PeeringRequest that is there already"), false
	case q.Name == "" || q.Request.Name != q.Name || q.Old != nil && q.Old.Name != q.Name:
		return badReview("a PeeringRequest needs a name: the ID of the cluster that it is from"), false
	}
	return Verdict{}, true
}

// checkPeer refuses what a peer may not write, whatever its standing.
func checkPeer(q Question, id peer.ClusterID) (Verdict, bool) {
	if id == "" {
		return forbidden(CauseBadUser, "the user %q is in the group %s but is no peer: peers are service accounts named %s followed by their cluster ID", text.Excerpt(q.User), api.PeerGroup, api.PeerAccountPrefix), false
	}
	if q.Name != string(id) {
		return forbidden(CauseOtherName, "cluster %s may write the PeeringRequest that has its ID as name, and not %q", id, text.Excerpt(q.Name)), false
	}
	old := &api.PeeringRequest{}
	if q.Old != nil {
		old = q.Old
	}
	switch {
	case !slices.Equal(q.Request.Finalizers, old.Finalizers):
		return forbidden(CauseBadMetadata, "cluster %s may not set or remove finalizers: only this cluster decides when its objects go", id), false
	// Nothing in an owner reference but its value says whether it is the same one.
	case !slices.EqualFunc(q.Request.OwnerReferences, old.OwnerReferences, func(a, b metav1.OwnerReference) bool { return reflect.DeepEqual(a, b) }):
		return forbidden(CauseBadMetadata, "cluster %s may not set or remove owner references: only this cluster decides when its objects go", id), false
	}
	for _, m := range [][2]map[string]string{{q.Request.Labels, old.Labels}, {q.Request.Annotations, old.Annotations}} {
		if key := changedReserved(m[0], m[1]); key != "" {
			return forbidden(CauseBadMetadata, "cluster %s may not set or remove %q: labels and annotations of Liqo and Kubernetes mean something here", id, text.Excerpt(key)), false
		}
	}
	// Names end up on terminals.
	if name := q.Request.Spec.ClusterIdentity.ClusterName; name != "" {
		if _, err := peer.ParseClusterName(name); err != nil {
			return forbidden(CauseBadSpec, "spec.clusterIdentity.clusterName: %v", err), false
		}
	}
	return Verdict{}, true
}

// reservedDomains are those whose labels and annotations Kubernetes and Liqo act
// upon. Others may be there although the peer did not send them: a cluster's own
// mutating webhooks add some to whatever is created.
var reservedDomains = []string{"liqo.io", "kubernetes.io", "k8s.io"}

// changedReserved returns a key of a reserved domain that differs between the
// two maps, "" when there is none.
func changedReserved(now, old map[string]string) string {
	var changed []string
	for _, m := range []map[string]string{now, old} {
		for key := range m {
			n, inNow := now[key]
			o, inOld := old[key]
			if (n != o || inNow != inOld) && reserved(key) {
				changed = append(changed, key)
			}
		}
	}
	if len(changed) == 0 {
		return ""
	}
	return slices.Min(changed)
}

func reserved(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && slices.ContainsFunc(reservedDomains, func(r string) bool {
		return domain == r || strings.HasSuffix(domain, "."+r)
	})
}

// decideByPolicy decides about a request that is in order. People on both sides
// read what it says, so it says "the provider" and not "this cluster".
func decideByPolicy(id string, s Policy) Verdict {
	switch {
	case s.Blocked:
		return forbidden(CauseBlocked, "the provider has blocked cluster %s; `liqo-agent peers unblock %s` there lets it ask again", id, id)
	case !s.Pinned:
		return forbidden(CauseNotTrusted, "the provider trusts no key to be that of cluster %s; `liqo-agent peers accept %s` there trusts its key and lets it in, "+
			"once it has asked and the verification codes that both sides show are the same", id, id)
	case s.Never:
		return forbidden(CauseNever, "the provider does not let cluster %s in: %s", id,
			orElse(s.Message, `its configuration has trust.accept = "none", or accept = "never" in the [[peer]] entry of that cluster`))
	}
	v := Verdict{Allowed: true}
	switch s.Accept {
	case api.RequestAccepted:
	case api.RequestRefused:
		v.Warnings = []string{"the request is stored as refused: " + orElse(s.Message, "`liqo-agent peers accept "+id+"` on the provider lets it in after all")}
	default:
		v.Warnings = []string{"the request waits for a person: " + orElse(s.Message, "`liqo-agent peers accept "+id+"` on the provider lets it in")}
	}
	return v
}

// maxMessage is how much of a Policy's message is passed on, in bytes: few
// enough for a warning, with what is put before it.
const maxMessage = 200

// orElse returns the message of a Policy, or another if that has none.
func orElse(message, otherwise string) string {
	if message == "" {
		return otherwise
	}
	return text.Clip(message, maxMessage)
}
