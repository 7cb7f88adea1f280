package control

import (
	"cmp"
	"time"

	"liqo.io/agent/peer"
)

// Peer is one remote cluster as shown to people and scripts. Strings and
// arrays are always present in JSON (empty when unknown); conflict and times
// are left out when there are none.
type Peer struct {
	ID             string    `json:"id"`
	Name           string    `json:"name"`
	Alias          string    `json:"alias"`          // given by the local user
	Phase          string    `json:"phase"`          // Unverified, Present, Unreachable, Lost
	Reason         string    `json:"reason"`         // why the phase is not Present, for people
	Source         string    `json:"source"`         // LAN, WAN, Manual, IncomingPeering: the best that sees it now, or saw it last
	Sources        []string  `json:"sources"`        // every source that sees it now, the best first
	Domains        []string  `json:"domains"`        // search domains it is seen in now
	URL            string    `json:"url"`            // endpoint at the address that last answered
	Addresses      []string  `json:"addresses"`      // every candidate, "ip:port", link-local ones with zone
	Links          []string  `json:"links"`          // network interfaces it is seen on
	Fingerprint    string    `json:"fingerprint"`    // 64 hexadecimal digits
	Namespace      string    `json:"namespace"`      // its guest namespace
	Version        string    `json:"version"`        // protocol version it advertises
	TTLSeconds     int64     `json:"ttlSeconds"`     // how long its last sighting vouches for it
	Failures       int       `json:"failures"`       // failed reachability checks in a row
	Verified       bool      `json:"verified"`       // its endpoint proved ID and key
	Remembered     bool      `json:"remembered"`     // it is in the agent's database
	ForeignCluster string    `json:"foreignCluster"` // name of its resource in the local API server
	Conflict       *Conflict `json:"conflict,omitempty"`
	FirstSeen      time.Time `json:"firstSeen,omitzero"`
	LastSeen       time.Time `json:"lastSeen,omitzero"`

	Code        string      `json:"code"` // verification code of its key and ours; "" while its key is not known
	Trust       Trust       `json:"trust"`
	Role        string      `json:"role"`             // what it is for us: Consumer, Provider, ConsumerAndProvider, Unknown
	Outgoing    Direction   `json:"outgoing"`         // we consume its resources
	Incoming    Direction   `json:"incoming"`         // it consumes ours
	Engine      string      `json:"engine,omitempty"` // what peers the two and why; left out without Liqo
	Preferences Preferences `json:"preferences"`
	Request     *Request    `json:"request,omitempty"` // waits for a person here, or was refused by one
	Sharing     PeerSharing `json:"sharing"`

	Network *NetworkPeer `json:"network,omitempty"` // while resources are shared with it
}

// Conflict: another endpoint shows the cluster ID of this peer with another key.
type Conflict struct {
	Fingerprint string    `json:"fingerprint"`
	Address     string    `json:"address"`
	Since       time.Time `json:"since,omitzero"`
}

// Label returns the alias of the peer, else its cluster name, else its ID.
func (p Peer) Label() string { return cmp.Or(p.Alias, p.Name, p.ID) }

// Here reports whether the peer is present, as far as is known: it is not only
// remembered.
func (p Peer) Here() bool { return p.Phase != string(peer.PhaseLost) }

// Listed reports whether lists show the peer by default: it is present, or there is a
// peering with it.
func (p Peer) Listed() bool {
	return p.Here() || p.Outgoing.Joined || p.Outgoing.Ending || p.Incoming.Joined || p.Incoming.Ending
}

// NewPeer converts the agent's view of a peer. A peer that was verified once stays so
// while it is unreachable or lost. The caller fills in Remembered, ForeignCluster, trust
// and peering; until then these say that nothing is known or decided.
func NewPeer(p peer.Peer) Peer {
	out := Peer{
		ID:          string(p.ID),
		Name:        p.Name,
		Alias:       p.Alias,
		Phase:       string(p.Phase),
		Reason:      p.Reason,
		Source:      string(p.Source),
		Sources:     make([]string, 0, len(p.Sources)),
		Domains:     append(make([]string, 0, len(p.Domains)), p.Domains...),
		URL:         p.URL,
		Addresses:   make([]string, 0, len(p.Addrs)),
		Links:       append(make([]string, 0, len(p.Links)), p.Links...),
		Fingerprint: p.Fingerprint.String(),
		Namespace:   p.Namespace,
		Version:     p.Version,
		TTLSeconds:  int64(p.TTL / time.Second),
		Failures:    p.Failures,
		Verified:    p.Phase != peer.PhaseUnverified && !p.Fingerprint.IsZero(),
		FirstSeen:   p.FirstSeen,
		LastSeen:    p.LastSeen,
	}.Complete()
	for _, source := range p.Sources {
		out.Sources = append(out.Sources, string(source))
	}
	for _, a := range p.Addrs {
		out.Addresses = append(out.Addresses, a.String())
	}
	if c := p.Conflict; c != nil {
		out.Conflict = &Conflict{Fingerprint: c.Fingerprint.String(), Address: c.Addr, Since: c.Since}
	}
	return out
}

