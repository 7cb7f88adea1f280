package plan

import "time"

// SharingSettings are the settings of [sharing] that peerings depend on. See
// docs/configuration.md for what each of them is for.
type SharingSettings struct {
	// Enable: resources are offered to consumers that were let in. Else what was
	// offered is withdrawn, and what they run here ends.
	Enable bool
	// Percentage of what is free is offered, 0 to 100.
	Percentage int
	// Overcommit is how much of that is promised to all consumers together, in
	// percent; at least 100.
	Overcommit int
	// Hysteresis is by how many percent a resource has to change until offers are
	// written again.
	Hysteresis int
	// Labels are the node labels that consumers are told of, as names or globs (see
	// path.Match).
	Labels []string
	// Registries are those that consumers may have images from, as registry.List has
	// them: they are told of no others.
	Registries []string

	// Use: joined providers become nodes. Else their nodes are drained and removed.
	Use bool
	// AcceptManually: a person decides about each offer. Else they are accepted up to
	// MaxAccepted.
	AcceptManually bool
	MaxAccepted    int
	// KeepaliveThreshold is after how many failed checks in a row a provider's node is
	// not ready, and KeepaliveRetry the time between two checks of a provider of
	// which the last one failed.
	KeepaliveThreshold int
	KeepaliveRetry     time.Duration
	// DrainTimeout is how long pods may take to leave the node of a provider that is
	// given up.
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
