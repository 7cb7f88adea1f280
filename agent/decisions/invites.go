package decisions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// eventInviteRevoked is a peer.EventKind of the history that only invites have.
const eventInviteRevoked peer.EventKind = "invite-revoked"

// MaxInviteLifetime is how long an invite can be open.
const MaxInviteLifetime = 365 * 24 * time.Hour

// Invite creates a one-time token, valid for ttl, with which any bearer is accepted. Only
// the first result has the secret.
func (s *Store) Invite(ctx context.Context, ttl time.Duration, note, by string) (trust.Invite, state.Invite, error) {
	if ttl <= 0 || ttl > MaxInviteLifetime {
		return trust.Invite{}, state.Invite{}, fmt.Errorf("an invite cannot be open for %s: choose a time of at most %s", ttl, MaxInviteLifetime)
	}
	token, err := trust.NewInvite(s.cfg.Self(), s.cfg.SelfKey())
	if err != nil {
		return trust.Invite{}, state.Invite{}, err
	}
	now := s.cfg.Now()
	invite := state.Invite{ID: token.IDString(), SecretHash: token.Hash(), CreatedAt: now, CreatedBy: or(by, "a person"), ExpiresAt: now.Add(ttl), Note: text.Sentence(note)}
	created := s.event(s.cfg.Self(), peer.EventInviteCreated, "invite %s, by %s, until %s", invite.ID, invite.CreatedBy, invite.ExpiresAt.UTC().Format(time.RFC3339))
	if err := s.cfg.Database.AddInvite(ctx, invite, created); err != nil {
		return trust.Invite{}, state.Invite{}, err
	}
	s.readInvites(ctx)
	return token, invite, nil
}

// Invites returns the invites that this cluster gave out, oldest first, those
// that can no longer be used included for some time.
func (s *Store) Invites(ctx context.Context) ([]state.Invite, error) {
	return s.cfg.Database.Invites(ctx)
}

// RevokeInvite makes the invite whose ID begins so void.
func (s *Store) RevokeInvite(ctx context.Context, idPrefix, by string) error {
	defer s.readInvites(ctx)
	return s.cfg.Database.RevokeInvite(ctx, idPrefix, s.cfg.Now(), func(i state.Invite) []peer.Event {
		return []peer.Event{s.event(s.cfg.Self(), eventInviteRevoked, "invite %s, by %s", i.ID, or(by, "a person"))}
	})
}

// LiveInvites returns the invites that can be used now. It does not wait for the database: whoever looks at the agent does not
// wait for a slow disk.
func (s *Store) LiveInvites() (live []state.Invite) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.cfg.Now()
	for _, i := range s.invites {
		if i.Live(now) {
			live = append(live, i)
		}
	}
	return live
}

// readInvites has LiveInvites see a change, also when the caller does not wait any more: what was stored is stored.
func (s *Store) readInvites(ctx context.Context) {
	s.inviting.Lock()
	defer s.inviting.Unlock()
	invites, err := s.cfg.Database.Invites(context.WithoutCancel(ctx))
	if err != nil {
		s.cfg.Logger.Warn("the invites cannot be read, and are shown as they were", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.invites = invites
}

// UseInvite uses an invite here, as its bearer: it trusts the key of the issuer, and
// connects to it. The secret is kept in memory until TokenUsed.
func (s *Store) UseInvite(ctx context.Context, invite trust.Invite, by string) error {
	id := invite.Issuer
	if id == s.cfg.Self() {
		return errors.New("this cluster created the invite: use it on the cluster that connects")
	}
	ref := s.reference(id)
	return s.rule(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		if err := s.mayConnect(id, r, ref); err != nil {
			return decision{}, err
		}
		if r.pinned() && r.Pin.Fingerprint != invite.Fingerprint {
			return decision{}, fmt.Errorf("the trusted key of %s is %s, but the invite names %s: if that is right, trust it with: liqo-agent peers trust %s --fingerprint %s, then use the invite again",
				ref, r.Pin.Fingerprint, invite.Fingerprint, ref, invite.Fingerprint)
		}
		events, err := s.trustByPerson(r, id, invite.Fingerprint, peer.TrustInvite, by, "invite "+invite.IDString()+" names it")
		if err != nil {
			return decision{}, err
		}
		r.token = invite.Wire()
		d := s.connect(id, r, false, or(by, "a person")+", with invite "+invite.IDString())
		d.events = append(events, d.events...)
		return d, nil
	})
}

// TokenUsed forgets the secret of an invite, because its issuer has answered.
func (s *Store) TokenUsed(id peer.ClusterID) {
	if s.record(id).token == "" {
		return
	}
	s.follow(context.Background(), id, func(_ peer.ClusterID, r *record) (decision, error) {
		r.token = ""
		return decision{}, nil
	})
}
