package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

// Connect begins a peering to consume the resources of a peer, and returns the peer
// without waiting for it. ref names a peer as Resolve understands it; it may be "" if
// opts has a URL or a token. opts.ID and opts.By are not sent. If the error wraps
// ErrNotTrusted, its Shown has the key that a person must confirm, by the same call
// with that fingerprint.
func (c *Client) Connect(ctx context.Context, ref string, opts control.ConnectOptions) (control.Peer, error) {
	return call[control.Peer](ctx, c, http.MethodPost, "/v1/connect",
		control.ConnectBody{Peer: ref, URL: opts.URL, Token: opts.Token, Fingerprint: opts.Fingerprint.String(), Once: opts.Once, Asks: opts.Asks})
}

// Disconnect ends the outgoing peering with the peer that ref names, or with incoming
// the incoming one.
func (c *Client) Disconnect(ctx context.Context, ref string, incoming bool) (control.Peer, error) {
	return c.decide(ctx, http.MethodPost, ref, "/disconnect", control.DisconnectBody{Incoming: incoming})
}

// Accept accepts the requests of a peer. A zero fingerprint is as with Connect.
func (c *Client) Accept(ctx context.Context, ref string, fingerprint peer.Fingerprint) (control.Peer, error) {
	return c.decide(ctx, http.MethodPost, ref, "/accept", control.ConfirmBody{Fingerprint: fingerprint.String()})
}

// Reject rejects the waiting request of a peer.
func (c *Client) Reject(ctx context.Context, ref string) (control.Peer, error) {
	return c.decide(ctx, http.MethodPost, ref, "/reject", nil)
}

// Block ends everything with a peer.
func (c *Client) Block(ctx context.Context, ref string) (control.Peer, error) {
	return c.decide(ctx, http.MethodPost, ref, "/block", nil)
}

// Unblock undoes Block.
func (c *Client) Unblock(ctx context.Context, ref string) (control.Peer, error) {
	return c.decide(ctx, http.MethodPost, ref, "/unblock", nil)
}

// Trust pins the key of a peer. A zero fingerprint is as with Connect.
func (c *Client) Trust(ctx context.Context, ref string, fingerprint peer.Fingerprint) (control.Peer, error) {
	return c.decide(ctx, http.MethodPut, ref, "/trust", control.ConfirmBody{Fingerprint: fingerprint.String()})
}

// Distrust marks the key of a peer as not trusted.
func (c *Client) Distrust(ctx context.Context, ref string) (control.Peer, error) {
	return c.decide(ctx, http.MethodDelete, ref, "/trust", nil)
}

// Set changes the preferences for a peer.
func (c *Client) Set(ctx context.Context, ref string, patch control.PreferencesPatch) (control.Peer, error) {
	return c.decide(ctx, http.MethodPatch, ref, "/preferences", patch)
}

// Forget drops everything that is remembered about a peer, and returns what is
// left of it.
func (c *Client) Forget(ctx context.Context, ref string) (control.Peer, error) {
	return c.decide(ctx, http.MethodDelete, ref, "", nil)
}

func (c *Client) decide(ctx context.Context, method, ref, verb string, body any) (control.Peer, error) {
	return call[control.Peer](ctx, c, method, "/v1/peers/"+url.PathEscape(ref)+verb, body)
}

// Requests returns the requests that wait for a decision, and rejected ones.
func (c *Client) Requests(ctx context.Context) ([]control.Request, error) {
	return call[[]control.Request](ctx, c, http.MethodGet, "/v1/requests", nil)
}

// Invite makes an invite. opts.By is not sent.
func (c *Client) Invite(ctx context.Context, opts control.InviteOptions) (control.Invite, error) {
	return call[control.Invite](ctx, c, http.MethodPost, "/v1/invites", control.InviteBody{TTLSeconds: int64(opts.TTL / time.Second), Note: opts.Note, URL: opts.URL})
}

// Invites returns the invites, newest first.
func (c *Client) Invites(ctx context.Context) ([]control.Invite, error) {
	return call[[]control.Invite](ctx, c, http.MethodGet, "/v1/invites", nil)
}

// RevokeInvite revokes an invite. id may be a prefix that no other invite has.
func (c *Client) RevokeInvite(ctx context.Context, id string) error {
	return discard(ctx, c, http.MethodDelete, "/v1/invites/"+url.PathEscape(id), nil)
}

// Key returns the key of this cluster.
func (c *Client) Key(ctx context.Context) (control.Key, error) {
	return call[control.Key](ctx, c, http.MethodGet, "/v1/key", nil)
}

// RotateKey makes a new key for this cluster.
func (c *Client) RotateKey(ctx context.Context) (control.Key, error) {
	return call[control.Key](ctx, c, http.MethodPost, "/v1/key/rotate", nil)
}

// CSR returns a certificate signing request of the cluster key for names.
func (c *Client) CSR(ctx context.Context, names []string) (string, error) {
	out, err := call[control.CSRAnswer](ctx, c, http.MethodPost, "/v1/key/csr", control.CSRBody{Names: names})
	return out.CSR, err
}
