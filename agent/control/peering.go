package control

import (
	"time"

	"liqo.io/agent/peer"
)

// The modes of Trust.
const (
	// Trusted: a key is pinned for the peer's ID.
	Trusted = "Trusted"
	// Untrusted: a person marked the peer's key as not trusted.
	Untrusted = "Untrusted"
	// UnknownTrust: there is no decision about the peer's key.
	UnknownTrust = "Unknown"
)

// Trust says whether a key is trusted to be a peer's, and why.
type Trust struct {
	Mode        string    `json:"mode"`           // Trusted, Untrusted, Unknown
	Method      string    `json:"method"`         // how the key came to be trusted (peer.TrustMethod); "" when it is not
	By          string    `json:"by"`             // who decided, for people
	At          time.Time `json:"at,omitzero"`    // when
	Detail      string    `json:"detail"`         // one line for people
	Fingerprint string    `json:"fingerprint"`    // of the trusted key, 64 hexadecimal digits; "" when there is none
	Host        string    `json:"host,omitempty"` // the host name whose public certificate vouched for the key; "" when none did
	// Until is when the fleet certificate of the key expires; Suspended is when trust
	// was suspended because it had.
	Until     time.Time `json:"until,omitzero"`
	Suspended time.Time `json:"suspended,omitzero"`
}

// NewTrust translates a pin; nil is for no pinned key.
func NewTrust(pin *peer.Pin, distrusted bool) Trust {
	switch {
	case pin != nil:
		return Trust{Mode: Trusted, Method: string(pin.Method), By: pin.By, At: pin.At, Detail: pin.Detail, Fingerprint: pin.Fingerprint.String(), Host: pin.Host,
			Until: pin.NotAfter, Suspended: pin.Suspended}
	case distrusted:
		return Trust{Mode: Untrusted}
	}
	return Trust{Mode: UnknownTrust}
}

// The reasons of a Direction that the command line acts on. It only shows others, such
// as those of the ForeignCluster's conditions.
const (
	// ReasonAwaitingAcceptance: a person at the provider has to accept.
	ReasonAwaitingAcceptance = "AwaitingAcceptance"
	// ReasonRefused: the provider refused; Message has its reason.
	ReasonRefused = "Refused"
	// ReasonEndedByProvider: the provider ended the peering; Message has its reason.
	ReasonEndedByProvider = "EndedByProvider"
	// ReasonBlocked: the peer is blocked here.
	ReasonBlocked = "Blocked"
	// ReasonDraining: the peering is ending, and our pods are leaving the provider.
	ReasonDraining = "Draining"
	// ReasonUnknown: the API server of this cluster does not answer.
	ReasonUnknown = "Unknown"
)

// Direction is one of the two possible peerings with a peer: outgoing or incoming.
type Direction struct {
	// Wanted: outgoing, the peering is wanted (spec.join); incoming, the peer requests
	// it or consumes.
	Wanted  bool      `json:"wanted"`
	Joined  bool      `json:"joined"`         // it is established
	Ending  bool      `json:"ending"`         // it is not wanted any more, and something of it is left
	Reason  string    `json:"reason"`         // one word for programs; "" when there is nothing to say
	Message string    `json:"message"`        // what is the matter, what it waits for and what a person can do, for people
	Since   time.Time `json:"since,omitzero"` // of the last change of Joined
	Steps   []Step    `json:"steps"`          // what it takes, in order
}

// Over reports whether the peering is not wanted, and nothing of it is left.
func (d Direction) Over() bool { return !d.Wanted && !d.Joined && !d.Ending }

// Step is one step towards a peering. Text begins with who takes it: "(local) its
// key is trusted", "(remote) the PeeringRequest is accepted".
type Step struct {
	Name string `json:"name"` // one word for programs
	Text string `json:"text"` // what happened, or is to happen
	Done bool   `json:"done"`
}

// Choice is a remembered decision: yes, no, or none.
type Choice string

// The choices.
const (
	Yes       Choice = "yes"
	No        Choice = "no"
	Undecided Choice = "undecided"
)

// Preferences are the settings of a peer, which last until it is forgotten.
type Preferences struct {
	AutoConnect Choice `json:"autoConnect"` // connect to it when it is there
	AutoAccept  Choice `json:"autoAccept"`  // let it in when it asks
	Blocked     bool   `json:"blocked"`
	// BlockedHosts are the host names that were blocked with it. A public certificate
	// for one of them makes nobody trusted.
	BlockedHosts []string `json:"blockedHosts,omitempty"`
	Note         string   `json:"note"`
	URL          string   `json:"url"` // where it is looked for besides where it is seen; "" for nowhere
	// CPU and Memory are how much it is asked for, as Kubernetes quantities; "" for as
	// much as there is.
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
}

