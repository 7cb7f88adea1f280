package control

import (
	"context"

	"liqo.io/agent/peer"
)

// Backend is what the agent implements for the server. All methods are safe for
// concurrent use; neither side changes what they return. If an error has a method
// Try() string, the user gets its advice; if it wraps an Err value of this package,
// that is its kind.
//
// by is the caller, for people and the history: "user alice (command line)". It is
// from the kernel.
type Backend interface {
	Viewer
	Decider
	Keeper
	Domains
	Adverts
	Resetter
	Diagnoser
}

// Viewer returns the present state. Its methods are quick and do not use the network.
type Viewer interface {
	// Status returns the agent's own state. LogLevel and UptimeSeconds are
	// filled in by the server.
	Status(ctx context.Context) (Status, error)
	// Peers returns everything known: present, unverified and remembered.
	Peers(ctx context.Context) ([]Peer, error)
	// Peer returns one of them; the error wraps ErrNotFound when there is none.
	Peer(ctx context.Context, id peer.ClusterID) (Peer, error)
	// Requests returns the requests that wait for a decision, and rejected ones that
	// are repeated: requests for access of untrusted clusters, which need not be
	// among the peers, and PeeringRequests.
	Requests(ctx context.Context) ([]Request, error)
	// History returns entries of the history, oldest first.
	History(ctx context.Context, q HistoryQuery) ([]peer.Event, error)
	// Config returns the configuration in use.
	Config(ctx context.Context) (Config, error)
}

// Decider carries out people's decisions about peers. Its methods return when the
// decision is on the disk, and do not wait for its effects. Each is about a cluster
// among the peers or the requests, unless the method says otherwise.
type Decider interface {
	// Connect begins a peering to consume the peer's resources, and unless opts.Once
	// does so again whenever the peer returns. It returns the ID of the peer. To
	// identify the cluster at a URL takes up to ten seconds; a peer named by ID need
	// not be reachable.
	//
	// When the peer's key is not trusted and opts.Fingerprint is zero, nothing
	// is changed and the error is that of NotTrusted. A fingerprint is pinned,
	// if it is that of the key which the peer shows or showed; else the error
	// wraps ErrRefused. A token that is wrong wraps ErrInvalid, a blocked peer
	// ErrRefused, a URL that does not answer ErrUnavailable.
	Connect(ctx context.Context, opts ConnectOptions) (peer.ClusterID, error)
	// Disconnect ends the outgoing peering, or with incoming the incoming one, and
	// remembers that.
	Disconnect(ctx context.Context, id peer.ClusterID, incoming bool, by string) error
	// Accept accepts the peer's requests, present and future. A zero fingerprint is
	// as with Connect.
	Accept(ctx context.Context, id peer.ClusterID, fingerprint peer.Fingerprint, by string) error
	// Reject rejects the waiting request. The error wraps ErrNotFound if there is none.
	Reject(ctx context.Context, id peer.ClusterID, by string) error
	// Block ends everything with the peer, in both directions, until Unblock.
	Block(ctx context.Context, id peer.ClusterID, by string) error
	// Unblock undoes Block; the ended peerings do not come back by that.
	Unblock(ctx context.Context, id peer.ClusterID, by string) error
	// Trust pins a key. A zero fingerprint is as with Connect, also when another
	// key is pinned and the peer, or somebody in conflict with it, shows a new
	// one: the error then has Shown.Pinned set. When the key which the peer
	// shows is pinned already, nothing is changed.
	Trust(ctx context.Context, id peer.ClusterID, fingerprint peer.Fingerprint, by string) error
	// Distrust removes the pin, and marks the key as not trusted.
	Distrust(ctx context.Context, id peer.ClusterID, by string) error
	// Set changes the preferences for the peer.
	Set(ctx context.Context, id peer.ClusterID, patch PreferencesPatch, by string) error
	// SetAlias names a peer; "" removes the name.
	SetAlias(ctx context.Context, id peer.ClusterID, alias string) error
	// Forget drops everything that is remembered about the peer: trust,
	// preferences, alias. Peerings with it are ended.
	Forget(ctx context.Context, id peer.ClusterID, by string) error
}

// Keeper manages the invites and the key of this cluster.
type Keeper interface {
	// Invite makes an invite. Only its answer has the token.
	Invite(ctx context.Context, opts InviteOptions) (Invite, error)
	// Invites returns the open invites, and those that were used, expired or revoked
	// lately, newest first.
	Invites(ctx context.Context) ([]Invite, error)
	// RevokeInvite revokes an invite. The error wraps ErrNotFound if there is no open
	// one with that ID.
	RevokeInvite(ctx context.Context, id, by string) error
	// Key returns the key of this cluster, without its private part.
	Key(ctx context.Context) (Key, error)
	// RotateKey makes a new key, signed by the old one, and returns it.
	RotateKey(ctx context.Context, by string) (Key, error)
	// CSR returns a certificate signing request (PEM) of the cluster key for host
	// names or addresses, for a public certificate authority.
	CSR(ctx context.Context, names []string) (string, error)
}
