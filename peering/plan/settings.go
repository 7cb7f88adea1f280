package plan

import "time"

// SharingSettings are the settings of [sharing] that peerings depend on. See
// docs/configuration.md for what each of them is for.
type SharingSettings struct {
	// Enable: offer resources to accepted consumers. Otherwise offers are withdrawn, and the
	// pods of consumers end.
	Enable bool
	// Percentage of what is free is offered, 0 to 100.
	Percentage int
	// Overcommit is how much of that all consumers together are promised, in percent; at least
	// 100.
	Overcommit int
	// Hysteresis is the change of a resource, in percent, from which on offers are written
	// again.
	Hysteresis int
	// Labels are the node labels that consumers are told of, as names or globs (see
	// path.Match).
	Labels []string
	// Registries are the registries that consumers may use, as in registry.List. They learn of
	// no others.
	Registries []string

	// Storage is how many bytes the claims of all consumers may ask for together.
	Storage int64

	// NoNetwork: networks are connected with those of no peer.
	NoNetwork bool

	// Use: create nodes for joined providers. Otherwise existing nodes are drained and removed.
	Use bool
	// AcceptManually: a person decides about each offer. Otherwise up to MaxAccepted are
	// accepted automatically.
	AcceptManually bool
	MaxAccepted    int
	// KeepaliveThreshold is after how many failed checks in a row a provider's node becomes not
	// ready, and KeepaliveRetry the time between checks after a failed one.
	KeepaliveThreshold int
	KeepaliveRetry     time.Duration
	// DrainTimeout is how long pods may take to leave a node that is being removed.
	DrainTimeout time.Duration
}

// DefaultSharing returns the settings of a Config without SharingSettings: all that is
// free is offered, and every offer accepted.
func DefaultSharing() SharingSettings {
	return SharingSettings{
		Enable: true, Percentage: 100, Overcommit: 100, Hysteresis: 10,
		Use: true, MaxAccepted: 128, KeepaliveThreshold: 3, KeepaliveRetry: 5 * time.Second, DrainTimeout: 5 * time.Minute,
	}
}
