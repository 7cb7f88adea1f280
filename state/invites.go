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

// liveInvite is Live in SQL; its parameter is the time.
const liveInvite = "used_at = 0 AND revoked_at = 0 AND expires_at > ?"

const inviteColumns = "SELECT id, secret_hash, created_at, created_by, expires_at, note, used_at, used_by, revoked_at FROM invites"

// AddInvite keeps an invite and adds events to the history. It is on the disk
// when the call returns. ErrInvites when too many are open.
func (s *Store) AddInvite(ctx context.Context, i Invite, events ...peer.Event) error {
	if len(i.Note) > maxNoteLength {
		return fmt.Errorf("note is %d bytes long, at most %d are allowed", len(i.Note), maxNoteLength)
	}
	return s.change(ctx, onDisk, func(ctx context.Context) ([]op, error) {
		var open int
		if err := s.conn.QueryRowContext(ctx, "SELECT count(*) FROM invites WHERE "+liveInvite, millis(i.CreatedAt)).Scan(&open); err != nil {
			return nil, err
		}
		if open >= MaxInvites {
			return nil, &fault{kind: ErrInvites, text: fmt.Sprintf("%d invites are open, more are not allowed: revoke some, or wait until they expire", open)}
		}
		ops, err := s.eventOps(ctx, events)
		return append(ops, op{`INSERT INTO invites (id, secret_hash, created_at, created_by, expires_at, note, used_at, used_by, revoked_at)
			VALUES (?, ?, ?, ?, ?, ?, 0, '', 0)`,
			[]any{i.ID, i.SecretHash[:], millis(i.CreatedAt), i.CreatedBy, millis(i.ExpiresAt), i.Note}}), err
	})
}

// Invites returns all invites that are remembered, oldest first. Those that can
// no longer be used are remembered as long as the history (see Prune).
func (s *Store) Invites(ctx context.Context) ([]Invite, error) {
	var invites []Invite
	err := s.read(ctx, func(ctx context.Context) error {
		return query(ctx, s.conn, func(scan func(...any) error) error {
			i, err := scanInvite(scan)
			invites = append(invites, i)
			return err
		}, inviteColumns+" ORDER BY created_at, id")
	})
	return invites, err
}

// Invite returns the invite with that ID; found is false when there is none.
func (s *Store) Invite(ctx context.Context, id string) (i Invite, found bool, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		return query(ctx, s.conn, func(scan func(...any) error) (err error) {
			i, err = scanInvite(scan)
			found = err == nil
			return err
		}, inviteColumns+" WHERE id = ?", id)
	})
	return i, found, err
}

func scanInvite(scan func(...any) error) (Invite, error) {
	var i Invite
	var hash []byte
	var created, expires, used, revoked int64
	err := scan(&i.ID, &hash, &created, &i.CreatedBy, &expires, &i.Note, &used, &i.UsedBy, &revoked)
	copy(i.SecretHash[:], hash)
	i.CreatedAt, i.ExpiresAt, i.UsedAt, i.RevokedAt = fromMillis(created), fromMillis(expires), fromMillis(used), fromMillis(revoked)
	return i, err
}

// RevokeInvite makes the one invite whose ID begins with prefix void, and adds
// the events that note returns for it to the history. It is on the disk when
// the call returns. An error says that no invite, or more than one, begins so,
// or wraps ErrInviteVoid when it cannot be used any more anyway.
func (s *Store) RevokeInvite(ctx context.Context, prefix string, at time.Time, note func(Invite) []peer.Event) error {
	prefix = strings.ToLower(prefix)
	return s.change(ctx, onDisk, func(ctx context.Context) ([]op, error) {
		var matches []Invite
		err := query(ctx, s.conn, func(scan func(...any) error) error {
			i, err := scanInvite(scan)
			matches = append(matches, i)
			return err
		}, inviteColumns+" WHERE substr(id, 1, length(?1)) = ?1 AND ?1 <> '' LIMIT 2", prefix)
		if err != nil {
			return nil, err
		}
		switch {
		case len(matches) == 0:
			return nil, fmt.Errorf("no invite begins with %q: see which there are with liqo-agent invite list", prefix)
		case len(matches) > 1:
			return nil, fmt.Errorf("more than one invite begins with %q: name more of it", prefix)
		case !matches[0].Live(at):
			return nil, &fault{kind: ErrInviteVoid, text: fmt.Sprintf("invite %s cannot be used any more anyway", matches[0].ID)}
		}
		ops, err := s.eventOps(ctx, note(matches[0]))
		return append(ops, op{"UPDATE invites SET revoked_at = ? WHERE id = ?", []any{millis(at), matches[0].ID}}), err
	})
}
