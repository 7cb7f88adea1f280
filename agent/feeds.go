package agent

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/health"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/mdnssvc/browser"
	"liqo.io/agent/peer"
)

// pruneEvery is how often history older than state.history is dropped.
const pruneEvery = 24 * time.Hour

// feedSightings turns what discovery sees into sightings for the registry.
func (s *session) feedSightings(ctx context.Context) error {
	for {
		events, err := s.mdns.Events(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("read discovery events: %w", err)
		}
		for _, ev := range events {
			if err := s.sight(ctx, ev); err != nil {
				return nil // only ctx ends it
			}
		}
	}
}

func (s *session) sight(ctx context.Context, ev mdnssvc.Event) error {
	key := peer.Key{Source: peer.LAN, Link: ev.Link, Instance: ev.Instance.Name}
	if ev.Kind == browser.Lost {
		return s.registry.Unsee(ctx, key, absence(ev.Reason))
	}
	sighting, err := mdnssvc.Sighting(ev)
	if err != nil {
		s.logger.Debug("ignoring an instance on the network that is not a valid cluster",
			"instance", ev.Instance.Name, "link", ev.Link, "error", err)
		return s.registry.Unsee(ctx, key, registry.Absence{Reason: "its records are no longer valid: " + err.Error(), Evidence: registry.Expired})
	}
	return s.registry.See(ctx, sighting)
}

// absence returns what it means for the registry that discovery no longer sees an
// instance.
func absence(reason string) registry.Absence {
	switch reason {
	case browser.ReasonGoodbye:
		return registry.Absence{Reason: "it said goodbye", Evidence: registry.Withdrawn}
	case browser.ReasonDiscoveryOff:
		return registry.Absence{Reason: "discovery was switched off", Evidence: registry.Withdrawn}
	case browser.ReasonExpired, browser.ReasonNoAnswer:
		return registry.Absence{Reason: "its records expired", Evidence: registry.Expired}
	default:
		return registry.Absence{Reason: "it is not visible: " + reason}
	}
}

// feedWatchers tells the watchers on the control socket what changed.
func (s *session) feedWatchers(ctx context.Context) error {
	sub := s.registry.Subscribe()
	defer sub.Close()
	here := make(map[peer.ClusterID]peer.Peer)
	for _, p := range s.registry.Peers() {
		if p.Phase != peer.PhaseLost {
			here[p.ID] = p
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sub.Ready():
		}
		for _, id := range sub.Take() {
			before, was := here[id]
			p, known := s.registry.Peer(id)
			is := known && p.Phase != peer.PhaseLost
			kind := control.WatchUpdated
			switch {
			case !was && !is:
				continue
			case !was:
				kind = control.WatchFound
			case !is:
				kind = control.WatchLost
			}
			if is {
				here[id] = p
			} else {
				delete(here, id)
			}
			if !known {
				p = before.Clone()
				p.Phase, p.Reason = peer.PhaseLost, "it is no longer seen"
			}
			view := s.views.view(p, s.views.requests())
			s.control.Publish(control.WatchEvent{Event: kind, Peer: &view})
		}
	}
}

// apply puts a changed configuration into effect in the running parts.
func (s *session) apply(ctx context.Context, cfg config.Config) error {
	s.trusting(cfg)
	s.problems.Again()
	s.policy.apply(ctx)
	s.places.again()
	s.domains.Again()
	s.links.SetFilter(linkFilter(cfg))
	work.Wake(s.networks.again)
	s.mdns.Browse(cfg.Discovery.EnableDiscovery)
	s.mdns.Advertise(s.announcement(cfg))
	s.peering.SetInterval(cfg.Discovery.CheckInterval)
	s.sharing.changed()
	s.listenForMetrics(ctx, cfg)
	return s.registry.SetInterval(ctx, cfg.Discovery.CheckInterval)
}

// upkeep checks the whole database once, and drops old history once a day.
func (s *session) upkeep(ctx context.Context) error {
	// Not at once: at the start, finding the neighbours comes first.
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	for checked := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if !checked {
			checked = true
			// Return the memory that handshakes and lists took at the start.
			debug.FreeOSMemory()
			if err := s.store.Check(ctx); err != nil && ctx.Err() == nil {
				s.health.Report(health.StateDamaged, err)
			}
		}
		if _, err := s.store.Prune(ctx, s.config().State.History); err != nil && ctx.Err() == nil {
			s.logger.Warn("cannot delete old history", "error", err)
		}
		timer.Reset(pruneEvery)
	}
}
