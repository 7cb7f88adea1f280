package refusal

// Reason names why something was not served, for those who count.
type Reason string

// The reasons for requests that were refused on a connection that was let in.
const (
	// Path: there is nothing at the path, spelled exactly like that.
	Path Reason = "no-such-path"
	// Method: the path has no such method.
	Method Reason = "method-not-allowed"
	// NoCertificate: no client certificate, or none that names a cluster
	// ID, where one is needed.
	NoCertificate Reason = "no-certificate"
	// NotTrusted: the caller's key is not trusted to be its cluster's.
	NotTrusted Reason = "not-trusted"
	// Blocked: the caller is blocked.
	Blocked Reason = "blocked"
	// Suspended: the caller's key is trusted by a certificate that has ended.
	Suspended Reason = "certificate-ended"
	// Identity: the caller says another cluster ID than its certificate.
	Identity Reason = "other-identity"
	// Protocol: the caller speaks no version of the protocol that we do.
	Protocol Reason = "protocol-version"
	// Rate: the caller or its address sent too many requests lately.
	Rate Reason = "rate-limited"
	// Budget: the caller has had more written to the API server than it may.
	Budget Reason = "budget-spent"
	// Busy: too many requests of the caller, or of all, are under way.
	Busy Reason = "too-many-at-a-time"
	// Body: the body has the wrong type or form, or should not be there.
	Body Reason = "bad-body"
	// Large: the body is larger than any that makes sense.
	Large Reason = "too-large"
	// Slow: the body did not come in time.
	Slow Reason = "too-slow"
	// Network: the caller's network is not to be connected with this cluster's.
	Network Reason = "network-not-wanted"
	// Liqo: the caller may not consume this cluster by Liqo, or not now.
	Liqo Reason = "liqo-not-admitted"
	// Gateway: a request to the API server that no peer may send.
	Gateway Reason = "gateway-not-permitted"
	// APIServer: the API server could not be reached, or did not answer in time.
	APIServer Reason = "no-api-server"
	// Upstream: the API server answered something that is not passed on.
	Upstream Reason = "bad-upstream-answer"
	// Metrics: there is no metrics API, or it does not answer.
	Metrics Reason = "no-metrics"
	// Failed: the agent could not do what was asked.
	Failed Reason = "failed"
)