// Complete returns the peer with the values for unknown in the fields that are not set.
func (p Peer) Complete() Peer {
	p = Filled(p)
	p.Preferences.AutoConnect = cmp.Or(p.Preferences.AutoConnect, Undecided)
	p.Preferences.AutoAccept = cmp.Or(p.Preferences.AutoAccept, Undecided)
	p.Trust.Mode = cmp.Or(p.Trust.Mode, UnknownTrust)
	p.Role = cmp.Or(p.Role, unknownRole)
	return p
}

// unknownRole is the role of a peer with which there is no peering.
const unknownRole = "Unknown"

// Event is one entry of the history.
type Event struct {
	At     time.Time `json:"at"`
	ID     string    `json:"id"`
	Name   string    `json:"name"` // what the peer is called now; "" when it is no longer known
	Kind   string    `json:"kind"` // appeared, lost, returned, unreachable, address-changed, ...
	Detail string    `json:"detail"`
}

// NewEvent converts a history entry. name is the present label of the peer.
func NewEvent(e peer.Event, name string) Event {
	return Event{At: e.At, ID: string(e.ID), Name: name, Kind: string(e.Kind), Detail: e.Detail}
}

// NameEvents translates history entries and adds what each peer is called now.
// The result is never nil.
func NameEvents(entries []peer.Event, known []Peer) []Event {
	names := make(map[string]string, len(known))
	for _, p := range known {
		if label := p.Label(); label != p.ID {
			names[p.ID] = label
		}
	}
	out := make([]Event, 0, len(entries))
	for _, e := range entries {
		out = append(out, NewEvent(e, names[string(e.ID)]))
	}
	return out
}

// The kinds of WatchEvent.
const (
	// WatchSnapshot: a peer that was known when the stream began.
	WatchSnapshot = "snapshot"
	// WatchSynced: the snapshot is complete; what follows are changes. It
	// carries no peer.
	WatchSynced = "synced"
	// WatchFound: a peer appeared.
	WatchFound = "found"
	// WatchUpdated: something about the peer changed.
	WatchUpdated = "updated"
	// WatchLost: a peer disappeared.
	WatchLost = "lost"
	// WatchError: the last line of a stream that the agent ends; Error says why.
	WatchError = "error"
)

// WatchEvent is one line of the watch stream. Peer is the whole peer after the
// change, so that a consumer can replace what it had; around the end of the
// snapshot, the same change may be sent twice.
type WatchEvent struct {
	Event string    `json:"event"`
	At    time.Time `json:"at,omitzero"`
	Peer  *Peer     `json:"peer,omitempty"`
	Error string    `json:"error,omitempty"`
}

// Status is the state of the agent itself.
type Status struct {
	Version       string            `json:"version"`
	Protocol      string            `json:"protocol"` // versions of the wire protocol that it speaks: "1", or "1-3"
	Identity      Identity          `json:"identity"`
	StartedAt     time.Time         `json:"startedAt"`
	UptimeSeconds int64             `json:"uptimeSeconds"`
	Links         []Link            `json:"links"`
	Discovery     Discovery         `json:"discovery"`
	Advertisement Advertisement     `json:"advertisement"`
	Autojoin      Autojoin          `json:"autojoin"`
	Domains       []DomainSummary   `json:"domains"`  // search domains, by name
	Networks      []LinkNetwork     `json:"networks"` // what counts on each link in use, by name; empty without [[network]] rules
	Endpoint      Endpoint          `json:"endpoint"`
	Kubernetes    Kubernetes        `json:"kubernetes"`
	Liqo          *Liqo             `json:"liqo,omitempty"` // Liqo 1.x in the local API server
	State         State             `json:"state"`
	Peers         map[string]int    `json:"peers"` // count by phase
	Peering       PeeringStatus     `json:"peering"`
	Sharing       Sharing           `json:"sharing"`
	Network       NetworkSummary    `json:"network"` // between pods of this cluster and of its peers
	Trust         TrustStatus       `json:"trust"`
	Packets       Packets           `json:"packets"`
	Drops         map[string]uint64 `json:"drops"` // received packets not used, by reason
	LogLevel      string            `json:"logLevel"`
	Problems      []Problem         `json:"problems"`   // what is the matter, the worst first
	LastErrors    []LogEntry        `json:"lastErrors"` // the newest warnings and errors of the log, the newest first
}

// LogEntry is a warning or an error that the agent logged.
type LogEntry struct {
	At    time.Time `json:"at"`    // the last time
	Level string    `json:"level"` // warn or error
	Text  string    `json:"text"`
	Count int       `json:"count"` // how often it was logged in a row or among others that are kept
}

// Identity is the ID, name and key of this cluster.
type Identity struct {
	ClusterID   string `json:"clusterId"`
	Name        string `json:"name"`
	Namespace   string `json:"namespace"`
	Fingerprint string `json:"fingerprint"`
	IDOrigin    string `json:"idOrigin"` // where the cluster ID came from
}

// Link is a network interface in use for discovery.
type Link struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
}

