package dnssd

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"liqo.io/agent/dnssd/resolver"
)

const (
	defaultMinInterval = 30 * time.Second
	defaultMaxInterval = time.Hour
	// calm is the least time between two reactions to changes of the network.
	calm = time.Second
)

// Config says how a Poller works.
type Config struct {
	// Service is what to look for, such as _liqo._tcp.
	Service string
	// Resolver returns who is asked about a domain with that Server. It is called once
	// per domain and change of its Server, and again after it failed; nil stands for
	// resolver.New. See Resolver for who closes what it returns.
	Resolver func(server string) (Resolver, error)
	// Report is told what each look gave, also when nothing changed, one call at a time
	// on Run's goroutine. The report is the callee's own. It may take a moment. nil:
	// nobody is told.
	Report func(Report)
	// Recall returns what a domain that is new to the Poller listed before: that is taken
	// as listed until there is an answer. It is called on Run's goroutine. nil: nothing.
	Recall func(domain string) []Instance
	// MaxInstances is how many instances of a domain are looked at. 0: 5000.
	MaxInstances int
	// Parallel is how many questions are under way at once, over all domains. 0: 32.
	Parallel int
	Logger   *slog.Logger // nil: nobody
}

// Poller looks at domains again and again. Its methods may be called from any
// goroutine.
type Poller struct {
	cfg    Config
	gate   *gate
	seed   uint64
	random func() float64 // in [0, 1), for the jitter
	ready  chan struct{}  // capacity 1: there are requests
	asked  tallies

	mu       sync.Mutex // guards all below
	requests requests
	domains  map[string]Domain // as they are to be, by name
	last     map[string]Report // of these
}

// requests is what was asked for since Run last looked.
type requests struct {
	ask     map[string]bool // these at once, whatever is known
	removed map[string]bool // these, even if they are back
	hurry   bool
}

func noRequests() requests {
	return requests{ask: make(map[string]bool), removed: make(map[string]bool)}
}

// New returns a Poller without domains. It does nothing before Run.
func New(cfg Config) *Poller {
	if cfg.MaxInstances <= 0 {
		cfg.MaxInstances = defaultMaxInstances
	}
	if cfg.Parallel <= 0 {
		cfg.Parallel = defaultParallel
	}
	if cfg.Report == nil {
		cfg.Report = func(Report) {}
	}
	if cfg.Recall == nil {
		cfg.Recall = func(string) []Instance { return nil }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Poller{
		cfg: cfg, gate: newGate(cfg.Parallel), seed: newSeed(), random: rand.Float64, ready: make(chan struct{}, 1),
		requests: noRequests(),
		domains:  make(map[string]Domain), last: make(map[string]Report),
	}
}

func newSeed() uint64 { return rand.Uint64() }

// SetDomains replaces the domains. A new one, and one that changed, is looked at at
// once; one that is no longer there is forgotten without a report. Another Server
// means that everything is asked again, but what was known stays until it is answered.
func (p *Poller) SetDomains(domains []Domain) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.domains
	p.domains = make(map[string]Domain, len(domains))
	for _, d := range domains {
		d = withDefaults(d)
		p.domains[d.Name] = d
	}
	for name := range before {
		if _, ok := p.domains[name]; !ok {
			p.requests.removed[name] = true
			delete(p.requests.ask, name)
			delete(p.last, name)
		}
	}
	p.wake()
}

// Ask has a domain looked at now, with every question asked again. It reports whether
// there is such a domain.
func (p *Poller) Ask(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	name = withDefaults(Domain{Name: name}).Name
	if _, ok := p.domains[name]; !ok {
		return false
	}
	p.requests.ask[name] = true
	p.wake()
	return true
}

// Hurry says that the network changed: what was not answered is asked again now, but
// at most once a second.
func (p *Poller) Hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests.hurry = true
	p.wake()
}

// Last returns the last report about a domain.
func (p *Poller) Last(name string) (Report, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.last[withDefaults(Domain{Name: name}).Name]
	return r.clone(), ok
}

func (r Report) clone() Report {
	r.Instances = slices.Clone(r.Instances)
	for i := range r.Instances {
		r.Instances[i].Addrs = slices.Clone(r.Instances[i].Addrs)
	}
	r.Skipped = slices.Clone(r.Skipped)
	r.Domains = slices.Clone(r.Domains)
	return r
}

// wake tells Run that there are requests. Locks held: mu.
func (p *Poller) wake() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// remember keeps a report unless its domain was removed meanwhile; then it is void.
func (p *Poller) remember(r Report) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.domains[r.Domain]; !ok {
		return false
	}
	p.last[r.Domain] = r
	return true
}

// broken is a Resolver that could not be made.
type broken struct{ err error }

func (b broken) Lookup(context.Context, string, uint16) resolver.Answer {
	return resolver.Answer{Outcome: resolver.Unreachable, Err: b.err}
}
