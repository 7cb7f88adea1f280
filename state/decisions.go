package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"liqo.io/agent/peer"
)

// ClusterID returns our own cluster ID, or "" when none was decided yet.
func (s *Store) ClusterID(ctx context.Context) (peer.ClusterID, error) {
	var id peer.ClusterID
	err := s.read(ctx, func(ctx context.Context) (err error) {
		id, _, err = s.identity(ctx)
		return err
	})
	return id, err
}

// SetClusterID remembers our own cluster ID and where it came from, a few
// words for people. It is on the disk when the call returns.
func (s *Store) SetClusterID(ctx context.Context, id peer.ClusterID, origin string) error {
	if _, err := peer.ParseClusterID(string(id)); err != nil {
		return err
	}
	return s.change(ctx, onDisk, func(ctx context.Context) ([]op, error) {
		have, from, err := s.identity(ctx)
		if err != nil || have == id && from == origin {
			return nil, err
		}
		return []op{{`INSERT INTO identity (id, cluster_id, origin, decided_at) VALUES (1, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET cluster_id = excluded.cluster_id, origin = excluded.origin, decided_at = excluded.decided_at`,
			[]any{string(id), origin, millis(s.now())}}}, nil
	})
}

// ClusterIDOrigin returns the words given to SetClusterID, or "".
func (s *Store) ClusterIDOrigin(ctx context.Context) (string, error) {
	var origin string
	err := s.read(ctx, func(ctx context.Context) (err error) {
		_, origin, err = s.identity(ctx)
		return err
	})
	return origin, err
}

func (s *Store) identity(ctx context.Context) (id peer.ClusterID, origin string, err error) {
	err = s.conn.QueryRowContext(ctx, "SELECT cluster_id, origin FROM identity").Scan(&id, &origin)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return id, origin, err
}

// Decision is what a person said to a question, if anything: Undecided follows
// the configuration, No stays no whatever the configuration says.
type Decision uint8

// The decisions.
const (
	Undecided Decision = iota
	No
	Yes
)

// Decide turns a person's answer into a Decision.
func Decide(yes bool) Decision {
	if yes {
		return Yes
	}
	return No
}

// Or returns the decision, or byDefault when there is none.
func (d Decision) Or(byDefault bool) bool {
	if d == Undecided {
		return byDefault
	}
	return d == Yes
}

// String returns "undecided", "no" or "yes".
func (d Decision) String() string {
	return [...]string{"undecided", "no", "yes"}[min(d, Yes)]
}

func (d Decision) column() any {
	if d == Undecided {
		return nil
	}
	return int64(d - No)
}

func decision(column sql.NullInt64) Decision {
	if !column.Valid {
		return Undecided
	}
	return Decide(column.Int64 != 0)
}

// Preferences are a person's decisions about one peer. The zero value is a
// peer nobody decided anything about.
type Preferences struct {
	AutoConnect Decision // connect to it whenever it is seen
	AutoAccept  Decision // accept its requests without asking
	Blocked     Decision // refuse it in both directions
	Alias       string   // a name for it on this box; no two peers share one
	Note        string   // free text, one line
	URL         string   // where a person said that it is, https://host:port
	// BlockedHosts are host names that the block holds for, whoever is there; see
	// JoinHosts.
	BlockedHosts string
}

// hostSeparator is in no host name.
const hostSeparator = "/"

// JoinHosts returns host names as Preferences keep them.
func JoinHosts(hosts []string) string { return strings.Join(hosts, hostSeparator) }

// Hosts returns the host names that the block holds for.
func (p Preferences) Hosts() []string {
	if p.BlockedHosts == "" {
		return nil
	}
	return strings.Split(p.BlockedHosts, hostSeparator)
}

const (
	// maxNoteLength bounds a note, in bytes.
	maxNoteLength = 500
	// maxURLLength bounds a URL, in bytes.
	maxURLLength = 1024
)

// Preferences returns what was decided about a peer; the zero value when
// nothing was.
func (s *Store) Preferences(ctx context.Context, id peer.ClusterID) (Preferences, error) {
	var p Preferences
	err := s.read(ctx, func(ctx context.Context) (err error) {
		p, err = s.preferences(ctx, id)
		return err
	})
	return p, err
}

