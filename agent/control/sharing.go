package control

import (
	"time"
)

// The states of an Advert.
const (
	AdvertPending  = "Pending"
	AdvertAccepted = "Accepted"
	AdvertRefused  = "Refused"
)

// Advert is what another cluster offers, as shown to people and scripts. Amounts
// are Kubernetes quantities by resource.
type Advert struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`      // what people call the cluster: its alias, else its name, else its ID
	Status    string            `json:"status"`    // Pending while nobody decided, Accepted, Refused
	Reason    string            `json:"reason"`    // why, in one word
	Message   string            `json:"message"`   // why, in a sentence
	DecidedBy string            `json:"decidedBy"` // the field manager of the person who decided; "" when sharing.accept_policy does
	Expired   bool              `json:"expired"`   // it ended, and was not renewed
	Resources map[string]string `json:"resources"`
	Labels    map[string]string `json:"labels"`
	Arch      string            `json:"arch"`
	OS        string            `json:"os"`
	Images    []string          `json:"images"`             // container images that are there, by one name each
	OfferedAt time.Time         `json:"offeredAt,omitzero"` // by the provider's clock
	ExpiresAt time.Time         `json:"expiresAt,omitzero"` // by the provider's clock, unless it is renewed
	CreatedAt time.Time         `json:"createdAt,omitzero"` // of the Advertisement here

	Node        string `json:"node"` // that stands for the offer; "" while there is none
	NodeReady   bool   `json:"nodeReady"`
	NodeReason  string `json:"nodeReason"` // why it is not ready, or how far its removal is
	NodeMessage string `json:"nodeMessage"`
	Pods        int    `json:"pods"` // that are bound to the node
}

// Sharing is what this cluster shares with others, as shown by status.
type Sharing struct {
	Offering Offering `json:"offering"`
	Using    Using    `json:"using"`
}

// Offering is what this cluster offers to others, and what they use of it.
type Offering struct {
	Enabled    bool              `json:"enabled"`    // sharing.enable
	Percentage int               `json:"percentage"` // of what is free
	Overcommit int               `json:"overcommit"` // percent of that for all consumers together
	Source     string            `json:"source"`     // where Enabled comes from
	Pool       map[string]string `json:"pool"`       // what can be offered now, to all consumers together
	Message    string            `json:"message"`    // why nothing is offered, for people; "" when something is
	Consumers  []Consumer        `json:"consumers"`  // by name
}

// Consumer is a cluster that may use this one.
type Consumer struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`     // as in Advert
	Promised   map[string]string `json:"promised"` // what it was offered last
	Used       map[string]string `json:"used"`     // what its pods ask for
	Pods       int               `json:"pods"`
	Namespaces int               `json:"namespaces"`
	Ending     bool              `json:"ending"` // it may not any more, and some of it is left
}

// Using is what this cluster uses of others.
type Using struct {
	Enabled     bool       `json:"enabled"`     // sharing.use
	Policy      string     `json:"policy"`      // sharing.accept_policy: auto, manual
	MaxAccepted int        `json:"maxAccepted"` // sharing.max_accepted
	Source      string     `json:"source"`      // where Enabled comes from
	Accepted    int        `json:"accepted"`    // offers
	Pending     int        `json:"pending"`     // offers that wait for a person
	Refused     int        `json:"refused"`     // offers
	Providers   []Provider `json:"providers"`   // that have a node here, or are about to, by name
}

// Provider is a cluster whose resources this one uses.
type Provider struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"` // as in Advert
	Node    string            `json:"node"` // "" while there is none
	Ready   bool              `json:"ready"`
	Reason  string            `json:"reason"` // why the node is not ready, or how far its removal is
	Message string            `json:"message"`
	Offered map[string]string `json:"offered"`
	Pods    int               `json:"pods"` // that are bound to the node
}

// PeerSharing is what is shared with one peer.
type PeerSharing struct {
	Provider *Provider `json:"provider,omitempty"` // we use its resources
	Consumer *Consumer `json:"consumer,omitempty"` // it uses ours
}
