package socket

import (
	"context"

	"liqo.io/agent/agent/control"
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
	Status(ctx context.Context) (control.Status, error)
	// Peers returns everything known: present, unverified and remembered.
	Peers(ctx context.Context) ([]control.Peer, error)
	// Peer returns one of them; the error wraps ErrNotFound when there is none.
	Peer(ctx context.Context, id peer.ClusterID) (control.Peer, error)
	// Requests returns the requests that wait for a decision, and rejected ones that
	// are repeated: requests for access of untrusted clusters, which need not be
	// among the peers, and PeeringRequests.
	Requests(ctx context.Context) ([]control.Request, error)
	// History returns entries of the history, oldest first.
	History(ctx context.Context, q control.HistoryQuery) ([]peer.Event, error)
	// Network returns the network between the pods of this cluster and those of its peers.
	Network(ctx context.Context) (control.Network, error)
	// Storage returns what claims keep at other clusters, and others' claims here.
	Storage(ctx context.Context) (control.Storage, error)
	// Config returns the configuration in use.
	Config(ctx context.Context) (control.Config, error)
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
	Connect(ctx context.Context, opts control.ConnectOptions) (peer.ClusterID, error)
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
	Set(ctx context.Context, id peer.ClusterID, patch control.PreferencesPatch, by string) error
	// SetAlias sets the alias of a peer, which is valid and not taken; "" removes it.
	SetAlias(ctx context.Context, id peer.ClusterID, alias string) error
	// Forget drops everything that is remembered about the peer: trust,
	// preferences, alias. Peerings with it are ended.
	Forget(ctx context.Context, id peer.ClusterID, by string) error
	// ReclaimStorage removes the claims that are only kept of a cluster. The error wraps
	// ErrNotFound if it has none, and ErrRefused if it uses them.
	ReclaimStorage(ctx context.Context, id peer.ClusterID) (control.Reclaimed, error)
}

// Keeper manages the invites and the key of this cluster.
type Keeper interface {
	// Invite makes an invite. Only its answer has the token.
	Invite(ctx context.Context, opts control.InviteOptions) (control.Invite, error)
	// Invites returns the open invites, and those that were used, expired or revoked
	// lately, newest first.
	Invites(ctx context.Context) ([]control.Invite, error)
	// RevokeInvite revokes an invite. The error wraps ErrNotFound if there is no open
	// one with that ID.
	RevokeInvite(ctx context.Context, id, by string) error
	// Key returns the key of this cluster, without its private part.
	Key(ctx context.Context) (control.Key, error)
	// RotateKey makes a new key, signed by the old one, and returns it.
	RotateKey(ctx context.Context, by string) (control.Key, error)
	// CSR returns a certificate signing request (PEM) of the cluster key for host
	// names or addresses, for a public certificate authority.
	CSR(ctx context.Context, names []string) (string, error)
}

// Domains is the part of a Backend about search domains.
type Domains interface {
	// Domains returns every search domain, sorted by name.
	Domains(ctx context.Context) ([]control.Domain, error)
	// AddDomain adds a search domain, or changes one that was added with it. The error
	// wraps ErrRefused if the configuration file or a SearchDomain sets the domain:
	// these take precedence.
	AddDomain(ctx context.Context, opts control.DomainOptions) error
	// RemoveDomain removes a domain that was added with AddDomain. Here and below, name
	// is as Domains returns it. The error wraps ErrNotFound if there is none of that
	// name, and ErrRefused if the domain is set somewhere else.
	RemoveDomain(ctx context.Context, name, by string) error
	// AskDomain queries a domain now, without waiting for the result. The error wraps
	// ErrNotFound if there is none of that name.
	AskDomain(ctx context.Context, name string) error
}

// Adverts is the part of a Backend about what other clusters offer.
type Adverts interface {
	// Adverts returns what other clusters offer, the oldest first.
	Adverts(ctx context.Context) ([]control.Advert, error)
	// DecideAdvert accepts or refuses the offer of a cluster, regardless of
	// sharing.accept_policy, and returns when the API server has stored the decision.
	// It holds until the offer is withdrawn, or until the next decision. The error wraps
	// ErrNotFound if the cluster offers nothing, and ErrUnavailable while the API server
	// does not answer.
	DecideAdvert(ctx context.Context, id peer.ClusterID, accept bool, by string) error
}

// Resetter resets the agent to the state after its installation.
type Resetter interface {
	// PlanReset returns what a reset would do. It reads from the API server, for a few
	// seconds at most, and changes nothing.
	PlanReset(ctx context.Context, opts control.ResetOptions) (control.ResetPlan, error)
	// BeginReset begins a reset and returns at once. The reset continues by itself,
	// also after a restart. If one is in progress, it continues with its own options.
	BeginReset(ctx context.Context, opts control.ResetOptions, by string) (control.Reset, error)
	// ResetState returns the progress of the present reset, or the result of the last
	// one of this process. The Phase is ResetNone if there was none.
	ResetState(ctx context.Context) (control.Reset, error)
}

// Reloader reloads the configuration. It is safe for concurrent use.
type Reloader interface {
	// Reload returns when the configuration is in effect, or with Rebuilding set when a rebuild for it begins. If the
	// file has faults, nothing changes, and the error lists them.
	Reload(ctx context.Context) (control.Reload, error)
	// Generation returns the present Reload.Generation.
	Generation() int64
}

// Diagnoser runs the checks of doctor that only the running agent can make.
type Diagnoser interface {
	// Reach asks peers that are trusted and there to call this cluster back, at most
	// MaxReach of them, and returns what they say, by name. It takes up to ten
	// seconds, and returns what it has when ctx ends.
	Reach(ctx context.Context) ([]control.Reach, error)
	// ProbeNetwork measures the way to a peer's network and back, once. That there is no
	// answer within three seconds is no error.
	ProbeNetwork(ctx context.Context, id peer.ClusterID) (control.NetworkProbe, error)
}