// Discovery is the state of the search for other clusters.
type Discovery struct {
	Enabled bool   `json:"enabled"`
	Service string `json:"service"`
	Domain  string `json:"domain"`
	Source  string `json:"source"` // where Enabled comes from: "default", "file PATH line N", "ClusterConfig liqo-configuration", ...
}

// Advertisement is the state of announcing this cluster.
type Advertisement struct {
	Enabled     bool   `json:"enabled"`
	Established bool   `json:"established"` // the name is probed and announced
	Instance    string `json:"instance"`    // the DNS-SD instance name in use
	Source      string `json:"source"`      // where Enabled comes from
}

// Autojoin says which new peers are joined without a decision.
type Autojoin struct {
	Enabled   bool   `json:"enabled"`   // those that the configuration trusts
	Untrusted bool   `json:"untrusted"` // the others, too
	Source    string `json:"source"`    // where Enabled comes from
	// NotJoined are the present clusters that are not joined although autojoin is on for
	// them, in general or for their search domain, by name.
	NotJoined []NotJoined `json:"notJoined"`
}

// NotJoined is a cluster that autojoin does not join, and why.
type NotJoined struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Reason  string `json:"reason"`  // one word for programs
	Message string `json:"message"` // why, and what to do, for people
}

// DomainSummary is the short form of a search domain, for status.
type DomainSummary struct {
	Domain   string `json:"domain"`
	Outcome  string `json:"outcome"`  // of the last look; "" before the first one
	Clusters int    `json:"clusters"` // that were found there and answer
	Message  string `json:"message"`  // what is the matter, for people; "" when nothing is
	Source   string `json:"source"`   // where the domain comes from
}

// LinkNetwork is the use of a link by the [[network]] rules.
type LinkNetwork struct {
	Link      string `json:"link"`
	Rule      string `json:"rule"` // the name of the rule that fits; "" = none does
	Advertise bool   `json:"advertise"`
	Discover  bool   `json:"discover"`
	Autojoin  bool   `json:"autojoin"`
	Why       string `json:"why"` // what made the rule fit, or what is not known yet; for people
}

// Endpoint is the state of the HTTPS port that peers connect to.
type Endpoint struct {
	Listen      string `json:"listen"`
	Port        int    `json:"port"`
	Connections int    `json:"connections"` // open now
	Requests    uint64 `json:"requests"`    // answered since the start
}

// Liqo is the Liqo 1.x of this cluster.
type Liqo struct {
	ID      string `json:"id"`      // by which Liqo knows this cluster
	Version string `json:"version"` // "" if it is not known
	Problem string `json:"problem"` // why it cannot be used, a clause; "" if it can
	Engine  string `json:"engine"`  // peering.engine
}

// Kubernetes is the state of the connection to the local API server.
type Kubernetes struct {
	Connected       bool      `json:"connected"`
	Disabled        bool      `json:"disabled"` // the configuration says to work without one
	Server          string    `json:"server"`
	Version         string    `json:"version"` // of the API server; "" before it told
	Kubeconfig      string    `json:"kubeconfig"`
	LastError       string    `json:"lastError"`
	ForeignClusters int       `json:"foreignClusters"`
	Writes          uint64    `json:"writes"`
	Since           time.Time `json:"since,omitzero"` // of the last change of Connected
}

// State is the state of the database.
type State struct {
	Path      string `json:"path"`
	Volatile  bool   `json:"volatile"`  // nothing is kept: the database cannot be written
	Recovered string `json:"recovered"` // where a damaged database was set aside; "" = it was not
	// Transactions counts the write transactions since the start.
	Transactions uint64 `json:"transactions"`
}

// Packets counts mDNS packets since the start.
type Packets struct {
	Received    uint64 `json:"received"`
	Sent        uint64 `json:"sent"`
	SocketDrops uint64 `json:"socketDrops"` // lost by the kernel because the socket's buffer was full
}

// Problem is something that a person should know and can solve.
type Problem struct {
	Code     string    `json:"code"`     // what kind of problem it is, such as "disk-full"; stable, see docs/health.md
	Severity string    `json:"severity"` // error: something does not work; warning: it may not tomorrow, or not as safely as it should
	Text     string    `json:"text"`
	Remedy   string    `json:"remedy"`
	Since    time.Time `json:"since,omitzero"`
}

// Config is the configuration the running agent uses.
type Config struct {
	Path    string            `json:"path"` // the file it was read from; "" = none
	TOML    string            `json:"toml"` // the effective values
	Sources map[string]string `json:"sources"`
}

// LogLevel is the body of /v1/log/level: debug, info, warn or error.
type LogLevel struct {
	Level string `json:"level"`
}

// Alias is the body of PUT /v1/peers/{ref}/alias; "" removes the alias.
type Alias struct {
	Alias string `json:"alias"`
}

// HistoryQuery selects entries of the history.
type HistoryQuery struct {
	ID    peer.ClusterID // "" = every peer
	Since time.Time      // zero = from the beginning
	Limit int            // the newest so many; 0 = all there are
}
