package config

import (
	"reflect"
	"time"
)

// DefaultPath is where the file is looked for when none is named.
const DefaultPath = "/etc/liqo-agent/liqo-agent.toml"

// Config holds every setting. A Config that Load returned is valid.
type Config struct {
	Cluster       Cluster
	State         State
	Discovery     Discovery
	Endpoint      Endpoint
	Trust         Trust
	Peering       Peering
	Sharing       Sharing
	Log           Log
	Metrics       Metrics
	Peers         []StaticPeer
	SearchDomains []SearchDomain
	Networks      []Network
}

// Peering is about what peers clusters.
type Peering struct {
	Engine string // auto, builtin, liqo
}

// Cluster says who we are.
type Cluster struct {
	ID         string // "": found or made by the agent
	Name       string // "": the host's name
	Namespace  string
	Kubeconfig string // "": the usual places; "none": no API server
	// AdmissionListen is where the webhook for PeeringRequests listens, host:port.
	AdmissionListen string
}

// State says where things are kept, and for how long.
type State struct {
	Dir     string
	Socket  string
	History time.Duration
}

// Discovery is about neighbours on the LAN.
type Discovery struct {
	Service             string // such as "_liqo._tcp"
	Domain              string // without a trailing dot
	EnableDiscovery     bool
	EnableAdvertisement bool
	Autojoin            bool
	AutojoinUntrusted   bool
	Interfaces          []string // globs
	ExcludeInterfaces   []string // globs
	CheckInterval       time.Duration
	LostAfter           time.Duration
	MaxNeighbours       int
	// TTL is how long neighbours may keep our announcement without hearing it
	// again (the records of RFC 6762 section 10 that do not hold addresses).
	TTL time.Duration
}

// Endpoint is the HTTPS port for other clusters.
type Endpoint struct {
	Listen         string // host:port, host may be empty
	AdvertiseURL   string // https://host:port, or ""
	Certificate    string // PEM file of a public certificate over the cluster key, or ""
	MaxConnections int
}

// Trust says whom to believe.
type Trust struct {
	Accept          string // ask, trusted, all, none
	AllowEmptyToken bool
	FleetCA         string // PEM file, or ""
	// FleetCertificate is a PEM file, or "" for fleet.crt in the state directory.
	FleetCertificate string
}

// Sharing says what peers may use, and what is used of theirs.
type Sharing struct {
	Enable          bool
	Percentage      int      // of what is free, 0 to 100
	Overcommit      int      // percent of that for all peers together, at least 100
	Hysteresis      int      // percent
	Labels          []string // names or globs
	PodSecurity     string   // baseline, restricted
	Enforce         string   // requests, limits
	MaxNamespaces   int      // of one peer
	NamespacePrefix string
	Registries      []string // of images, as package sharing/registry has them
	LocalImages     bool
	GuestEgress     string // internet, all, none

	Storage           string // an amount of bytes, as Kubernetes writes it
	GuestStorageClass string // "" for the default one
	StorageKeep       time.Duration

	Use                bool
	StorageClass       string
	HomeStorageClass   string // "" for the default one
	Tokens             string // TokensAuto or TokensOff
	AcceptPolicy       string // auto, manual
	MaxAccepted        int
	KeepaliveThreshold int
	KeepaliveRetry     time.Duration
	Heartbeat          time.Duration
	DrainTimeout       time.Duration
	KubeletListen      string // host:port, or "" for automatic
	Network            string // NetworkAuto or NetworkOff
	NetworkRange       string // an IPv4 prefix
}

// What Sharing.Network may be.
const (
	NetworkAuto = "auto"
	NetworkOff  = "off"
)

// What Sharing.Tokens may be.
const (
	TokensAuto = "auto"
	TokensOff  = "off"
)

// Log is about the agent's own messages.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // auto, text, json
}

// Metrics is the port for Prometheus.
type Metrics struct {
	Listen string // host:port, or "" for none
}

// StaticPeer is what the administrator says about one peer.
type StaticPeer struct {
	ID          string
	Fingerprint string
	URL         string
	Connect     string // "", auto, never
	Accept      string // "", auto, never
}

// SearchDomain is a DNS domain to look for clusters in.
type SearchDomain struct {
	Domain   string // without a trailing dot
	Autojoin bool
	// Server is a DNS server, host[:port], or tls://host[:port] for DNS over TLS (RFC
	// 7858); "" for those of the system.
	Server string
	// MinInterval and MaxInterval bound the time between two looks, which follows
	// the TTL of what was found.
	MinInterval, MaxInterval time.Duration
}

// Network says what the agent does where the box is. Conditions that are empty
// hold everywhere; all that are given must hold.
type Network struct {
	Name       string // for people
	Interface  string // glob
	Subnet     string // a prefix that one of the interface's addresses is in
	GatewayMAC string // of a default route's gateway on the interface

	Advertise, Discover, Autojoin bool
}

// Default returns the configuration of an empty file.
func Default() Config {
	var c Config
	applyDefaults(settings, &c)
	return c
}

// Keys returns the name of every key that may be set from the environment or
// with --set, in the order of the documentation.
func Keys() []string {
	keys := make([]string, 0, len(settings))
	for _, s := range settings {
		keys = append(keys, s.key)
	}
	return keys
}

// Changed compares two valid configurations. It returns the keys that differ, and
// among them those that take effect when parts of the agent are made anew, and
// those that wait for a restart of the agent.
func Changed(old, now Config) (keys, rebuild, needRestart []string) {
	for _, s := range settings {
		if reflect.DeepEqual(s.field(&old), s.field(&now)) {
			continue
		}
		keys = append(keys, s.key)
		switch {
		case s.rebuild:
			rebuild = append(rebuild, s.key)
		case s.restart:
			needRestart = append(needRestart, s.key)
		}
	}
	if !reflect.DeepEqual(old.Peers, now.Peers) {
		keys = append(keys, peerTable)
	}
	if !reflect.DeepEqual(old.SearchDomains, now.SearchDomains) {
		keys = append(keys, searchDomainTable)
	}
	if !reflect.DeepEqual(old.Networks, now.Networks) {
		keys = append(keys, networkTable)
	}
	return keys, rebuild, needRestart
}
