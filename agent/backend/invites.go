package backend

import (
	"context"
	"net/url"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/state"
)

// tokenURL separates the token of an invite from the address of its issuer.
const tokenURL = "@"

// Invite implements socket.Backend.
func (b *Backend) Invite(ctx context.Context, opts control.InviteOptions) (control.Invite, error) {
	invite, kept, err := b.decisions.Invite(ctx, opts.TTL, opts.Note, opts.By)
	if err != nil {
		return control.Invite{}, err
	}
	out := b.inviteView(kept)
	out.Token = invite.Token()
	if opts.URL != "" {
		u, err := url.Parse(opts.URL)
		if err != nil {
			return control.Invite{}, &control.Error{Kind: control.ErrInvalid, Message: "invalid URL: " + err.Error(), Cause: err}
		}
		out.Token += tokenURL + u.Host
		out.URL = opts.URL
	}
	return out, nil
}

// Invites implements socket.Backend.
func (b *Backend) Invites(ctx context.Context) ([]control.Invite, error) {
	kept, err := b.decisions.Invites(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]control.Invite, 0, len(kept))
	for _, i := range kept {
		out = append(out, b.inviteView(i))
	}
	return out, nil
}

// inviteView is an invite as the control socket shows it.
func (b *Backend) inviteView(i state.Invite) control.Invite {
	out := control.Invite{
		ID: i.ID, State: control.InviteOpen, Note: i.Note, CreatedAt: i.CreatedAt, CreatedBy: i.CreatedBy,
		ExpiresAt: i.ExpiresAt, UsedAt: i.UsedAt, UsedBy: string(i.UsedBy),
	}
	switch {
	case !i.UsedAt.IsZero():
		out.State = control.InviteUsed
	case !i.RevokedAt.IsZero():
		out.State = control.InviteRevoked
	case !b.Now().Before(i.ExpiresAt):
		out.State = control.InviteExpired
	}
	return out
}
