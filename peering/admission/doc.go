// Package admission is the validating webhook for PeeringRequests: the API
// server asks it about every one that is created or changed, before it is
// stored.
//
// It refuses what must never be stored: a request under another name than the
// authenticated peer's, from a blocked peer, from one whose key is not trusted,
// or under a policy that lets nobody in. What a person may still decide about is
// stored, with a warning that says so; accepting it or not is the planner's work
// and ends up in the status.
//
// Decide is the decision: pure, and tested by tables. Server is an HTTPS port on
// loopback that takes the API server's AdmissionReviews apart, asks Decide, and
// answers. The API server fails closed: while the agent is down, PeeringRequests
// can be deleted, but neither created nor changed. Nothing else waits for the
// agent.
//
// Where the API server has no MutatingAdmissionPolicies, it asks here about new pods
// of enabled namespaces too, and is told to add the toleration that lets them onto
// virtual nodes. That one fails open: pods are created with or without the agent.
//
// # Certificate
//
// The port has a key of its own, in the state directory, and a CA and a leaf that
// are a function of that key alone and valid forever. Thus the
// ValidatingWebhookConfiguration stays the same over restarts and is not written
// again, and an edge device whose clock starts in 1970 can still call it. The key
// vouches for nothing but 127.0.0.1 and ::1, so losing it costs nothing: unlike
// the cluster key it is replaced when it cannot be used.
//
// # What this package must not do
//
// It does not talk to the API server, and in particular does not install the
// configuration it describes; it keeps no decision and remembers no request. The
// Kubernetes types of AdmissionReviews stay out of the binary: the few fields
// that count are declared here.
//
// Goroutines: those of net/http (one accepting, one per connection, 64
// connections at most) while Server.Run runs, and none otherwise.
package admission
