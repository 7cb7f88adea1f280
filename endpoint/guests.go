package endpoint

import (
	"context"

	"liqo.io/agent/peer"
)

// Guests decides what a peer may do with the namespaces that it has here. Its
// methods are called from many goroutines; those without a context must be quick.
// An error that is a *Refused says no, and its words reach the peer. Any other is
// logged here, and the peer is told to try again.
type Guests interface {
	// Namespace returns the namespace here that stands for the peer's namespace
	// origin, which is made if there is none.
	Namespace(ctx context.Context, id peer.ClusterID, origin string) (name string, err error)
	// Release gives that namespace back, with everything in it. That there is none
	// is no error.
	Release(ctx context.Context, id peer.ClusterID, origin string) error
	// Owns returns nil if the namespace is the peer's. It is asked for every request,
	// and again and again while one of a stream lasts. A *Refused with a time to try
	// again says that this is not known yet.
	Owns(id peer.ClusterID, namespace string) error
	// Pod checks a pod, as JSON, that the peer wants to create in a namespace of its
	// own, and returns what is sent to the API server instead. done, which is never
	// nil without an error, is called exactly once when it is known what became of
	// it: with the pod as the API server answered, with nil if that refused, and with
	// nothing in it if its answer is not known.
	Pod(ctx context.Context, id peer.ClusterID, namespace string, body []byte) (clean []byte, done func(created []byte), err error)
	// Named returns the names of the ConfigMaps, Secrets and PersistentVolumeClaims that a pod,
	// as Pod or Ephemeral returned it, refers to, by "configmaps", "secrets" and "persistentvolumeclaims".
	Named(pod []byte) (map[string][]string, error)
	// PodPatch checks a patch of a pod, in JSON as of RFC 7386 or a strategic merge
	// patch of Kubernetes, and returns the one that is sent instead, with its media
	// type.
	PodPatch(id peer.ClusterID, namespace, name string, body []byte) (clean []byte, contentType string, err error)
	// Ephemeral checks a patch that adds an ephemeral container to a pod, and returns the
	// strategic merge patch of its ephemeralcontainers that is sent instead. done is as of Pod:
	// the answer is the whole pod.
	Ephemeral(ctx context.Context, id peer.ClusterID, namespace, name string, body []byte) (clean []byte, done func(changed []byte), err error)
	// Object checks an object that the peer applies, and returns the one that is
	// written instead, as JSON, with every field that is to change. resource is
	// "configmaps", "secrets", "services", "endpointslices" or "persistentvolumeclaims".
	Object(id peer.ClusterID, namespace, resource, name string, body []byte) (clean []byte, err error)
}
