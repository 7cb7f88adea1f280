package problems

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/connect"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/dnssd"
	"liqo.io/agent/health"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	peeringconfig "liqo.io/agent/peering/config"
	"liqo.io/agent/peering/plan"
)

const (
	// lookEvery is the interval of checks for problems without events: a full disk, a
	// wrong clock, an expiry date.
	lookEvery = time.Minute
	// lookPause is the minimum time between two checks because of events.
	lookPause = 2 * time.Second
	// settled: a problem that will be shown within this time keeps the ClusterConfig
	// from reporting that there are no problems.
	settled = 3 * time.Minute
)

// Peering is the controller of ForeignClusters.
type Peering interface {
	Status() peering.APIStatus
	NewerCRDs() (theirs, ours int)
	View(id peer.ClusterID) plan.View
	// HealthChanged has the status of the ClusterConfig updated.
	HealthChanged()
}

// Registry knows the peers.
type Registry interface {
	Peer(id peer.ClusterID) (peer.Peer, bool)
	Peers() []peer.Peer
	SelfConflict() *peer.Conflict
	StoreError() error
	Stats() registry.Stats
}

// Decisions has the decisions about peers.
type Decisions interface {
	Wanted() []peer.ClusterID
	Pins() []peer.Pin
	Policy(id peer.ClusterID) plan.Policy
	Partner(id peer.ClusterID) bool
}

// GivenURL is the state of a URL that a person gave for a cluster.
type GivenURL struct {
	ID    peer.ClusterID
	State registry.CandidateStatus
}

// Config is what a Monitor needs. All of it is required.
type Config struct {
	ID peer.ClusterID
	// Settings is the configuration in use.
	Settings func() config.Config
	// Tracker keeps the problems; it outlives the Monitor.
	Tracker *health.Tracker
	// Logger logs the beginning and the end of problems.
	Logger *slog.Logger
	// Told is called when a problem began or ended.
	Told func()

	Peering   Peering
	Registry  Registry
	Decisions Decisions
	MDNS      interface{ Stats() mdnssvc.Stats }

	// Links is how many links are in use.
	Links func() int
	// Domains are the last looks at the search domains.
	Domains func() []dnssd.Report
	// GivenURLs are those of the configuration and the command line.
	GivenURLs func() []GivenURL
	// Requests returns the pending and rejected requests, by cluster.
	Requests func() map[peer.ClusterID]control.Request
	// Networks is the network to each peer with which resources are shared.
	Networks func() map[peer.ClusterID]connect.Seen
	// Storage is what claims keep at other clusters, and others' claims here.
	Storage func() control.Storage
	// Label is what people call a cluster.
	Label func(id peer.ClusterID) string
	// Certificates are those of this cluster.
	Certificates func() Certificates
	// Clock says why our clock cannot be believed.
	Clock func() error
	// SetAside is where a damaged database was put, "" for nowhere.
	SetAside func() string
}

// Monitor detects problems.
type Monitor struct {
	cfg   Config
	again chan struct{} // something may be the matter, or no longer; capacity 1

	// counted are the counters at the last look of the minute. They are Run's.
	counted counters

	looking sync.Mutex // one look at a time; it comes before mu

	mu     sync.Mutex
	looked bool // once at least
	// shown are the problems in the status of the ClusterConfig, and message its text.
	shown   []health.Problem
	message string
}

// New returns a Monitor. Run does the work.
func New(cfg Config) *Monitor { return &Monitor{cfg: cfg, again: make(chan struct{}, 1)} }

// Again says that something may be the matter, or no longer. It does not block.
func (m *Monitor) Again() {
	work.Wake(m.again)
}

// Run checks every minute and after events, and reports what begins and ends.
func (m *Monitor) Run(ctx context.Context) error {
	minute, grace := time.NewTimer(0), time.NewTimer(0)
	defer minute.Stop()
	defer grace.Stop()
	var soon <-chan time.Time // nil while no look is due; what begins or ends is told meanwhile
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-minute.C:
			m.lookAtCounters()
			m.lookAtDisk()
			m.look()
			minute.Reset(lookEvery)
		case <-m.again:
			if soon == nil {
				soon = time.After(lookPause)
			}
		case <-soon:
			soon = nil
			m.look()
		case <-grace.C:
		case <-m.cfg.Tracker.Changed():
		}
		if next := m.tell(); next.IsZero() {
			grace.Stop()
		} else {
			grace.Reset(max(0, time.Until(next)))
		}
	}
}