// Asks changes how much a peer is asked for. Fields that are nil do not change; "" is as much
// as there is.
type Asks struct {
	CPU    *string `json:"cpu,omitempty"`
	Memory *string `json:"memory,omitempty"`
}

// PreferencesPatch changes preferences. Fields that are nil do not change. Package
// control has validated the values.
type PreferencesPatch struct {
	Asks
	AutoConnect *Choice `json:"autoConnect,omitempty"`
	AutoAccept  *Choice `json:"autoAccept,omitempty"`
	Note        *string `json:"note,omitempty"` // "" removes it
	URL         *string `json:"url,omitempty"`  // "" removes it
}

// The kinds of Request.
const (
	// KindAsk: a cluster whose key is not trusted asks for access.
	KindAsk = "ask"
	// KindRequest: a PeeringRequest is in our API server.
	KindRequest = "request"
)

// Request is the request of a cluster to consume our resources, which waits for a
// decision or was rejected.
type Request struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Kind        string    `json:"kind"`           // ask or request
	State       string    `json:"state"`          // Pending or Refused
	Since       time.Time `json:"since,omitzero"` // when it came
	Code        string    `json:"code"`           // verification code of our key and that which it showed
	Fingerprint string    `json:"fingerprint"`    // of the key which it showed
	Address     string    `json:"address"`        // where it came from
	Message     string    `json:"message"`        // anything to know about it, a sentence for people: another key is known for its ID, ...
}

// Shown is a cluster whose key a person has to confirm: its claimed ID and name, and the
// key that it proved to hold.
type Shown struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Address     string `json:"address"`
	Fingerprint string `json:"fingerprint"`
	Code        string `json:"code"`
	// Pinned is the fingerprint of another key that is trusted for this ID, "" for
	// none.
	Pinned string `json:"pinned,omitempty"`
}

// ConnectOptions say what to connect to. At least one of ID, URL and Token is
// set; when several are, they have to be about the same cluster.
type ConnectOptions struct {
	ID    peer.ClusterID
	URL   string // of its endpoint, https://host[:port]
	Token string // an invite of it
	// Fingerprint is the key that a person confirmed, zero for none.
	Fingerprint peer.Fingerprint
	// Once: connect now, and not again when the peer returns.
	Once bool
	// Asks are remembered.
	Asks Asks
	By   string // who wants it, for people
}

// InviteOptions say what invite to make.
type InviteOptions struct {
	TTL  time.Duration // how long it is valid
	Note string        // for the one who lists them
	URL  string        // where the bearer finds us, part of the token; "" when it finds us by itself
	By   string        // who makes it, for people
}

// The states of an Invite.
const (
	InviteOpen    = "open"
	InviteUsed    = "used"
	InviteExpired = "expired"
	InviteRevoked = "revoked"
)

// Invite is a token that one cluster can use to be accepted.
type Invite struct {
	ID        string    `json:"id"`
	Token     string    `json:"token,omitempty"` // only in the answer that made it: it is not kept
	State     string    `json:"state"`           // open, used, expired, revoked
	Note      string    `json:"note"`
	URL       string    `json:"url"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
	CreatedBy string    `json:"createdBy"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	UsedAt    time.Time `json:"usedAt,omitzero"`
	UsedBy    string    `json:"usedBy"` // the cluster ID of its bearer; "" while nobody used it
}

// Key is the key of this cluster.
type Key struct {
	Fingerprint string `json:"fingerprint"`
	PublicKey   string `json:"publicKey"` // PEM (PKIX)
	// Successions counts the earlier keys whose peers follow to this key.
	Successions int       `json:"successions"`
	CreatedAt   time.Time `json:"createdAt,omitzero"`
}

// PeeringStatus counts peerings, requests and invites.
type PeeringStatus struct {
	Wanted   int `json:"wanted"`   // peers whose resources we want to consume
	Joined   int `json:"joined"`   // of which we do
	Serving  int `json:"serving"`  // peers that consume ours
	Requests int `json:"requests"` // that wait for a person
	Invites  int `json:"invites"`  // that can be used
}

// TrustStatus is by which settings this cluster trusts others.
type TrustStatus struct {
	Accept string `json:"accept"` // trust.accept: ask, trusted, all, none
	// Open names the settings because of which any cluster is accepted or connected
	// without a decision, "" for none.
	Open    string   `json:"open"`
	FleetCA *FleetCA `json:"fleetCA,omitempty"`
}

// FleetCA is the authority whose certified keys are trusted.
type FleetCA struct {
	Name        string    `json:"name"`
	Fingerprint string    `json:"fingerprint"`
	Path        string    `json:"path"`
	NotAfter    time.Time `json:"notAfter,omitzero"`
	// Certified: this authority certified the key of this cluster.
	Certified bool `json:"certified"`
}
