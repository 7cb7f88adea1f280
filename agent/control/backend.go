package control

import (
	"context"

	"liqo.io/agent/peer"
)

// Backend is what the server asks. All methods may be called from many
// goroutines at once; what they return is not changed afterwards by either
// side. An error with a method Try() string passes its advice on to the user,
// and one that wraps an Err value of this package its kind.
//
// by is who asks, for people and the history: "user alice (command line)". It
// is what the kernel says about the caller.
type Backend interface {
	Viewer
	Decider
	Keeper
	Domains
	Adverts
	Resetter
	Diagnoser
}

// Viewer tells what there is. Its methods are quick: they touch no network.
type Viewer interface {
	// Status returns the agent's own state. LogLevel and UptimeSeconds are
	// filled in by the server.
	Status(ctx context.Context) (Status, error)
	// Peers returns everything known: present, unverified and remembered.
	Peers(ctx context.Context) ([]Peer, error)
	// Peer returns one of them; the error wraps ErrNotFound when there is none.
	Peer(ctx context.Context, id peer.ClusterID) (Peer, error)
	// Requests returns what waits for a person, and what a person refused and is
	// asked for still: asks of strangers, who may or may not be among the peers,
	// and PeeringRequests.
	Requests(ctx context.Context) ([]Request, error)
	// History returns entries of the history, oldest first.
	History(ctx context.Context, q HistoryQuery) ([]peer.Event, error)
	// Config returns the configuration in use.
	Config(ctx context.Context) (Config, error)
}

// Decider takes people's decisions about peers. Its methods return when the
// decision is on the disk, and do not wait for what follows from it. The
// decisions are about clusters known by ID: one that is among the peers or the
// requests, unless a method says more.
type Decider interface {
	// Connect wants the peer's resources consumed: now, and unless opts.Once
	// whenever it is there. It returns the peer's ID, under which Peer finds it
	// from then on. It may take up to ten seconds to ask a URL who is there; a
	// peer named by ID need not be reachable.
	//
	// When the peer's key is not trusted and opts.Fingerprint is zero, nothing
	// is changed and the error is that of NotTrusted. A fingerprint is pinned,
	// if it is that of the key which the peer shows or showed; else the error
	// wraps ErrRefused. A token that is wrong wraps ErrInvalid, a blocked peer
	// ErrRefused, a URL that does not answer ErrUnavailable.
	Connect(ctx context.Context, opts ConnectOptions) (peer.ClusterID, error)
	// Disconnect ends our consuming the peer's resources, or with incoming the
	// peer's consuming ours, and remembers that.
	Disconnect(ctx context.Context, id peer.ClusterID, incoming bool, by string) error
	// Accept lets the peer in, now and in future, also before it asked. A zero
	// fingerprint is as with Connect.
	Accept(ctx context.Context, id peer.ClusterID, fingerprint peer.Fingerprint, by string) error
	// Reject refuses what waits. The error wraps ErrNotFound when nothing does.
	Reject(ctx context.Context, id peer.ClusterID, by string) error
	// Block ends everything with the peer, in both directions, until Unblock.
	Block(ctx context.Context, id peer.ClusterID, by string) error
	// Unblock undoes Block; what was ended stays so.
	Unblock(ctx context.Context, id peer.ClusterID, by string) error
	// Trust pins a key. A zero fingerprint is as with Connect, also when another
	// key is pinned and the peer, or somebody in conflict with it, shows a new
	// one: the error then has Shown.Pinned set. When the key which the peer
	// shows is pinned already, nothing is changed.
	Trust(ctx context.Context, id peer.ClusterID, fingerprint peer.Fingerprint, by string) error
	// Distrust removes the pin and says that the key is not to be trusted.
	Distrust(ctx context.Context, id peer.ClusterID, by string) error
	// Set changes what is remembered.
	Set(ctx context.Context, id peer.ClusterID, patch PreferencesPatch, by string) error
	// SetAlias names a peer; "" removes the name.
	SetAlias(ctx context.Context, id peer.ClusterID, alias string) error
	// Forget drops everything that is remembered about the peer: trust,
	// preferences, alias. Peerings with it are ended.
	Forget(ctx context.Context, id peer.ClusterID, by string) error
}

// Keeper keeps what this cluster shows to others: invites and its key.
type Keeper interface {
	// Invite makes an invite. Only its answer has the token.
	Invite(ctx context.Context, opts InviteOptions) (Invite, error)
	// Invites returns those that are open, and those used, expired or revoked
	// lately, newest first.
	Invites(ctx context.Context) ([]Invite, error)
	// RevokeInvite makes an invite useless. The error wraps ErrNotFound when there
	// is no open one of that ID.
	RevokeInvite(ctx context.Context, id, by string) error
	// Key returns the key of this cluster, without its private part.
	Key(ctx context.Context) (Key, error)
	// RotateKey makes a new key, signed by the old one, and returns it.
	RotateKey(ctx context.Context, by string) (Key, error)
	// CSR returns a certificate signing request (PEM) of the cluster key for host
	// names or addresses, for a public certificate authority.
	CSR(ctx context.Context, names []string) (string, error)
}
