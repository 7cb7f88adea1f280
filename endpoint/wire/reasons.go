package wire

import "time"

// Refused is the error of what a cluster does not let a peer do: from Guests, and
// at the other end from a Link.
type Refused struct {
	Reason  string // one word for programs
	Message string // a sentence for people
	// Retry, if not 0, is after how long it is to be asked again: it is not refused for
	// good.
	Retry time.Duration
}

// Error returns the sentence.
func (r *Refused) Error() string { return r.Message }

// ReasonNotAdmitted is the Reason of a Refused when the caller may have nothing here,
// or not any more.
const ReasonNotAdmitted = "NotAdmitted"

// NotAdmitted reports whether the caller may have nothing here, or not any more.
func (r *Refused) NotAdmitted() bool { return r.Reason == ReasonNotAdmitted }

// Further reasons of a Refusal, for programs.
const (
	ReasonNoSuchPath    = "NoSuchPath"
	ReasonBadRequest    = "BadRequest" // sending the same again is of no use
	ReasonNoCertificate = "NoCertificate"
	ReasonOtherIdentity = "OtherIdentity" // the body says another cluster ID than the certificate
	ReasonFailed        = "Failed"        // trying again later may help
)

// The reasons of an Answer, and of refused calls.
const (
	ReasonTrusted      = "Trusted"
	ReasonAsksPerson   = "WaitsForPerson" // Pending: somebody has to accept at the provider
	ReasonBusy         = "TooManyRequests"
	ReasonBudget       = "BudgetSpent" // of what the caller may have written
	ReasonBlocked      = "Blocked"
	ReasonPolicyNone   = "AcceptsNobody"
	ReasonNotTrusted   = "NotTrusted"
	ReasonBadToken     = "BadToken"
	ReasonOtherKey     = "OtherKey" // this cluster ID is known with another key
	ReasonNoAPIServer  = "NoAPIServer"
	ReasonNotPermitted = "NotPermitted"
	ReasonNoMetrics    = "NoMetrics"       // nothing measures what pods use
	ReasonProtocol     = "ProtocolVersion" // the two have no version of the protocol in common
	// ReasonNoNetwork: the networks of the two clusters are not to be connected.
	ReasonNoNetwork = "NoNetwork"
	// ReasonCertificateEnded: the caller's key is trusted by a certificate of a fleet
	// that has ended.
	ReasonCertificateEnded = "CertificateEnded"
)

// Refusal is the body of every answer that is not a success.
type Refusal struct {
	Error  string `json:"error"`            // a sentence for people
	Reason string `json:"reason,omitempty"` // one word for programs
}
