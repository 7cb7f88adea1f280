package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"liqo.io/agent/peer"
)

// Ruling is everything that was decided about one peer, and what is remembered
// of the peerings with it. The zero value is a peer nobody decided anything
// about. Rulings can be compared with ==, once stored.
type Ruling struct {
	Pin         Pin      // the key that is trusted; zero for none
	Distrust    Distrust // never together with a Pin
	Preferences Preferences
	Peering     Peering
}

// Pin is a trusted key and what the decision stands on.
type Pin struct {
	peer.Pin
	// Basis is the key that the decision named, before any rotation; of a pin by
	// the fleet's authority, that authority's key.
	Basis peer.Fingerprint
}

// Distrust is a person's word that a cluster is not to be trusted.
type Distrust struct {
	Fingerprint peer.Fingerprint // the key that was shown then; zero for none
	By          string           // who said so; "" when nobody did
	At          time.Time
}

// Peering is what is remembered of the peerings with one peer.
type Peering struct {
	Joined      bool   // we consumed its resources
	Once        bool   // we are to consume them until that ends, and not beyond
	HungUp      bool   // a person deleted its ForeignCluster, and it has not been away since
	EndedByPeer string // why the peer ended our consuming its resources, for people
	NodeName    string // of the node here that stands for it; "" while it never had one

	Served   bool             // it consumed ours
	Request  string           // the phase of its last request; "" for none
	Ended    string           // why we ended its last request, for people
	Rejected peer.Fingerprint // the key whose request a person rejected

	// JoinStamp and TrustStamp name the last edits with kubectl that were taken
	// in.
	JoinStamp, TrustStamp string

	// Forgotten: it was forgotten, and objects may still say what was wanted of it
	// before. Of all that was known only the stamps are left then.
	Forgotten bool
}

// ErrInviteVoid is returned for an invite that does not exist, was used or
// revoked, or has expired.
var ErrInviteVoid = errors.New("the invite is not valid any more")

// normal returns r as it is read back.
func (r Ruling) normal() Ruling {
	for _, at := range []*time.Time{&r.Pin.At, &r.Pin.NotBefore, &r.Pin.NotAfter, &r.Pin.Suspended} {
		*at = fromMillis(millis(*at))
	}
	r.Distrust.At = fromMillis(millis(r.Distrust.At))
	r.Pin.By, r.Pin.Detail, r.Distrust.By = clip(r.Pin.By), clip(r.Pin.Detail), clip(r.Distrust.By)
	r.Peering.EndedByPeer, r.Peering.Ended = clip(r.Peering.EndedByPeer), clip(r.Peering.Ended)
	return r
}

// Rulings returns what was decided about every peer that anything was decided
// about.
func (s *Store) Rulings(ctx context.Context) (map[peer.ClusterID]Ruling, error) {
	var all map[peer.ClusterID]Ruling
	err := s.read(ctx, func(ctx context.Context) (err error) {
		all, err = s.rulings(ctx, "")
		return err
	})
	return all, err
}

// Ruling returns what was decided about one peer.
func (s *Store) Ruling(ctx context.Context, id peer.ClusterID) (Ruling, error) {
	var all map[peer.ClusterID]Ruling
	err := s.read(ctx, func(ctx context.Context) (err error) {
		all, err = s.rulings(ctx, id)
		return err
	})
	return all[id], err
}

// SetRuling makes r everything that was decided about a peer, and adds events
// to the history, in one transaction; in none when nothing changes and there
// are no events. It is on the disk when the call returns. The errors to expect
// are those of UpdatePreferences.
func (s *Store) SetRuling(ctx context.Context, id peer.ClusterID, r Ruling, events ...peer.Event) error {
	return s.change(ctx, onDisk, func(ctx context.Context) ([]op, error) { return s.rulingOps(ctx, id, r, events) })
}

// UseInvite does what SetRuling does for the bearer of an invite, and uses the
// invite up, all of it or nothing. Of two bearers of one invite the second gets
// ErrInviteVoid. at is the time now.
func (s *Store) UseInvite(ctx context.Context, invite string, at time.Time, id peer.ClusterID, r Ruling, events ...peer.Event) error {
	return s.change(ctx, onDisk, func(ctx context.Context) ([]op, error) {
		live, err := s.exists(ctx, "SELECT 1 FROM invites WHERE id = ? AND "+liveInvite, invite, millis(at))
		if err != nil {
			return nil, err
		}
		if !live {
			return nil, ErrInviteVoid
		}
		ops, err := s.rulingOps(ctx, id, r, events)
		return append(ops, op{"UPDATE invites SET used_at = ?, used_by = ? WHERE id = ?", []any{millis(at), string(id), invite}}), err
	})
}

func (s *Store) rulingOps(ctx context.Context, id peer.ClusterID, r Ruling, events []peer.Event) ([]op, error) {
	if _, err := peer.ParseClusterID(string(id)); err != nil {
		return nil, err
	}
	if r = r.normal(); r.Pin.ID != "" && r.Pin.ID != id || (r.Pin.ID == "") != r.Pin.Fingerprint.IsZero() {
		return nil, fmt.Errorf("the pin of %s belongs to %q and names the key %q", id, r.Pin.ID, r.Pin.Fingerprint)
	}
	if r.Pin.ID != "" && r.Distrust.By != "" {
		return nil, fmt.Errorf("the key of %s is both trusted and distrusted", id)
	}
	stored, err := s.rulings(ctx, id)
	if err != nil {
		return nil, err
	}
	have := stored[id]
	ops, err := s.preferencesOps(ctx, id, have.Preferences, r.Preferences)
	if err != nil {
		return nil, err
	}
	if r.Pin != have.Pin || r.Distrust != have.Distrust {
		ops = append(ops, trustOp(id, r))
	}
	if r.Peering != have.Peering {
		ops = append(ops, peeringOp(id, r.Peering))
	}
	eventOps, err := s.eventOps(ctx, events)
	return append(ops, eventOps...), err
}

