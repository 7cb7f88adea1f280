package scan

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"liqo.io/agent/cli/render"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/mdnssvc/browser"
	"liqo.io/agent/mdnssvc/wire"
	"liqo.io/agent/peer"
)

const (
	// verifyAfter is when the first neighbour is asked for its identity. All
	// of a large network answers within the first 120 ms (RFC 6762 section
	// 6), and hundreds of handshakes then would cost answers.
	verifyAfter = 200 * time.Millisecond
	// verifiers bounds how many are asked at once.
	verifiers = 16
)

// Neighbour is one instance of a service on one link, as scan shows it. It is
// also one line of scan --watch -o json.
type Neighbour struct {
	Event       string            `json:"event,omitempty"` // found, updated or lost; only with --watch
	At          time.Time         `json:"at,omitzero"`     // only with --watch
	Service     string            `json:"service"`
	Instance    string            `json:"instance"`
	Link        string            `json:"link"`
	Host        string            `json:"host"`
	Port        uint16            `json:"port"`
	Addr        string            `json:"addr"`  // the first of Addrs, or "" when none is known
	Addrs       []string          `json:"addrs"` // link-local IPv6 ones with zone
	TXT         map[string]string `json:"txt"`
	ID          string            `json:"id"` // this and the rest only for Liqo clusters
	Name        string            `json:"name"`
	Fingerprint string            `json:"fingerprint"`
	URL         string            `json:"url"` // where it proved its identity
	Verified    bool              `json:"verified"`
	Self        bool              `json:"self"`   // it is this cluster itself: an agent runs here
	Reason      string            `json:"reason"` // why it is not verified, or why it was lost
}

// discovery is what scan needs of *mdnssvc.Service.
type discovery interface {
	Run(ctx context.Context) error
	SetLinks(ifwatch.Snapshot)
	Browse(on bool)
	Events(ctx context.Context) ([]mdnssvc.Event, error)
	Stats() mdnssvc.Stats
}

// scanner looks at the network. Only the goroutine in look touches entries.
type scanner struct {
	mdns    discovery
	watcher *ifwatch.Watcher // nil for a single look
	links   ifwatch.Snapshot
	service string
	client  *client.Client  // nil: nobody is asked to prove anything
	liqo    bool            // it is Liqo clusters that are looked for
	self    string          // fingerprint of this cluster, "" when unknown
	out     *render.Printer // nil for a single look

	entries map[scanKey]*scanEntry
	queue   []scanKey // to be verified
	open    bool      // verification may begin
	asking  int
	results chan verdict
}

func newScanner(mdns discovery, service string) *scanner {
	return &scanner{mdns: mdns, service: service, entries: make(map[scanKey]*scanEntry), results: make(chan verdict)}
}

type scanKey struct{ link, instance string }

type scanEntry struct {
	shown    Neighbour
	sighting peer.Sighting
	asking   bool // a verifier is at work
	again    bool // what it is asked about has changed since
}

type verdict struct {
	key    scanKey
	entry  *scanEntry // as it was when the question was asked
	result client.Result
	err    error
}

// look runs until ctx ends, which is no error.
func (s *scanner) look(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	s.mdns.SetLinks(s.links)
	s.mdns.Browse(true)
	g.Go(func() error {
		err := s.mdns.Run(ctx)
		if err == nil && ctx.Err() == nil {
			return errStopped
		}
		return err
	})
	if s.watcher != nil {
		g.Go(func() error { return s.watcher.Run(ctx) })
		g.Go(func() error { return s.followLinks(ctx) })
	}
	events := make(chan []mdnssvc.Event)
	g.Go(func() error { return s.pump(ctx, events) })
	g.Go(func() error { return s.loop(ctx, events) })
	err := g.Wait()
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// followLinks tells discovery about links that come and go.
func (s *scanner) followLinks(ctx context.Context) error {
	current, changed, cancel := s.watcher.Subscribe()
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			s.mdns.SetLinks(current())
		}
	}
}

func (s *scanner) pump(ctx context.Context, to chan<- []mdnssvc.Event) error {
	for {
		batch, err := s.mdns.Events(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case to <- batch:
		case <-ctx.Done():
			return nil
		}
	}
}

// loop owns the entries. What it writes is flushed after each batch, so that a
// line is seen at once and many cost few writes.
func (s *scanner) loop(ctx context.Context, events <-chan []mdnssvc.Event) error {
	start := time.NewTimer(verifyAfter)
	defer start.Stop()
	// Verifiers end by themselves with ctx; wait for them.
	defer func() {
		for ; s.asking > 0; s.asking-- {
			<-s.results
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case batch := <-events:
			for _, e := range batch {
				s.handle(e)
			}
		case v := <-s.results:
			s.judge(v)
		case <-start.C:
			s.open = true
		}
		s.verify(ctx)
		if s.out != nil {
			if err := s.out.Flush(); err != nil {
				return err
			}
		}
	}
}

