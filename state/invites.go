package state

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"liqo.io/agent/peer"
)

// MaxInvites is the number of invites that can be open at once.
const MaxInvites = 256

// ErrInvites is returned when MaxInvites are open already.
var ErrInvites = errors.New("too many invites are open")

// ErrInviteVoid is returned for an invite that does not exist, was used or
// revoked, or has expired.
var ErrInviteVoid = errors.New("the invite is not valid any more")

// Invite is a one-time token that this cluster gave out. Of its secret only
// the hash is kept.
type Invite struct {
	ID         string   // 16 hexadecimal digits
	SecretHash [32]byte // SHA-256
	CreatedAt  time.Time
	CreatedBy  string // for people
	ExpiresAt  time.Time
	Note       string         // for people, at most 500 bytes
	UsedAt     time.Time      // zero: not used
	UsedBy     peer.ClusterID // the bearer
	RevokedAt  time.Time      // zero: not revoked
}

// Live reports whether the invite can still be used at that time.
func (i Invite) Live(at time.Time) bool {
	return i.UsedAt.IsZero() && i.RevokedAt.IsZero() && millis(i.ExpiresAt) > millis(at)
}

// Invites that can no longer be used are remembered as long as the history.
var inviteTable = describe(table[Invite]{
	aspects: aspects{name: "invites",
		expired: "min(expires_at, iif(used_at = 0, expires_at, used_at), iif(revoked_at = 0, expires_at, revoked_at)) < ?1"},
	columns: func(i *Invite) []column {
		return []column{{"id", &i.ID, key}, {"secret_hash", (*hash)(&i.SecretHash), value}, {"created_at", at(&i.CreatedAt), value},
			{"created_by", &i.CreatedBy, value}, {"expires_at", at(&i.ExpiresAt), value}, {"note", atMost(maxNoteLength, "note", &i.Note), value},
			{"used_at", at(&i.UsedAt), value}, {"used_by", &i.UsedBy, value}, {"revoked_at", at(&i.RevokedAt), value}}
	},
})

// AddInvite keeps an invite and adds events to the history. It is on the disk
// when the call returns. ErrInvites when too many are open.
func (s *Store) AddInvite(ctx context.Context, i Invite, events ...peer.Event) error {
	return s.change(ctx, onDisk, func(ctx context.Context) ([]op, error) {
		all, err := inviteTable.read(ctx, s.conn, "")
		if err != nil {
			return nil, err
		}
		open := 0
		for _, old := range all {
			if old.ID == i.ID {
				return nil, fmt.Errorf("invite %s is there already", i.ID)
			}
			if old.Live(i.CreatedAt) {
				open++
			}
		}
		if open >= MaxInvites {
			return nil, &fault{kind: ErrInvites, text: fmt.Sprintf("%d invites are open, more are not allowed: revoke some, or wait until they expire", open)}
		}
		return s.changeInvite(ctx, nil, &i, events)
	})
}

func (s *Store) changeInvite(ctx context.Context, have, want *Invite, events []peer.Event) ([]op, error) {
	var b batch
	b.add(s.eventOps(ctx, events))
	b.add(inviteTable.change(have, want))
	return b.ops, b.err
}

// Invites returns all invites that are remembered, oldest first. Those that can
// no longer be used are remembered as long as the history (see Prune).
func (s *Store) Invites(ctx context.Context) ([]Invite, error) {
	return inviteTable.rows(ctx, s, "ORDER BY created_at, id")
}

// Invite returns the invite with that ID; found is false when there is none.
func (s *Store) Invite(ctx context.Context, id string) (i Invite, found bool, err error) {
	rows, err := inviteTable.rows(ctx, s, "WHERE id = ?", id)
	return append(rows, Invite{})[0], len(rows) > 0, err
}

// UseInvite does what SetRuling does for the bearer of an invite, and uses the
// invite up, all of it or nothing. Of two bearers of one invite the second gets
// ErrInviteVoid. at is the time now.
func (s *Store) UseInvite(ctx context.Context, invite string, at time.Time, id peer.ClusterID, r Ruling, events ...peer.Event) error {
	return s.change(ctx, onDisk, func(ctx context.Context) ([]op, error) {
		have, err := inviteTable.one(ctx, s.conn, "WHERE id = ?", invite)
		if err != nil {
			return nil, err
		}
		if have == nil || !have.Live(at) {
			return nil, ErrInviteVoid
		}
		used := *have
		used.UsedAt, used.UsedBy = at, id
		var b batch
		b.add(s.rulingOps(ctx, id, r))
		b.add(s.changeInvite(ctx, have, &used, events))
		return b.ops, b.err
	})
}

// RevokeInvite makes the one invite whose ID begins with prefix void, and adds
// the events that note returns for it to the history. It is on the disk when
// the call returns. An error says that no invite, or more than one, begins so,
// or wraps ErrInviteVoid when it cannot be used any more anyway.
func (s *Store) RevokeInvite(ctx context.Context, prefix string, at time.Time, note func(Invite) []peer.Event) error {
	prefix = strings.ToLower(prefix)
	return s.change(ctx, onDisk, func(ctx context.Context) ([]op, error) {
		matches, err := inviteTable.read(ctx, s.conn, "WHERE substr(id, 1, length(?1)) = ?1 AND ?1 <> '' ORDER BY id LIMIT 2", prefix)
		switch {
		case err != nil:
			return nil, err
		case len(matches) == 0:
			return nil, fmt.Errorf("no invite begins with %q: see which there are with liqo-agent invite list", prefix)
		case len(matches) > 1:
			return nil, fmt.Errorf("more than one invite begins with %q: name more of it", prefix)
		case !matches[0].Live(at):
			return nil, &fault{kind: ErrInviteVoid, text: fmt.Sprintf("invite %s cannot be used any more anyway", matches[0].ID)}
		}
		revoked := matches[0]
		revoked.RevokedAt = at
		return s.changeInvite(ctx, &matches[0], &revoked, note(matches[0]))
	})
}
