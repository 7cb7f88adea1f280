package lan

import (
	"context"
	"fmt"
	"log/slog"

	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/mdnssvc/browser"
	"liqo.io/agent/peer"
)

// Registry takes sightings.
type Registry interface {
	See(ctx context.Context, s peer.Sighting) error
	Unsee(ctx context.Context, k peer.Key, why registry.Absence) error
}

// Sightings turns the events of the mDNS service into sightings for the registry.
type Sightings struct {
	MDNS interface {
		Events(ctx context.Context) ([]mdnssvc.Event, error)
	}
	Registry Registry
	Logger   *slog.Logger
}

// Run passes sightings to the registry until ctx ends.
func (s Sightings) Run(ctx context.Context) error {
	for {
		events, err := s.MDNS.Events(ctx)
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

func (s Sightings) sight(ctx context.Context, ev mdnssvc.Event) error {
	key := peer.Key{Source: peer.LAN, Link: ev.Link, Instance: ev.Instance.Name}
	if ev.Kind == browser.Lost {
		return s.Registry.Unsee(ctx, key, absence(ev.Reason))
	}
	sighting, err := mdnssvc.Sighting(ev)
	if err != nil {
		s.Logger.Debug("the agent ignores an instance on the network that is not a valid cluster",
			"instance", ev.Instance.Name, "link", ev.Link, "error", err)
		return s.Registry.Unsee(ctx, key, registry.Absence{Reason: "its records are no longer valid: " + err.Error(), Evidence: registry.Expired})
	}
	return s.Registry.See(ctx, sighting)
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
