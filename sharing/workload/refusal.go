package workload

// Refusal says why a pod or object is refused. Message is a sentence for people: what is wrong,
// and what to do. Reason is one of the Reason constants, for programs.
type Refusal struct {
	Reason  string
	Message string
}

// Error returns the sentence.
func (r *Refusal) Error() string { return r.Message }

// Reasons of refusals, of containers that wait, and of pods that failed.
const (
	// ReasonNotOffloadable: the pod needs something that exists only in its own cluster.
	ReasonNotOffloadable = "NotOffloadable"
	// ReasonMissingReference: a ConfigMap or Secret that the pod needs does not exist.
	ReasonMissingReference = "MissingReference"
	// ReasonRemoteUnschedulable: the provider has no node for the pod.
	ReasonRemoteUnschedulable = "RemoteUnschedulable"
	// ReasonRefusedByProvider: the provider refused the pod.
	ReasonRefusedByProvider = "RefusedByProvider"
	// ReasonDeletedByProvider: the provider deleted the pod; ReasonEvictedByProvider: its
	// status said why.
	ReasonDeletedByProvider = "DeletedByProvider"
	ReasonEvictedByProvider = "EvictedByProvider"
	// ReasonNoToken: the API server gives no service account token for the pod. In an event: the pod
	// runs without one.
	ReasonNoToken = "NoToken"
	// ReasonNoAPIServer: the pod does not reach the API server of its own cluster.
	ReasonNoAPIServer = "NoAPIServer"
	// ReasonForbidden: a consumer may not have what it sent.
	ReasonForbidden = "Forbidden"
	// ReasonRegistryNotAllowed: the provider's guests may not use the registry of an image.
	ReasonRegistryNotAllowed = "RegistryNotAllowed"
	// ReasonInvalid: the document is not valid.
	ReasonInvalid = "Invalid"
)
