package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"liqo.io/agent/peer"
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
	// maxConfigLength bounds a remembered ClusterConfig, in bytes: hundreds of times
	// what its schema allows.
	maxConfigLength = 64 << 10
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

// equal reports whether the two say the same, whoever said it and when.
func (d SearchDomain) equal(o SearchDomain) bool {
	return d.Domain == o.Domain && d.autojoin() == o.autojoin() && d.Server == o.Server &&
		d.MinInterval.Milliseconds() == o.MinInterval.Milliseconds() && d.MaxInterval.Milliseconds() == o.MaxInterval.Milliseconds()
}

// autojoin is the column.
func (d SearchDomain) autojoin() any {
	if d.Autojoin == nil {
		return nil
	}
	return Decide(*d.Autojoin).column()
}

func (d SearchDomain) check() error {
	bad := d.Domain == "" || len(d.Domain) > maxDomainLength || d.Domain != strings.ToLower(d.Domain) || strings.HasSuffix(d.Domain, ".")
	switch {
	case bad:
		return fmt.Errorf("search domain %q is not a domain name in lower case without a dot at its end", clip(d.Domain))
	case len(d.Server) > maxServerLength:
		return fmt.Errorf("the DNS server of search domain %s is %d bytes long, at most %d are allowed", d.Domain, len(d.Server), maxServerLength)
	case len(d.By) > maxByLength:
		return fmt.Errorf("who added search domain %s is %d bytes long, at most %d are allowed", d.Domain, len(d.By), maxByLength)
	case d.MinInterval < time.Millisecond || d.MaxInterval < d.MinInterval:
		return fmt.Errorf("search domain %s cannot be looked at every %s to %s", d.Domain, d.MinInterval, d.MaxInterval)
	}
	return nil
}

const searchDomainColumns = "SELECT domain, autojoin, server, min_interval, max_interval, added_by, added_at FROM search_domains"

// SearchDomains returns the domains that were added, sorted by name.
func (s *Store) SearchDomains(ctx context.Context) ([]SearchDomain, error) {
	var domains []SearchDomain
	err := s.read(ctx, func(ctx context.Context) (err error) {
		domains, err = s.searchDomains(ctx, "")
		return err
	})
	return domains, err
}

// searchDomains returns the domain with that name, or all.
func (s *Store) searchDomains(ctx context.Context, name string) ([]SearchDomain, error) {
	var domains []SearchDomain
	err := query(ctx, s.conn, func(scan func(...any) error) error {
		var d SearchDomain
		var minimum, maximum, at int64
		if err := scan(&d.Domain, &d.Autojoin, &d.Server, &minimum, &maximum, &d.By, &at); err != nil {
			return err
		}
		d.MinInterval, d.MaxInterval = time.Duration(minimum)*time.Millisecond, time.Duration(maximum)*time.Millisecond
		d.At = fromMillis(at)
		domains = append(domains, d)
		return nil
	}, searchDomainColumns+" WHERE ?1 = '' OR domain = ?1 ORDER BY domain", name)
	return domains, err
}

// SetSearchDomain adds a domain, or changes the one of that name, and adds events
// to the history. It is on the disk when the call returns. When the domain is there
// just so already, nothing is written, events neither. ErrSearchDomains when there
// are too many.
func (s *Store) SetSearchDomain(ctx context.Context, d SearchDomain, events ...peer.Event) error {
	if err := d.check(); err != nil {
		return err
	}
	return s.change(ctx, onDisk, func(ctx context.Context) ([]op, error) {
		have, err := s.searchDomains(ctx, "")
		if err != nil {
			return nil, err
		}
		known := false
		for _, old := range have {
			if old.equal(d) {
				return nil, nil
			}
			known = known || old.Domain == d.Domain
		}
		if !known && len(have) >= MaxSearchDomains {
			return nil, &fault{kind: ErrSearchDomains, text: fmt.Sprintf("%d search domains were added, more are not allowed: remove some first", len(have))}
		}
		at := d.At
		if at.IsZero() {
			at = s.now()
		}
		ops, err := s.eventOps(ctx, events)
		return append(ops, op{`INSERT INTO search_domains (domain, autojoin, server, min_interval, max_interval, added_by, added_at)
			VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (domain) DO UPDATE SET autojoin = excluded.autojoin, server = excluded.server, min_interval = excluded.min_interval,
			max_interval = excluded.max_interval, added_by = excluded.added_by, added_at = excluded.added_at`,
			[]any{d.Domain, d.autojoin(), d.Server, d.MinInterval.Milliseconds(), d.MaxInterval.Milliseconds(), d.By, millis(at)}}), err
	})
}

// RemoveSearchDomain removes the domain of that name and adds events to the
// history; false, and nothing is written, when there is none. It is on the disk
// when the call returns.
func (s *Store) RemoveSearchDomain(ctx context.Context, name string, events ...peer.Event) (bool, error) {
	found := false
	err := s.change(ctx, onDisk, func(ctx context.Context) ([]op, error) {
		var err error
		if found, err = s.exists(ctx, "SELECT 1 FROM search_domains WHERE domain = ?", name); err != nil || !found {
			return nil, err
		}
		ops, err := s.eventOps(ctx, events)
		return append(ops, op{"DELETE FROM search_domains WHERE domain = ?", []any{name}}), err
	})
	return found && err == nil, err
}

// RememberedConfig returns what RememberConfig was given last; found is false when
// that was nothing.
func (s *Store) RememberedConfig(ctx context.Context) (content []byte, found bool, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		content, err = s.clusterConfig(ctx)
		return err
	})
	return content, err == nil && content != nil, err
}

func (s *Store) clusterConfig(ctx context.Context) ([]byte, error) {
	var content []byte
	err := query(ctx, s.conn, func(scan func(...any) error) error {
		var text string
		err := scan(&text)
		content = []byte(text)
		return err
	}, "SELECT content FROM cluster_config")
	return content, err
}

// RememberConfig keeps what the ClusterConfig says, in JSON; nil forgets it. It is
// on the disk when the call returns, and written only when it is another text than
// before.
func (s *Store) RememberConfig(ctx context.Context, content []byte) error {
	if len(content) > maxConfigLength {
		return fmt.Errorf("the ClusterConfig has %d bytes, at most %d are remembered", len(content), maxConfigLength)
	}
	if content != nil && !json.Valid(content) {
		return errors.New("the ClusterConfig to remember is not JSON")
	}
	return s.change(ctx, onDisk, func(ctx context.Context) ([]op, error) {
		have, err := s.clusterConfig(ctx)
		if err != nil || bytes.Equal(have, content) { // neither is ever empty without being nil
			return nil, err
		}
		if content == nil {
			return []op{{"DELETE FROM cluster_config", nil}}, nil
		}
		return []op{{`INSERT INTO cluster_config (id, content, at) VALUES (1, ?, ?)
			ON CONFLICT (id) DO UPDATE SET content = excluded.content, at = excluded.at`, []any{string(content), millis(s.now())}}}, nil
	})
}
