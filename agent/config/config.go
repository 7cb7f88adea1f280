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
	Sharing       Sharing
	Log           Log
	Metrics       Metrics
	Peers         []StaticPeer
	SearchDomains []SearchDomain
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

// Sharing says what peers may use.
type Sharing struct {
	Enable     bool
	Percentage int // 0 to 100
}

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
	Domain   string
	Autojoin bool
	Server   string // host or host:port of a DNS server, or "" for the system's
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

// Changed compares two valid configurations. It returns the keys that differ,
// and those among them that only a restart of the agent puts into effect.
func Changed(old, now Config) (keys, needRestart []string) {
	for _, s := range settings {
		if reflect.DeepEqual(s.field(&old), s.field(&now)) {
			continue
		}
		keys = append(keys, s.key)
		if s.restart {
			needRestart = append(needRestart, s.key)
		}
	}
	if !reflect.DeepEqual(old.Peers, now.Peers) {
		keys = append(keys, peerTable)
	}
	if !reflect.DeepEqual(old.SearchDomains, now.SearchDomains) {
		keys = append(keys, searchDomainTable)
	}
	return keys, needRestart
}
