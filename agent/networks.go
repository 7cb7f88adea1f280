package agent

import (
	"context"
	"maps"
	"sync"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/network"
	"liqo.io/agent/health"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/mdnssvc"
)

// networks holds what each link in use is used for, by the name of the link.
type networks struct {
	mu   sync.Mutex
	uses map[string]network.Use

	again chan struct{} // the rules changed; capacity 1
}

func newNetworks() *networks { return &networks{again: make(chan struct{}, 1)} }

// set replaces the uses, and reports whether the set of links without autojoin
// changed.
func (n *networks) set(uses map[string]network.Use) bool {
	before := n.strange()
	n.mu.Lock()
	n.uses = uses
	n.mu.Unlock()
	return !maps.Equal(before, n.strange())
}

// of returns what a link is used for.
func (n *networks) of(link string) (network.Use, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	use, ok := n.uses[link]
	return use, ok
}

// strange returns the links in networks without autojoin.
func (n *networks) strange() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make(map[string]bool)
	for link, use := range n.uses {
		if !use.Autojoin {
			out[link] = true
		}
	}
	return out
}

// rules compiles the [[network]] rules of the configuration, and watches gateways if a
// rule needs them. The configuration was validated, so this cannot fail; if it does,
// the agent uses no link, rather than one that it must not use.
func (s *session) rules() network.Rules {
	rules, err := network.Compile(s.config().Networks)
	if err != nil {
		rules, _ = network.Compile([]config.Network{{}})
	}
	s.health.Report(health.NetworksUnusable, err)
	s.links.FollowGateways(rules.NeedGateways())
	return rules
}

// feedLinks passes each snapshot of the links, with what they are used for, to the mDNS
// service.
func (s *session) feedLinks(ctx context.Context) error {
	current, changed, cancel := s.links.Subscribe()
	defer cancel()
	chooser := network.NewChooser(s.rules())
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		snapshot := current()
		uses, next := chooser.Choose(snapshot, time.Now())
		s.logUses(uses)
		s.problems.Again()
		if s.networks.set(uses) {
			s.policy.apply(ctx)
		}
		s.mdns.SetLinksFor(snapshot, func(l ifwatch.Link) mdnssvc.Use {
			use, known := uses[l.Name]
			return mdnssvc.Use{Advertise: !known || use.Advertise, Browse: !known || use.Discover}
		})
		wait := time.Hour
		if !next.IsZero() {
			wait = max(0, time.Until(next))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			s.poller.Hurry()
		case <-s.networks.again:
			chooser.SetRules(s.rules())
		case <-timer.C:
		}
	}
}

// linksInUse returns the number of links in use.
func (s *session) linksInUse() int {
	current, _, cancel := s.links.Subscribe()
	defer cancel()
	return len(current().Links)
}

// logUses logs the links whose use changed.
func (s *session) logUses(uses map[string]network.Use) {
	for link, use := range uses {
		before, known := s.networks.of(link)
		if use.Undecided || use.Rule < 0 && (!known || before.Rule < 0) || known && before == use {
			continue
		}
		s.logger.Info("the use of a link changed", "link", link, "network", use.Name, "because", use.Why,
			"advertise", use.Advertise, "discover", use.Discover, "autojoin", use.Autojoin)
	}
}