// tell reports what began and ended since the last call, and returns when the grace
// period of another problem ends.
func (m *Monitor) tell() time.Time {
	began, ended, next := m.cfg.Tracker.Update()
	for _, p := range began {
		level := slog.LevelWarn
		if p.Kind.Severity == health.Error {
			level = slog.LevelError
		}
		m.cfg.Logger.Log(context.Background(), level, "problem: "+p.Text, "code", p.Kind.Code, "try", p.Remedy)
	}
	for _, p := range ended {
		m.cfg.Logger.Info("problem solved: "+p.Kind.Title, "code", p.Kind.Code, "was", p.Text, "lasted", time.Since(p.Since).Round(time.Second))
	}
	if len(began)+len(ended) > 0 {
		m.cfg.Told()
	}
	m.cfg.Peering.HealthChanged()
	return next
}

// Shown returns the desired status of the ClusterConfig; false to leave it as it is.
func (m *Monitor) Shown() (peeringconfig.Health, bool) {
	now := m.cfg.Tracker.Current()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(now) == 0 {
		// A problem that was shown before, even before a restart, is not withdrawn
		// while it may still be confirmed.
		if !m.looked || m.cfg.Tracker.Pending(settled) {
			return peeringconfig.Health{}, false
		}
		return peeringconfig.Health{Healthy: true, Reason: "NoProblems", Message: "There are no problems."}, true
	}
	// Texts contain errors, which differ from one try to the next: as long as it is the
	// same problems, the same is said about them.
	if m.message == "" || !slices.EqualFunc(now, m.shown, func(a, b health.Problem) bool { return a.Kind == b.Kind && a.About == b.About }) {
		m.shown, m.message = now, message(now)
	}
	return peeringconfig.Health{Reason: now[0].Kind.Reason(), Message: m.message}, true
}

// message returns the worst problem with its remedy, and the number and kinds of the
// others.
func message(now []health.Problem) string {
	worst := now[0]
	text := fmt.Sprintf("%s. Try: %s.", worst.Text, worst.Remedy)
	var others []string
	for _, p := range now[1:] {
		if !slices.Contains(others, p.Kind.Title) && p.Kind != worst.Kind {
			others = append(others, p.Kind.Title)
		}
	}
	switch {
	case len(others) > 0:
		text += fmt.Sprintf(" And %d more: %s.", len(now)-1, strings.Join(others, ", "))
	case len(now) > 1:
		text += fmt.Sprintf(" And %d more like it.", len(now)-1)
	}
	return text + " See: liqo-agent status"
}

// look reads the state of all parts. It is quick.
func (m *Monitor) look() {
	m.looking.Lock()
	defer m.looking.Unlock()
	status := m.cfg.Peering.Status()
	m.lookAtAPIServer(status)
	m.lookAtNetwork()
	m.lookAtPeers()
	m.lookAtPaths(m.cfg.Networks(), time.Now())
	m.lookAtStorage(m.cfg.Storage(), status.DiskPressed)
	m.lookAtCertificates(time.Now())
	m.cfg.Tracker.Report(health.StateWrite, m.cfg.Registry.StoreError())
	m.mu.Lock()
	first := !m.looked
	m.looked = true
	m.mu.Unlock()
	if first {
		m.cfg.Peering.HealthChanged()
	}
}

// Current checks once more, and returns the active problems, the worst first.
func (m *Monitor) Current() []control.Problem {
	m.look()
	out := make([]control.Problem, 0)
	for _, p := range m.cfg.Tracker.Current() {
		out = append(out, control.Problem{
			Code: p.Kind.Code, Severity: string(p.Kind.Severity), Text: p.Text, Remedy: p.Remedy, Since: p.Since.UTC().Truncate(time.Second),
		})
	}
	return out
}
