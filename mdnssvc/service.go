package mdnssvc

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"liqo.io/agent/ifwatch"
	"liqo.io/agent/mdnssvc/browser"
	"liqo.io/agent/mdnssvc/responder"
)

// DefaultReceiveBuffer is the size in bytes of each socket's receive buffer
// when Config does not say. A thousand neighbours that answer one question
// within a tenth of a second fit into it while the process is not scheduled at
// all.
const DefaultReceiveBuffer = 4 << 20

// Config says what to browse for and how.
type Config struct {
	Service string // service type, such as "_liqo._tcp"; required
	Domain  string // "" means "local"
	// MaxInstances bounds the instances kept per link, and with them the memory
	// that neighbours can make us use. 0 means browser.DefaultMaxInstances.
	MaxInstances int
	// Remembered reports whether an instance must never be evicted. It is called
	// on Run's goroutine for each new instance and must be quick. nil means none.
	Remembered func(instance string) bool
	Logger     *slog.Logger // nil means no log
	// BrowseOnly makes a Service that never announces nor answers anything.
	BrowseOnly bool
	// ReceiveBuffer is the size in bytes of each socket's receive buffer. The
	// kernel grants it to the privileged and limits it to net.core.rmem_max for
	// others. 0 means DefaultReceiveBuffer.
	ReceiveBuffer int

	asleep func() time.Duration // nil means the function of that name
}

// Service announces one service instance and finds those of others. Create it
// with New, start it with Run.
type Service struct {
	cfg     Config
	log     *slog.Logger
	inbox   *inbox
	events  *outbox
	count   *counters
	core    *core // owned by Run
	running atomic.Bool
}

// New returns a Service that does nothing until Run. It browses unless told
// otherwise by Browse, and announces nothing until told so by Advertise.
func New(cfg Config) (*Service, error) {
	if cfg.Domain == "" {
		cfg.Domain = "local"
	}
	if cfg.ReceiveBuffer <= 0 {
		cfg.ReceiveBuffer = DefaultReceiveBuffer
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if cfg.asleep == nil {
		cfg.asleep = asleep
	}
	if err := checkService(cfg.Service, cfg.Domain); err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, log: cfg.Logger, inbox: newInbox(), events: newOutbox(), count: newCounters()}
	c := &core{
		log:    s.log,
		events: s.events,
		count:  s.count,
		links:  make(map[int]*link),
		echoes: newEchoes(),
		asleep: cfg.asleep,
		slept:  cfg.asleep(),
		browser: browser.New(browser.Config{
			Rand:         newRand(),
			Service:      cfg.Service,
			Domain:       cfg.Domain,
			MaxInstances: cfg.MaxInstances,
			Remembered:   cfg.Remembered,
		}),
	}
	if !cfg.BrowseOnly {
		c.responder = responder.New(responder.Config{Rand: newRand(), OnConflict: c.conflict, OnRename: c.renamed})
	}
	s.core = c
	s.Browse(true)
	return s, nil
}

// Use says what a link is used for. What Browse and Advertise switch off stays
// off.
type Use struct {
	Advertise bool // announce ourselves there, and answer
	Browse    bool // look for others there
}

// SetLinks replaces the links in use. A link that is left out is abandoned: if
// it still works, neighbours there are told goodbye. Several calls before Run
// looks count as the last one.
func (s *Service) SetLinks(snapshot ifwatch.Snapshot) { s.SetLinksFor(snapshot, nil) }

// SetLinksFor is SetLinks with a say in what each link is used for; use, which
// is called before SetLinksFor returns, may be nil for everything.
//
// Where we are not to advertise, neighbours are told goodbye (RFC 6762 section
// 10.1), and then nothing is said about us, neither announced, nor probed for,
// nor answered. Where we are not to browse, nothing is asked or taken in, and
// what was found there is lost with browser.ReasonDiscoveryOff. Once both are
// off no packet is sent on the link, and its groups are left. Other links are
// not affected, and what is switched on again starts at once, as on a new link.
func (s *Service) SetLinksFor(snapshot ifwatch.Snapshot, use func(ifwatch.Link) Use) {
	wanted := make([]wantedLink, 0, len(snapshot.Links))
	for _, l := range snapshot.Links {
		w := wantedLink{Link: l, use: Use{Advertise: true, Browse: true}}
		if use != nil {
			w.use = use(l)
		}
		wanted = append(wanted, w)
	}
	s.inbox.put(func(r *requests) { r.links, r.setLinks = wanted, true })
}

