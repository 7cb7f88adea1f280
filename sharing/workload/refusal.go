package workload

// Refusal says why something is not to be. Message is a sentence that says what it
// is and what to do instead; Reason is a CamelCase word for programs, one of the
// Reason constants.
type Refusal struct {
	Reason  string
	Message string
}

// Error returns the sentence.
func (r *Refusal) Error() string { return r.Message }

// Reasons of refusals, of containers that wait, and of pods that failed.
const (
	// ReasonNotOffloadable: what the pod asks for exists in its own cluster only.
	ReasonNotOffloadable = "NotOffloadable"
	// ReasonMissingReference: a ConfigMap or Secret that the pod needs does not exist.
	ReasonMissingReference = "MissingReference"
	// ReasonRemoteUnschedulable: the provider has no node for the pod.
	ReasonRemoteUnschedulable = "RemoteUnschedulable"
	// ReasonRefusedByProvider: the provider did not let the pod in.
	ReasonRefusedByProvider = "RefusedByProvider"
	// ReasonDeletedByProvider: the provider ended the pod; EvictedByProvider where
	// its status told why.
	ReasonDeletedByProvider = "DeletedByProvider"
	ReasonEvictedByProvider = "EvictedByProvider"
	// ReasonForbidden: a consumer sent what a consumer may not.
	ReasonForbidden = "Forbidden"
	// ReasonRegistryNotAllowed: an image is from a registry that the provider's guests
	// may not have images from.
	ReasonRegistryNotAllowed = "RegistryNotAllowed"
	// ReasonInvalid: what was sent is not what it has to be, whoever sent it.
	ReasonInvalid = "Invalid"
)
