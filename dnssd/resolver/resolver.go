package resolver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver/wire"
)

const (
	// hostTTL is how long the addresses of a server that is given by name are used.
	hostTTL = time.Minute
	// maxHostAddrs is how many of its addresses are asked.
	maxHostAddrs = 8
)

// Resolver looks up names. Its methods may be called from any goroutine. It costs nothing
// until it is used.
type Resolver struct {
	cfg       Config
	server    *endpoint // nil: only the system's name servers
	domain    string    // Config.Domain; "" none
	system    confFile
	port      uint16 // of the system's name servers
	transport *wire.Transport
	log       *slog.Logger
	turn      atomic.Uint64
	closing   context.Context // ends with Close
	close     context.CancelFunc

	mu     sync.Mutex
	habits map[wire.Target]habit

	host hostAddrs
}

// hostAddrs are the addresses of the configured server's name.
type hostAddrs struct {
	mu    sync.Mutex
	addrs []netip.Addr
	until time.Time
}

// New returns a resolver, or what is wrong with the configuration. It reads no file and sends nothing.
func New(cfg Config) (*Resolver, error) {
	r := &Resolver{
		cfg: cfg, port: portDNS, log: cfg.Logger, habits: make(map[wire.Target]habit),
		system: confFile{path: cmp.Or(cfg.ResolvConf, resolvConf)},
	}
	if cfg.Timeout < 0 || cfg.Attempts < 0 {
		return nil, errors.New("DNS resolver: the timeout and the attempts must not be negative")
	}
	if cfg.Server != "" {
		e, err := parseServer(cfg.Server)
		if err != nil {
			return nil, err
		}
		r.server = &e
	}
	if cfg.Domain != "" {
		q, err := wire.NewQuestion(cfg.Domain, dns.TypePTR)
		if err != nil {
			return nil, err
		}
		r.domain = q.Name
	}
	if r.cfg.LookupHost == nil {
		r.cfg.LookupHost = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.transport = wire.NewTransport(cfg.RootCAs)
	r.closing, r.close = context.WithCancel(context.Background())
	return r, nil
}

// Close ends all look-ups and connections and returns when the connections' goroutines have ended.
// Later look-ups are Unreachable.
func (r *Resolver) Close() {
	r.close()
	r.transport.Close()
}

// Queries returns how many questions were sent since New, repetitions included.
func (r *Resolver) Queries() uint64 { return r.transport.Sent() }

// Lookup asks for the records of one type that a name has, and follows its aliases. The name is
// absolute, with or without a trailing dot. What goes wrong is in the answer. It returns as soon
// as ctx ends, with outcome Timeout and an error that wraps what ended it.
func (r *Resolver) Lookup(ctx context.Context, name string, qtype uint16) Answer {
	if r.closing.Err() != nil {
		return Answer{Outcome: Unreachable, Name: name, Err: wire.ErrClosed}
	}
	q, err := wire.NewQuestion(name, qtype)
	if err != nil {
		return Answer{Outcome: BadAnswer, Name: name, Err: fmt.Errorf("look up a name: %w", err)}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.closing, func() { cancel(wire.ErrClosed) })()

	ttl, authenticated := uint32(math.MaxUint32), true
	path := []string{q.Name} // names that aliases led through
	for {
		got, outcome, err := r.ask(ctx, q, path)
		if err != nil {
			if len(path) > 1 {
				err = fmt.Errorf("%s is an alias of %s: %w", path[0], q.Name, err)
			}
			return Answer{Outcome: outcome, Name: q.Name, Err: err, Server: got.server()}
		}
		ttl, authenticated = min(ttl, got.ttl), authenticated && got.ad
		if got.outcome != "" {
			return Answer{
				Outcome: got.outcome, Records: got.records, Name: got.name, TTL: time.Duration(ttl) * time.Second,
				Authenticated: authenticated, Server: got.server(),
			}
		}
		path = append(path, got.path...)
		q.Name = got.name
	}
}

// server is the server that answered, "" if none did.
func (r result) server() string {
	if !r.target.Addr.IsValid() {
		return ""
	}
	return r.target.Addr.String()
}

// ask asks one question of whom it is to be asked of. The outcome counts if there is an error.
func (r *Resolver) ask(ctx context.Context, q wire.Question, path []string) (result, Outcome, error) {
	if r.server == nil {
		return r.askSystem(ctx, q, path)
	}
	g, err := r.serverGroup(ctx)
	if err != nil {
		outcome, err := explain(ctx, err, g.timeout)
		return result{}, outcome, fmt.Errorf("look up %s: %w", q, err)
	}
	got, fail := r.askGroup(ctx, g, q, path)
	if fail == nil {
		return got, "", nil
	}
	away, elsewhere := fail.elsewhere()
	if !elsewhere || r.owns(q, away.delegation) || ctx.Err() != nil {
		return result{target: fail.speaker()}, fail.outcome(), fail
	}
	got, outcome, err := r.askSystem(ctx, q, path)
	if err != nil {
		err = fmt.Errorf("%s has no answer for %s, and neither have the system's name servers: %w", r.cfg.Server, q, err)
	}
	return got, outcome, err
}

// owns reports whether the word of the configured server about a question is final, although it refuses to
// give one or, if delegation is not empty, refers to the servers of that zone.
func (r *Resolver) owns(q wire.Question, delegation string) bool {
	if r.domain == "" {
		return q.Type == dns.TypePTR
	}
	if !dns.IsSubDomain(r.domain, q.Name) {
		return false
	}
	// A part of the domain that the server itself has given away is not its own.
	return delegation == "" || delegation == r.domain || !dns.IsSubDomain(r.domain, delegation)
}

func (r *Resolver) askSystem(ctx context.Context, q wire.Question, path []string) (result, Outcome, error) {
	g, err := r.systemGroup()
	if err != nil {
		return result{}, Unreachable, fmt.Errorf("look up %s: %w", q, err)
	}
	got, fail := r.askGroup(ctx, g, q, path)
	if fail != nil {
		return result{target: fail.speaker()}, fail.outcome(), fail
	}
	return got, "", nil
}

// systemGroup is what resolv.conf says now.
func (r *Resolver) systemGroup() (group, error) {
	c, err := r.system.get()
	if err != nil {
		return group{}, err
	}
	g := group{
		timeout:  cmp.Or(r.cfg.Timeout, c.timeout, defaultTimeout),
		attempts: cmp.Or(r.cfg.Attempts, c.attempts, defaultAttempts),
		rotate:   c.rotate, tcp: c.tcp,
		advice: "is the network up, and are these the right name servers in " + r.system.path + "?",
	}
	for _, addr := range c.servers {
		g.targets = append(g.targets, wire.Target{Addr: netip.AddrPortFrom(addr, r.port)})
	}
	return g, nil
}

// serverGroup is the configured server, at all of its addresses.
func (r *Resolver) serverGroup(ctx context.Context) (group, error) {
	e := *r.server
	g := group{
		timeout: cmp.Or(r.cfg.Timeout, defaultTimeout), attempts: cmp.Or(r.cfg.Attempts, defaultAttempts),
		advice: "is " + r.cfg.Server + " the right server, and can it be reached from here by UDP and TCP?",
	}
	if e.tls {
		g.advice = "is " + r.cfg.Server + " the right server, does it do DNS over TLS, and is its certificate for that name?"
	}
	addrs := []netip.Addr{e.addr}
	if !e.addr.IsValid() {
		var err error
		if addrs, err = r.hostAddrs(ctx, g.timeout); err != nil {
			return g, err
		}
	}
	for _, addr := range addrs {
		t := wire.Target{Addr: netip.AddrPortFrom(addr, e.port), TLS: e.tls}
		if e.tls {
			t.Name = strings.TrimSuffix(e.host, ".")
			if e.addr.IsValid() {
				t.Name = addr.WithZone("").String()
			}
		}
		g.targets = append(g.targets, t)
	}
	return g, nil
}

// hostAddrs returns the addresses of the configured server's name. While it cannot be resolved the last
// known ones count.
func (r *Resolver) hostAddrs(ctx context.Context, timeout time.Duration) ([]netip.Addr, error) {
	r.host.mu.Lock()
	addrs, until := r.host.addrs, r.host.until
	r.host.mu.Unlock()
	if time.Now().Before(until) {
		return addrs, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	fresh, err := r.cfg.LookupHost(ctx, r.server.host)
	if err == nil && len(fresh) == 0 {
		err = errors.New("it has no address")
	}
	if err != nil && len(addrs) == 0 {
		return nil, fmt.Errorf("the DNS server's own name %s: %w (an IP address needs no look-up)", r.server.host, err)
	}
	if err == nil {
		addrs = nil
		for _, addr := range fresh[:min(len(fresh), maxHostAddrs)] {
			addrs = append(addrs, addr.Unmap())
		}
	}
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	r.host.addrs, r.host.until = addrs, time.Now().Add(hostTTL)
	return addrs, nil
}
