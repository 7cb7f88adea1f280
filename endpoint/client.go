package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"liqo.io/agent/peer"
)

const (
	// DefaultTimeout is how long Identify may take when ClientConfig sets
	// nothing.
	DefaultTimeout = 5 * time.Second
	// DefaultMaxSessions is how many peers a Client remembers when
	// ClientConfig sets nothing; each takes about 1.8 KB.
	DefaultMaxSessions = 5120
)

// ClientConfig says how a Client works. The zero value is usable.
type ClientConfig struct {
	// SelfFingerprint is this cluster's own key: whoever answers with it is no
	// peer. Zero when this process has none, as in a one-shot scan.
	SelfFingerprint peer.Fingerprint
	// Timeout limits one Identify as a whole; 0 means DefaultTimeout.
	Timeout time.Duration
	// MaxSessions is for how many peers the TLS session is remembered; the least
	// recently seen are forgotten. 0 means DefaultMaxSessions.
	MaxSessions int
	// Keep is how many connections are kept open for the next check of the same
	// peer. 0 means none.
	Keep int
}

// Target is whom to look for, and where.
type Target struct {
	// ID is the expected cluster ID; "" accepts any.
	ID peer.ClusterID
	// Fingerprint is the expected key; zero accepts any, and learns it.
	Fingerprint peer.Fingerprint
	// Addrs are the addresses to try, the most promising first. Link-local IPv6
	// addresses need a zone, and are tried last.
	Addrs []netip.AddrPort
	// URL is https://host[:port], tried after Addrs failed. The host may be a
	// name; without a port it is 443.
	URL string
}

// Result is who answered.
type Result struct {
	Identity    peer.Identity    // validated by package peer's rules
	Fingerprint peer.Fingerprint // the key it proved to hold
	Addr        netip.AddrPort   // where it answered
	URL         string           // the same as https://host:port; the target's URL if that was used
}

// Client asks peers' endpoints who they are. It may be used by any number of
// goroutines at once. One that keeps connections needs to be closed.
type Client struct {
	self    peer.Fingerprint
	memory  *memory
	kept    *kept
	dialer  net.Dialer
	start   time.Time
	timeout time.Duration // of one Identify

	headStart, attemptTimeout time.Duration // of one address
}

// NewClient returns a Client.
func NewClient(cfg ClientConfig) *Client {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.MaxSessions <= 0 {
		cfg.MaxSessions = DefaultMaxSessions
	}
	return &Client{
		self:    cfg.SelfFingerprint,
		timeout: cfg.Timeout,
		memory:  newMemory(cfg.MaxSessions),
		kept:    newKept(cfg.Keep),
		// Connections live for milliseconds, which is no time for keepalives.
		dialer: net.Dialer{KeepAlive: -1},
		start:  time.Now(),

		headStart:      headStart,
		attemptTimeout: attemptTimeout,
	}
}

// clock is the time that TLS sessions age by. It starts at the epoch and
// follows the monotonic clock, so that a wall clock that jumps, or that differs
// from the peer's, neither expires sessions nor keeps them for ever.
func (c *Client) clock() time.Time {
	return time.Unix(0, 0).Add(time.Since(c.start))
}

// Forget drops the TLS session and closes the kept connection with the holder of
// fp. It is never needed for correctness, only to free memory early.
func (c *Client) Forget(fp peer.Fingerprint) {
	c.memory.forget(fp)
	c.kept.drop(fp)
}

// Close closes the kept connections. Later checks work, but keep none.
func (c *Client) Close() { c.kept.end() }

// Identify connects to the target's addresses, several at a time if they are
// slow, and returns the first answer that comes from the expected key and says
// the expected ID. The key is proven before anything is sent. The error is an
// *Error, except when ctx was canceled: then it wraps context.Canceled and says
// nothing about the peer. Apart from the one that is kept, if any, all
// connections are closed when Identify returns.
func (c *Client) Identify(ctx context.Context, target Target) (Result, error) {
	pinned := !target.Fingerprint.IsZero()
	if pinned && target.Fingerprint == c.self {
		return Result{}, &Error{Reason: ReasonSelf, Got: c.self, Err: errors.New("the key looked for is this cluster's own")}
	}
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()

	candidates, failures := order(target.Addrs)
	if pinned {
		if result, ok := c.again(limited, target, candidates); ok {
			return result, nil
		}
	}
	result, ok, failed := c.race(limited, target, candidates)
	failures = append(failures, failed...)
	if !ok && target.URL != "" && limited.Err() == nil {
		candidates, err := resolve(limited, target.URL)
		if err != nil {
			failures = append(failures, &Error{Reason: ReasonUnreachable, Err: err})
		}
		result, ok, failed = c.race(limited, target, candidates)
		failures = append(failures, failed...)
	}
	switch {
	case ok:
		return result, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return Result{}, fmt.Errorf("identify peer: %w", ctx.Err())
	case len(failures) == 0:
		return Result{}, &Error{Reason: ReasonUnreachable, Err: errors.New("no address of the peer is known")}
	}
	return Result{}, mostTelling(failures, pinned)
}

// resolve returns the addresses behind a target's URL.
func resolve(ctx context.Context, raw string) ([]candidate, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("endpoint URL: %w", err)
	case u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || (u.Path != "" && u.Path != "/"):
		return nil, fmt.Errorf("endpoint URL %q is not of the form https://host:port", raw)
	}
	port := uint16(443)
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("endpoint URL %q: port %q is not between 1 and 65535", raw, p)
		}
		port = uint16(n)
	}
	host := u.Hostname()
	var addrs []netip.Addr
	name := ""
	if literal, err := netip.ParseAddr(host); err == nil {
		addrs = []netip.Addr{literal}
	} else {
		name = host
		if addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			return nil, fmt.Errorf("look up %q: %w", host, err)
		}
	}
	ports := make([]netip.AddrPort, 0, len(addrs))
	for _, a := range addrs {
		ports = append(ports, netip.AddrPortFrom(a, port))
	}
	candidates, failures := order(ports)
	if len(candidates) == 0 {
		return nil, fmt.Errorf("endpoint URL %q: %w", raw, mostTelling(failures, false))
	}
	for i := range candidates {
		candidates[i].name, candidates[i].url = name, (&url.URL{Scheme: "https", Host: u.Host}).String()
	}
	return candidates, nil
}
