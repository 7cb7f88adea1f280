package look

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"liqo.io/agent/ifwatch"
	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/mdnssvc/browser"
	"liqo.io/agent/peer"
)

// Heard is what one look at the mDNS group found.
type Heard struct {
	Sent     uint64 // packets that the kernel took
	Unsent   uint64 // packets that it refused: a firewall, or a link that is gone
	Echoes   uint64 // packets of our own that came back to us
	Clusters []peer.Sighting
}

// Multicast asks on links once who is there, as `liqo-agent scan` does, and returns
// what was heard within a time. It shares port 5353 and announces nothing.
func Multicast(ctx context.Context, links ifwatch.Snapshot, service, domain string, within time.Duration) (Heard, error) {
	s, err := mdnssvc.New(mdnssvc.Config{Service: service, Domain: domain, BrowseOnly: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return Heard{}, err
	}
	s.SetLinks(links)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	failed := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() {
		failed <- s.Run(ctx)
		cancel()
	})
	found := make(map[[2]string]peer.Sighting)
	for {
		batch, err := s.Events(ctx)
		if err != nil {
			break // the time is over, or Run has ended and says why
		}
		for _, e := range batch {
			key := [2]string{e.Link, e.Instance.Name}
			sighting, err := mdnssvc.Sighting(e)
			if e.Kind == browser.Lost || err != nil {
				delete(found, key) // what is no cluster is of no interest
				continue
			}
			found[key] = sighting
		}
	}
	running.Wait()
	stats := s.Stats()
	out := Heard{Sent: stats.Sent, Echoes: stats.Drops[mdnssvc.DropOwnEcho],
		Unsent: stats.Drops[mdnssvc.DropSendFailed] + stats.Drops[mdnssvc.DropSendFull]}
	for _, sighting := range found {
		out.Clusters = append(out.Clusters, sighting)
	}
	return out, <-failed
}
