package lan

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/network"
	"liqo.io/agent/health"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/mdnssvc"
)

// maxWait is how long Run waits for a change.
const maxWait = time.Hour

// Watcher watches the links of this machine.
type Watcher interface {
	Subscribe() (current func() ifwatch.Snapshot, changed <-chan struct{}, cancel func())
	// FollowGateways turns the watch of gateways on or off.
	FollowGateways(on bool)
}

// Config is what Links needs. All of it is required.
type Config struct {
	Settings func() config.Config
	Tracker  *health.Tracker
	Watcher  Watcher
	MDNS     interface {
		SetLinksFor(s ifwatch.Snapshot, use func(ifwatch.Link) mdnssvc.Use)
	}
	// Changed is called when links or their uses may have changed, LinksChanged when
	// the links of the machine did.
	Changed, LinksChanged func()
	// AutojoinChanged is called when the set of links without autojoin changed.
	AutojoinChanged func(ctx context.Context)
	Logger          *slog.Logger
}

// Uses has the present use of each link, by the name of the link. It is safe for
// concurrent use.
type Uses struct {
	mu   sync.Mutex
	uses map[string]network.Use
}

// set replaces the uses, and reports whether the set of links without autojoin
// changed.
func (u *Uses) set(uses map[string]network.Use) bool {
	before := u.NoAutojoin()
	u.mu.Lock()
	u.uses = uses
	u.mu.Unlock()
	return !maps.Equal(before, u.NoAutojoin())
}

// Of returns the use of a link.
func (u *Uses) Of(link string) (network.Use, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	use, ok := u.uses[link]
	return use, ok
}

// NoAutojoin returns the links in networks without autojoin.
func (u *Uses) NoAutojoin() map[string]bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make(map[string]bool)
	for link, use := range u.uses {
		if !use.Autojoin {
			out[link] = true
		}
	}
	return out
}

// Links applies the [[network]] rules to the links. Its methods may be called from any
// goroutine.
type Links struct {
	cfg   Config
	uses  *Uses
	rules chan struct{} // the rules changed; capacity 1
}

// NewLinks returns Links that keep uses up to date.
func NewLinks(cfg Config, uses *Uses) *Links {
	return &Links{cfg: cfg, uses: uses, rules: make(chan struct{}, 1)}
}

// RulesChanged has Run apply the rules of the present configuration. It does not block.
func (l *Links) RulesChanged() { work.Wake(l.rules) }

// InUse returns the links in use.
func (l *Links) InUse() []ifwatch.Link {
	current, _, cancel := l.cfg.Watcher.Subscribe()
	defer cancel()
	return current().Links
}

// Run passes each snapshot of the links, with their uses, to the mDNS service until ctx
// ends.
func (l *Links) Run(ctx context.Context) error {
	current, changed, cancel := l.cfg.Watcher.Subscribe()
	defer cancel()
	chooser := network.NewChooser(l.compile())
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	for {
		snapshot := current()
		uses, next := chooser.Choose(snapshot, time.Now())
		l.log(uses)
		l.cfg.Changed()
		if l.uses.set(uses) {
			l.cfg.AutojoinChanged(ctx)
		}
		l.cfg.MDNS.SetLinksFor(snapshot, func(link ifwatch.Link) mdnssvc.Use {
			use, known := uses[link.Name]
			return mdnssvc.Use{Advertise: !known || use.Advertise, Browse: !known || use.Discover}
		})
		wait := maxWait
		if !next.IsZero() {
			wait = max(0, time.Until(next))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			l.cfg.LinksChanged()
		case <-l.rules:
			chooser.SetRules(l.compile())
		case <-timer.C:
		}
	}
}

// compile compiles the [[network]] rules of the configuration, and watches gateways if a
// rule needs them. The configuration was validated, so this cannot fail; if it does,
// the agent uses no link, rather than one that it must not use.
func (l *Links) compile() network.Rules {
	rules, err := network.Compile(l.cfg.Settings().Networks)
	if err != nil {
		rules, _ = network.Compile([]config.Network{{}})
	}
	l.cfg.Tracker.Report(health.NetworksUnusable, err)
	l.cfg.Watcher.FollowGateways(rules.NeedGateways())
	return rules
}

// log logs the links whose use changed.
func (l *Links) log(uses map[string]network.Use) {
	for link, use := range uses {
		before, known := l.uses.Of(link)
		if use.Undecided || use.Rule < 0 && (!known || before.Rule < 0) || known && before == use {
			continue
		}
		l.cfg.Logger.Info("the use of a link changed", "link", link, "network", use.Name, "because", use.Why,
			"advertise", use.Advertise, "discover", use.Discover, "autojoin", use.Autojoin)
	}
}
