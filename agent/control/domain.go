package control

import (
	"context"
	"time"
)

// Domains is the part of a Backend about search domains.
type Domains interface {
	// Domains returns every search domain, sorted by name.
	Domains(ctx context.Context) ([]Domain, error)
	// AddDomain adds a search domain, or changes one that was added with it. The error
	// wraps ErrRefused if the configuration file or a SearchDomain sets the domain:
	// these take precedence.
	AddDomain(ctx context.Context, opts DomainOptions) error
	// RemoveDomain removes a domain that was added with AddDomain. Here and below, name
	// is as Domains returns it. The error wraps ErrNotFound if there is none of that
	// name, and ErrRefused if the domain is set somewhere else.
	RemoveDomain(ctx context.Context, name, by string) error
	// AskDomain queries a domain now, without waiting for the result. The error wraps
	// ErrNotFound if there is none of that name.
	AskDomain(ctx context.Context, name string) error
}

// DomainOptions say which domain to query, and how.
type DomainOptions struct {
	Name        string        `json:"domain"`
	Autojoin    *bool         `json:"autojoin,omitempty"` // nil: as discovery.autojoin says
	Server      string        `json:"server"`
	MinInterval time.Duration `json:"-"` // 0: the default
	MaxInterval time.Duration `json:"-"`
	By          string        `json:"-"`
}

// Domain is a search domain as shown to people and scripts.
type Domain struct {
	Name               string   `json:"domain"`
	Autojoin           *bool    `json:"autojoin,omitempty"` // absent: as discovery.autojoin says
	Server             string   `json:"server"`             // "" = the system's
	MinIntervalSeconds int64    `json:"minIntervalSeconds"`
	MaxIntervalSeconds int64    `json:"maxIntervalSeconds"`
	Source             string   `json:"source"`  // where it comes from, for people
	Ignored            []string `json:"ignored"` // where else it is given, without effect

	// The result of the last query; Outcome is "" before the first one.
	LastQuery     time.Time     `json:"lastQuery,omitzero"`
	NextQuery     time.Time     `json:"nextQuery,omitzero"`
	Outcome       string        `json:"outcome"` // Found, NoData, NoName, ServerFailure, ...
	Message       string        `json:"message"`
	AnsweredBy    string        `json:"answeredBy"`
	Authenticated bool          `json:"authenticated"` // the DNS server validated all answers
	Browsed       []string      `json:"browsed"`       // further domains that it refers to
	Entries       []DomainEntry `json:"entries"`       // what it lists, by name
}

// DomainEntry is something that a search domain lists.
type DomainEntry struct {
	Name      string `json:"name"`
	URL       string `json:"url"`
	ClusterID string `json:"clusterId"` // that answers there; "" = none does
	Cluster   string `json:"cluster"`   // its name
	Reason    string `json:"reason"`    // why it is left out, in one word; "" = it is not
	Message   string `json:"message"`   // why, for people; with no reason, why the cluster is not joined
}