func (s *Store) preferences(ctx context.Context, id peer.ClusterID) (Preferences, error) {
	var p Preferences
	err := query(ctx, s.conn, func(scan func(...any) error) error { return scanPreferences(scan, &id, &p) },
		preferencesColumns+" WHERE cluster_id = ?", string(id))
	return p, err
}

// SetAlias names a peer; "" takes the name away. The alias follows the rules
// of a cluster name; ErrAliasTaken when another peer has it. It is on the disk
// when the call returns.
func (s *Store) SetAlias(ctx context.Context, id peer.ClusterID, alias string) error {
	return s.UpdatePreferences(ctx, id, func(p *Preferences) { p.Alias = alias })
}

// UpdatePreferences lets edit change what was decided about a peer, which need
// not be known otherwise, and keeps the result. edit must not call the Store.
// The decision is on the disk when the call returns.
func (s *Store) UpdatePreferences(ctx context.Context, id peer.ClusterID, edit func(*Preferences)) error {
	if _, err := peer.ParseClusterID(string(id)); err != nil {
		return err
	}
	return s.change(ctx, onDisk, func(ctx context.Context) ([]op, error) {
		have, err := s.preferences(ctx, id)
		if err != nil {
			return nil, err
		}
		want := have
		edit(&want)
		return s.preferencesOps(ctx, id, have, want)
	})
}

// preferencesOps makes want of have.
func (s *Store) preferencesOps(ctx context.Context, id peer.ClusterID, have, want Preferences) ([]op, error) {
	if want == have {
		return nil, nil
	}
	if err := s.validPreferences(ctx, id, want); err != nil {
		return nil, err
	}
	if want == (Preferences{}) {
		return []op{{"DELETE FROM preferences WHERE cluster_id = ?", []any{string(id)}}}, nil
	}
	return []op{{`INSERT INTO preferences (cluster_id, auto_connect, auto_accept, blocked, alias, note, url, blocked_hosts, changed_at)
		VALUES (?, ?, ?, ?, NULLIF(?, ''), NULLIF(?, ''), NULLIF(?, ''), NULLIF(?, ''), ?)
		ON CONFLICT (cluster_id) DO UPDATE SET auto_connect = excluded.auto_connect, auto_accept = excluded.auto_accept,
		blocked = excluded.blocked, alias = excluded.alias, note = excluded.note, url = excluded.url,
		blocked_hosts = excluded.blocked_hosts, changed_at = excluded.changed_at`,
		[]any{string(id), want.AutoConnect.column(), want.AutoAccept.column(), want.Blocked.column(),
			want.Alias, want.Note, want.URL, want.BlockedHosts, millis(s.now())}}}, nil
}

func (s *Store) validPreferences(ctx context.Context, id peer.ClusterID, p Preferences) error {
	if len(p.Note) > maxNoteLength {
		return fmt.Errorf("note is %d bytes long, at most %d are allowed", len(p.Note), maxNoteLength)
	}
	if err := validURL(p.URL); err != nil {
		return err
	}
	if p.Alias == "" {
		return nil
	}
	if _, err := peer.ParseClusterName(p.Alias); err != nil {
		return fmt.Errorf("alias: %w", err)
	}
	return query(ctx, s.conn, func(scan func(...any) error) error {
		var owner string
		if err := scan(&owner); err != nil {
			return err
		}
		return &fault{kind: ErrAliasTaken, text: fmt.Sprintf(
			"alias %q already belongs to peer %s: choose another, or take it away from that peer first", p.Alias, owner)}
	}, "SELECT cluster_id FROM preferences WHERE alias = ? AND cluster_id <> ?", p.Alias, string(id))
}

// validURL refuses what cannot be the URL of an endpoint; "" is none.
func validURL(text string) error {
	if text == "" {
		return nil
	}
	if len(text) > maxURLLength {
		return fmt.Errorf("URL is %d bytes long, at most %d are allowed", len(text), maxURLLength)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return fmt.Errorf("URL %q must look like https://host:port", text)
	}
	return nil
}