// Advertise replaces what is announced; nil withdraws it with a goodbye. An
// announcement that its Validate method refuses is logged and changes nothing.
// The Service must not be BrowseOnly.
func (s *Service) Advertise(a *responder.Announcement) {
	s.inbox.put(func(r *requests) { r.announce, r.announcement = true, a })
}

// Browse switches browsing on or off. Off, everything found is lost.
func (s *Service) Browse(on bool) {
	s.inbox.put(func(r *requests) { r.browse = &on })
}

// Reconfirm asks for an instance's records again because it seems to be gone
// (RFC 6762 section 10.4): when nobody answers, it is lost within seconds
// instead of when its TTL ends. link is an interface name.
func (s *Service) Reconfirm(link, instance string) {
	s.inbox.put(func(r *requests) {
		if len(r.reconfirm) < maxReconfirm {
			r.reconfirm[instanceKey{link, instance}] = struct{}{}
		}
	})
}

// Answers waits for a sign of life of the goroutine that Run works on, and returns
// ctx's error when none comes. While Run does not run there is nothing to answer,
// and nil is returned.
func (s *Service) Answers(ctx context.Context) error {
	if !s.running.Load() {
		return nil
	}
	var heard <-chan struct{}
	s.inbox.put(func(r *requests) {
		if r.asking == nil {
			r.asking = make(chan struct{})
		}
		heard = r.asking
	})
	select {
	case <-heard:
		return nil
	case <-ctx.Done():
		if !s.running.Load() {
			return nil
		}
		return ctx.Err()
	}
}

// Events waits until something has changed and returns it, or ctx's error. There
// is at most one event per link and instance, the latest, as seen by a consumer
// that knows of all events before: an instance found and lost again in between
// does not show up, one lost and found again is Updated. Only one goroutine may
// consume events. Events keep waiting while Run does not run.
func (s *Service) Events(ctx context.Context) ([]Event, error) {
	return s.events.take(ctx)
}

// checkService returns an error unless service is the type of a service, as in
// RFC 6763 section 4.1.2, and domain is a name.
func checkService(service, domain string) error {
	name, proto, ok := strings.Cut(service, ".")
	if !ok || len(name) < 2 || name[0] != '_' || proto != "_tcp" && proto != "_udp" {
		return fmt.Errorf(`service type %q: want an underscore and a name followed by "._tcp" or "._udp", such as "_liqo._tcp"`, service)
	}
	// What can be announced is what can be asked for.
	example := responder.Announcement{Instance: "x", Service: service, Domain: domain, Host: "x", Port: 1}
	if err := example.Validate(); err != nil {
		return fmt.Errorf("mDNS service type: %w", err)
	}
	return nil
}

// newRand returns a source of randomness that differs from that of all boxes
// booted from the same image: the delays drawn from it exist to tell them apart.
func newRand() *rand.Rand {
	var seed [16]byte
	_, _ = crand.Read(seed[:]) // never fails
	return rand.New(rand.NewPCG(binary.NativeEndian.Uint64(seed[:8]), binary.NativeEndian.Uint64(seed[8:])))
}

var errRunning = errors.New("mDNS: Run was called while it runs")

// Run joins the network and works until ctx ends; then it says goodbye, closes
// the sockets and returns nil. What was found and announced is kept when it
// returns an error, and it may be called again: the next Run goes on with it.
func (s *Service) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer s.running.Store(false)

	sockets, err := openSockets(ctx, s.cfg.ReceiveBuffer, s.log)
	if err != nil {
		return err
	}
	return s.serve(ctx, sockets)
}

// serve is one life of the sockets, which it closes.
func (s *Service) serve(ctx context.Context, sockets [2]*socket) error {
	l := &loop{core: s.core, sockets: sockets, queue: newQueue(), inbox: s.inbox}
	failed := make(chan error, len(sockets))
	readers := 0
	for _, k := range sockets {
		if k != nil {
			readers++
			go func() { failed <- k.read(l.queue, s.count) }()
		}
	}
	err := l.run(ctx, failed)
	if err != nil {
		readers-- // the one that failed
	}
	for _, k := range sockets {
		if k != nil {
			k.close()
		}
	}
	for range readers {
		<-failed // it ended because its socket was closed
	}
	return err
}