func trustOp(id peer.ClusterID, r Ruling) op {
	const insert = `INSERT OR REPLACE INTO trust (cluster_id, trusted, fingerprint, basis, method, decided_by, decided_at, detail, host, domain,
		not_before, not_after, suspended_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	switch {
	case r.Pin.ID != "":
		return op{insert, []any{string(id), 1, fingerprintColumn(r.Pin.Fingerprint), fingerprintColumn(r.Pin.Basis),
			string(r.Pin.Method), r.Pin.By, millis(r.Pin.At), r.Pin.Detail, r.Pin.Host, r.Pin.Domain,
			millis(r.Pin.NotBefore), millis(r.Pin.NotAfter), millis(r.Pin.Suspended)}}
	case r.Distrust != (Distrust{}):
		return op{insert, []any{string(id), 0, fingerprintColumn(r.Distrust.Fingerprint), nil, "", r.Distrust.By, millis(r.Distrust.At), "", "", "", 0, 0, 0}}
	}
	return op{"DELETE FROM trust WHERE cluster_id = ?", []any{string(id)}}
}

func peeringOp(id peer.ClusterID, p Peering) op {
	if p == (Peering{}) {
		return op{"DELETE FROM peerings WHERE cluster_id = ?", []any{string(id)}}
	}
	return op{`INSERT OR REPLACE INTO peerings (cluster_id, joined, once, hung_up, ended_by_peer, served, request, ended, rejected,
		connect_stamp, trust_stamp, node, forgotten) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		[]any{string(id), p.Joined, p.Once, p.HungUp, p.EndedByPeer, p.Served, p.Request, p.Ended, fingerprintColumn(p.Rejected),
			p.JoinStamp, p.TrustStamp, p.NodeName, p.Forgotten}}
}

// rulings returns what was decided about the peer with the given ID, or about
// all. A pin whose columns make no sense any more is no pin.
func (s *Store) rulings(ctx context.Context, id peer.ClusterID) (map[peer.ClusterID]Ruling, error) {
	where, args := "", []any(nil)
	if id != "" {
		where, args = " WHERE cluster_id = ?", []any{string(id)}
	}
	all := map[peer.ClusterID]Ruling{}
	with := func(id peer.ClusterID, edit func(*Ruling)) {
		r := all[id]
		edit(&r)
		all[id] = r
	}
	err := query(ctx, s.conn, func(scan func(...any) error) error {
		var id peer.ClusterID
		var prefs Preferences
		if err := scanPreferences(scan, &id, &prefs); err != nil {
			return err
		}
		with(id, func(r *Ruling) { r.Preferences = prefs })
		return nil
	}, preferencesColumns+where, args...)
	if err != nil {
		return nil, err
	}
	err = query(ctx, s.conn, func(scan func(...any) error) error {
		var p Pin
		var trusted bool
		var fingerprint, basis []byte
		var at, begin, end, suspended int64
		if err := scan(&p.ID, &trusted, &fingerprint, &basis, &p.Method, &p.By, &at, &p.Detail, &p.Host, &p.Domain, &begin, &end, &suspended); err != nil {
			return err
		}
		copy(p.Fingerprint[:], fingerprint)
		copy(p.Basis[:], basis)
		p.At, p.NotBefore, p.NotAfter, p.Suspended = fromMillis(at), fromMillis(begin), fromMillis(end), fromMillis(suspended)
		with(p.ID, func(r *Ruling) {
			if trusted {
				r.Pin = p
			} else {
				r.Distrust = Distrust{p.Fingerprint, p.By, p.At}
			}
		})
		return nil
	}, `SELECT cluster_id, trusted, fingerprint, basis, method, decided_by, decided_at, detail, host, domain, not_before, not_after, suspended_at
		FROM trust`+where, args...)
	if err != nil {
		return nil, err
	}
	err = query(ctx, s.conn, func(scan func(...any) error) error {
		var id peer.ClusterID
		var p Peering
		var rejected []byte
		if err := scan(&id, &p.Joined, &p.Once, &p.HungUp, &p.EndedByPeer, &p.Served, &p.Request, &p.Ended, &rejected,
			&p.JoinStamp, &p.TrustStamp, &p.NodeName, &p.Forgotten); err != nil {
			return err
		}
		copy(p.Rejected[:], rejected)
		with(id, func(r *Ruling) { r.Peering = p })
		return nil
	}, `SELECT cluster_id, joined, once, hung_up, ended_by_peer, served, request, ended, rejected, connect_stamp, trust_stamp, node, forgotten
		FROM peerings`+where, args...)
	return all, err
}

const preferencesColumns = "SELECT cluster_id, auto_connect, auto_accept, blocked, alias, note, url, blocked_hosts FROM preferences"

func scanPreferences(scan func(...any) error, id *peer.ClusterID, p *Preferences) error {
	var connect, accept, blocked sql.NullInt64
	var alias, note, url, hosts sql.NullString
	if err := scan(id, &connect, &accept, &blocked, &alias, &note, &url, &hosts); err != nil {
		return err
	}
	*p = Preferences{decision(connect), decision(accept), decision(blocked), alias.String, note.String, url.String, hosts.String}
	return nil
}