// handle takes one event of discovery in.
func (s *scanner) handle(e mdnssvc.Event) {
	key := scanKey{e.Link, e.Instance.Name}
	entry := s.entries[key]
	if e.Kind == browser.Lost {
		if entry == nil {
			return
		}
		delete(s.entries, key)
		entry.shown.Reason = e.Reason
		s.show("lost", entry.shown)
		return
	}
	event := "updated"
	if entry == nil {
		event = "found"
		entry = &scanEntry{}
		s.entries[key] = entry
	}
	before := entry.shown
	entry.shown = neighbour(s.service, e)
	if s.liqo {
		s.consider(key, entry, before, e)
	}
	s.show(event, entry.shown)
}

// consider reads what a neighbour says of itself, and has it verified unless
// nothing that matters has changed since it was.
func (s *scanner) consider(key scanKey, entry *scanEntry, before Neighbour, e mdnssvc.Event) {
	n := &entry.shown
	sighting, err := mdnssvc.Sighting(e)
	if err != nil {
		n.Reason = err.Error()
		entry.sighting = peer.Sighting{}
		return
	}
	same := sighting.ClusterID == entry.sighting.ClusterID && sighting.Fingerprint == entry.sighting.Fingerprint &&
		slices.Equal(sighting.Addrs, entry.sighting.Addrs)
	entry.sighting = sighting
	n.ID, n.Name, n.Fingerprint = string(sighting.ClusterID), sighting.ClusterName, sighting.Fingerprint.String()
	if same {
		n.Verified, n.URL, n.Self, n.Reason = before.Verified, before.URL, before.Self, before.Reason
		return
	}
	if s.client == nil {
		n.Reason = "not asked"
		return
	}
	n.Reason = "not asked yet"
	if entry.asking {
		entry.again = true
		return
	}
	s.queue = append(s.queue, key)
}

// verify starts asking as many neighbours as may be asked at once.
func (s *scanner) verify(ctx context.Context) {
	for s.open && s.asking < verifiers && len(s.queue) > 0 {
		key := s.queue[0]
		s.queue = s.queue[1:]
		entry := s.entries[key]
		if entry == nil || entry.asking || len(entry.sighting.Addrs) == 0 {
			continue // gone, or no longer a Liqo cluster
		}
		entry.asking = true
		s.asking++
		target := peer.Target{ID: entry.sighting.ClusterID, Fingerprint: entry.sighting.Fingerprint, Addrs: entry.sighting.Addrs}
		go func() {
			result, err := s.client.Identify(ctx, target)
			s.results <- verdict{key, entry, result, err}
		}()
	}
}

// judge takes the outcome of asking in.
func (s *scanner) judge(v verdict) {
	s.asking--
	entry := v.entry
	if s.entries[v.key] != entry {
		return // gone, and perhaps back, in the meantime
	}
	entry.asking = false
	if entry.again {
		entry.again = false
		s.queue = append(s.queue, v.key)
		return
	}
	n := &entry.shown
	if v.err != nil {
		n.Verified, n.URL, n.Self, n.Reason = false, "", false, v.err.Error()
	} else {
		n.Verified, n.URL, n.Reason = true, v.result.URL, ""
		n.ID, n.Name, n.Fingerprint = string(v.result.Identity.ClusterID), v.result.Identity.ClusterName, v.result.Fingerprint.String()
		n.Self = n.Fingerprint == s.self
	}
	s.show("updated", *n)
}

func (s *scanner) show(event string, n Neighbour) {
	if s.out == nil {
		return
	}
	n.Event, n.At = event, time.Now()
	printNeighbour(s.out, n)
}

// list returns what is known, in order.
func (s *scanner) list() []Neighbour {
	out := make([]Neighbour, 0, len(s.entries))
	for _, e := range s.entries {
		out = append(out, e.shown)
	}
	slices.SortFunc(out, func(a, b Neighbour) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Link, b.Link))
	})
	return out
}

func neighbour(service string, e mdnssvc.Event) Neighbour {
	i := e.Instance
	n := Neighbour{
		Service:  service,
		Instance: i.Name,
		Link:     e.Link,
		Host:     strings.TrimSuffix(i.Host, "."),
		Port:     i.Port,
		Addrs:    make([]string, 0, len(i.Addrs)),
		TXT:      wire.DecodeTXT(i.TXT),
	}
	for _, a := range byUse(i.Addrs) {
		n.Addrs = append(n.Addrs, a.String())
	}
	if len(n.Addrs) > 0 {
		n.Addr = n.Addrs[0]
	}
	return n
}

// byUse returns addresses with those first that work without saying on which
// link.
func byUse(addrs []netip.Addr) []netip.Addr {
	out := slices.Clone(addrs)
	slices.SortStableFunc(out, func(a, b netip.Addr) int { return cmp.Compare(rank(a), rank(b)) })
	return out
}

func rank(a netip.Addr) int {
	switch {
	case a.IsLinkLocalUnicast():
		return 2
	case a.Is6():
		return 1
	}
	return 0
}
