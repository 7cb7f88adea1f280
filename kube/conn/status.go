package conn

import (
	"time"

	"liqo.io/agent/kube/tally"
)

// Status is how the connection is.
type Status struct {
	// Connected is true from Session.Connected until the connection ends.
	Connected bool
	// Server is the URL of the API server; "" while no kubeconfig is known.
	Server string
	// Kubeconfig is the file in use; "" while there is none.
	Kubeconfig string
	// LastError is why Connected is false, or what failed last; "" when nothing
	// did since the connection.
	LastError string
	// Writes counts the agent's own write requests sent since the start.
	Writes uint64
	// PassedWrites counts the write requests of others that were passed on since the
	// start.
	PassedWrites uint64
	// Since is when Connected last changed.
	Since time.Time
	// Trouble says in a word why Connected is false.
	Trouble Trouble
	// Version is that of the API server; "" before it told.
	Version string
	// Forbidden are the permissions that the agent lacked when it last needed them, as
	// the API server says it, sorted.
	Forbidden []string
	// WebhookError is why the configuration of the admission webhook cannot be put in
	// place, and ObjectsError why the agent's other objects cannot; "" when they are.
	WebhookError, ObjectsError string
	// ClockOffset is by how much the clock of the API server is ahead of ours, as far
	// as it was seen to differ at all.
	ClockOffset time.Duration
}

// Trouble says why there is no connection, in one word.
type Trouble string

// The kinds of trouble.
const (
	// TroubleNone: there is a connection, or nobody has tried yet.
	TroubleNone Trouble = ""
	// TroubleOff: the configuration says to work without an API server.
	TroubleOff Trouble = "Off"
	// TroubleNoKubeconfig: there is no kubeconfig.
	TroubleNoKubeconfig Trouble = "NoKubeconfig"
	// TroubleKubeconfig: there is a kubeconfig that cannot be used.
	TroubleKubeconfig Trouble = "Kubeconfig"
	// TroubleCredentials: the API server does not accept the credentials.
	TroubleCredentials Trouble = "Credentials"
	// TroubleUnreachable: the API server does not answer, or only with failures of its
	// own.
	TroubleUnreachable Trouble = "Unreachable"
	// TroubleSetup: the API server answers, and what the agent needs there cannot be put
	// in place or read.
	TroubleSetup Trouble = "Setup"
)

// Status says how the connection is.
func (l *Link) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	status := l.status
	status.Forbidden, status.ClockOffset = l.forbidden(), time.Duration(l.clock.offset.Load())
	status.Writes, status.PassedWrites = l.writes.Load(), l.passed.Load()
	return status
}

// Stats are what was counted since New, besides what Status says.
type Stats struct {
	Connections    uint64 // that came about
	Requests       []tally.Count
	Took           tally.Distribution // of Requests
	PassedRequests []tally.Count      // of others, that were passed on
	PassedTook     tally.Distribution // of PassedRequests
}

// Stats returns the counts.
func (l *Link) Stats() Stats {
	return Stats{
		Connections: l.connections.Load(),
		Requests:    l.requests.Counts(), Took: l.requests.Took(),
		PassedRequests: l.passedRequests.Counts(), PassedTook: l.passedRequests.Took(),
	}
}
