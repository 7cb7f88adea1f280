package control

import (
	"slices"
	"time"

	"liqo.io/agent/agent/config"
)

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

// FindDomain returns the domain of that name, written as people write it.
func FindDomain(known []Domain, name string) (Domain, bool) {
	checked, err := CheckDomain(DomainOptions{Name: name})
	i := slices.IndexFunc(known, func(d Domain) bool { return err == nil && d.Name == checked.Name })
	if i < 0 {
		return Domain{}, false
	}
	return known[i], true
}

// CheckDomain validates opts and brings them into the form of the configuration file.
// Intervals that are 0 stay 0.
func CheckDomain(opts DomainOptions) (DomainOptions, error) {
	d, err := config.CheckSearchDomain(config.SearchDomain{Domain: opts.Name, Server: opts.Server, MinInterval: opts.MinInterval, MaxInterval: opts.MaxInterval})
	if err != nil {
		return DomainOptions{}, &Error{Kind: ErrInvalid, Cause: err, Message: "search domain: " + err.Error(), Advice: "liqo-agent domains add --help"}
	}
	opts.Name, opts.Server = d.Domain, d.Server
	return opts, nil
}
