package state

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

const (
	// MaxSearchDomains is the number of search domains that can be added.
	MaxSearchDomains = 256
	// maxDomainLength bounds the name of a domain, in bytes (RFC 1035 section 2.3.4,
	// written without the root's dot).
	maxDomainLength = 253
	// maxServerLength bounds the address of a DNS server, in bytes.
	maxServerLength = 300
	// maxByLength bounds who added a domain, in bytes.
	maxByLength = 200
)

// ErrSearchDomains is returned when MaxSearchDomains were added already.
var ErrSearchDomains = errors.New("too many search domains")

// SearchDomain is a DNS domain to look for clusters in that somebody added on the
// command line.
type SearchDomain struct {
	Domain   string // lower case, without a trailing dot
	Autojoin *bool  // nil: as the configuration says
	Server   string // "" = the system's
	// MinInterval and MaxInterval bound the time between two looks; both are kept in
	// milliseconds.
	MinInterval, MaxInterval time.Duration
	By                       string    // who added it or changed it last, for people
	At                       time.Time // when
}

var searchDomainTable = describe(table[SearchDomain]{
	aspects: aspects{name: "search_domains"},
	columns: func(d *SearchDomain) []column {
		return []column{{"domain", &d.Domain, key}, {"autojoin", &d.Autojoin, value},
			{"server", atMost(maxServerLength, "the DNS server of search domain "+d.Domain, &d.Server), value},
			{"min_interval", (*span)(&d.MinInterval), value}, {"max_interval", (*span)(&d.MaxInterval), value},
			{"added_by", atMost(maxByLength, "who added search domain "+d.Domain, &d.By), along}, {"added_at", at(&d.At), along}}
	},
	check: func(d *SearchDomain) error {
		bad := d.Domain == "" || len(d.Domain) > maxDomainLength || d.Domain != strings.ToLower(d.Domain) || strings.HasSuffix(d.Domain, ".")
		switch {
		case bad:
			return fmt.Errorf("search domain %q is not a domain name in lower case without a dot at its end", text.Excerpt(d.Domain))
		case d.MinInterval < time.Millisecond || d.MaxInterval < d.MinInterval:
			return fmt.Errorf("search domain %s cannot be looked at every %s to %s", d.Domain, d.MinInterval, d.MaxInterval)
		}
		return nil
	},
})

// SearchDomains returns the domains that were added, sorted by name.
func (s *Store) SearchDomains(ctx context.Context) ([]SearchDomain, error) {
	return searchDomainTable.rows(ctx, s, "")
}

// SetSearchDomain adds a domain, or changes the one of that name, and adds events
// to the history. It is on the disk when the call returns. When the domain is there
// just so already, nothing is written, events neither. ErrSearchDomains when there
// are too many.
func (s *Store) SetSearchDomain(ctx context.Context, d SearchDomain, events ...peer.Event) error {
	if d.At.IsZero() {
		d.At = s.now()
	}
	_, err := s.changeDomain(ctx, d.Domain, &d, events)
	return err
}

// RemoveSearchDomain removes the domain of that name and adds events to the
// history; false, and nothing is written, when there is none. It is on the disk
// when the call returns.
func (s *Store) RemoveSearchDomain(ctx context.Context, name string, events ...peer.Event) (bool, error) {
	return s.changeDomain(ctx, name, nil, events)
}

func (s *Store) changeDomain(ctx context.Context, name string, want *SearchDomain, events []peer.Event) (changed bool, err error) {
	err = s.change(ctx, onDisk, func(ctx context.Context) ([]op, error) {
		all, err := searchDomainTable.read(ctx, s.conn, "")
		if err != nil {
			return nil, err
		}
		var have *SearchDomain
		if i := slices.IndexFunc(all, func(d SearchDomain) bool { return d.Domain == name }); i >= 0 {
			have = &all[i]
		}
		ops, err := searchDomainTable.change(have, want)
		if err != nil || len(ops) == 0 {
			return nil, err
		}
		if have == nil && len(all) >= MaxSearchDomains {
			return nil, &fault{kind: ErrSearchDomains, text: fmt.Sprintf("%d search domains were added, more are not allowed: remove some first", len(all))}
		}
		changed = true
		more, err := s.eventOps(ctx, events)
		return append(ops, more...), err
	})
	return changed && err == nil, err
}
