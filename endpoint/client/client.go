package client

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

const (
	// DefaultTimeout is how long Identify may take when ClientConfig sets
	// nothing.
	DefaultTimeout = 5 * time.Second
	// DefaultMaxSessions is how many peers a Client remembers when
	// ClientConfig sets nothing; each takes about 1.8 KB.
	DefaultMaxSessions = 5120
	// exchangeTimeout is how long one Exchange may take as a whole. The gateway
	// behind the peer's endpoint waits for an API server, which may sit on an SD
	// card and ask a webhook before it answers.
	ExchangeTimeout = 15 * time.Second
)

// ClientConfig says how a Client works. The zero value is usable.
type Config struct {
	// SelfFingerprint is this cluster's own key: whoever answers with it is no
	// peer. Zero when this process has none, as in a one-shot scan. With an Issuer
	// it is not needed.
	SelfFingerprint peer.Fingerprint
	// Issuer makes the certificate that Exchange shows to whoever asks for one.
	// Identify shows none: what it fetches is for anyone. nil: none is shown, and
	// peers take every Exchange for a stranger's.
	Issuer *trust.Issuer
	// Roots are the certificate authorities that may vouch for the host name of a
	// URL; nil means the system's.
	Roots *x509.CertPool
	// Timeout limits one Identify as a whole; 0 means DefaultTimeout. Three fifths of
	// it, and never less than three seconds, are for one address, in other calls too:
	// some is left for those that are tried after it.
	Timeout time.Duration
	// MaxSessions is for how many peers the TLS session is remembered, in 2 KiB for
	// each on average; the least recently seen are forgotten. 0 means
	// DefaultMaxSessions.
	MaxSessions int
	// Keep is how many connections are kept open for the next check of, or call to,
	// the same peer. Those that carried calls come first. 0 means none.
	Keep int
}

// Result is who answered.
type Result struct {
	Identity peer.Identity // validated by package peer's rules; empty after an Exchange
	Protocol peer.Protocol // what it speaks
	Date     time.Time     // what its clock said, to the second; zero after an Exchange, or if it did not tell
	// Fingerprint is the key it proved to hold. It differs from an expected one
	// when it succeeds that.
	Fingerprint peer.Fingerprint
	Shown       trust.Shown    // what the handshake proved; a Name only if it is one of the target's Hosts
	Addr        netip.AddrPort // where it answered
	URL         string         // the same as https://host:port; the target's URL if that was used
}

// Client asks peers' endpoints who they are, and calls those that are trusted. It
// may be used by any number of goroutines at once. One that keeps connections
// needs to be closed.
type Client struct {
	presented presented
	roots     *x509.CertPool
	sessions  *sessionCache
	idle      *idleConns
	dialer    net.Dialer
	start     time.Time
	timeout   time.Duration // of one Identify

	headStart, attemptTimeout time.Duration // of one address
	exchangeTimeout           time.Duration // of one Exchange
	idleAnswer                time.Duration // of a check on an idle connection
	idleSilence               time.Duration // of an idle connection that does not even acknowledge
}

// NewClient returns a Client.
func New(cfg Config) *Client {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.MaxSessions <= 0 {
		cfg.MaxSessions = DefaultMaxSessions
	}
	return &Client{
		presented: presented{issuer: cfg.Issuer, key: cfg.SelfFingerprint},
		roots:     cfg.Roots,
		timeout:   cfg.Timeout,
		sessions:  newSessionCache(cfg.MaxSessions),
		idle:      newIdleConns(cfg.Keep),
		// Connections live for milliseconds, which is no time for keepalives.
		dialer: net.Dialer{KeepAlive: -1},
		start:  time.Now(),

		headStart:       headStart,
		attemptTimeout:  max(attemptTimeout, cfg.Timeout*3/5),
		exchangeTimeout: ExchangeTimeout,
		idleAnswer:      idleAnswerTimeout,
		idleSilence:     idleAnswerTimeout,
	}
}

// clock is the time that TLS sessions age by. It starts at the epoch and
// follows the monotonic clock, so that a wall clock that jumps, or that differs
// from the peer's, neither expires sessions nor keeps them for ever.
func (c *Client) clock() time.Time {
	return time.Unix(0, 0).Add(time.Since(c.start))
}

// Forget drops the TLS session and closes the idle connection with the holder of
// fp. It is never needed for correctness, only to free memory early.
func (c *Client) Forget(fp peer.Fingerprint) {
	c.sessions.forget(fp)
	c.idle.drop(fp)
}

// Close closes the idle connections. Later checks work, but keep none.
func (c *Client) Close() { c.idle.end() }

// Identify connects to the target's addresses, several at a time if they are
// slow, and returns the first answer that comes from the expected key, or from
// one that succeeded it, and says the expected ID. The key is proven before
// anything is sent. The error is an *Error, except when ctx was canceled: then it
// wraps context.Canceled and says nothing about the peer. Apart from the one that
// is kept, if any, all connections are closed when Identify returns.
func (c *Client) Identify(ctx context.Context, target peer.Target) (Result, error) {
	if err := c.notSelf(target); err != nil {
		return Result{}, err
	}
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	candidates, failures := candidatesFor(target)
	if !target.Fingerprint.IsZero() {
		if result, ok := c.identifyOnIdle(limited, target, candidates); ok {
			return result, nil
		}
	}
	result, ok, failures := find(limited, c, target, candidates, failures, func(ctx context.Context, cand candidate) (Result, *Error) {
		return c.identifyAt(ctx, target, cand)
	}, func(Result) {})
	if !ok {
		return Result{}, failed(ctx, "identify peer", target, failures)
	}
	return result, nil
}

// notSelf refuses a target that is this cluster.
func (c *Client) notSelf(target peer.Target) error {
	if !target.Fingerprint.IsZero() && target.Fingerprint == c.presented.fingerprint() {
		return &Error{Reason: ReasonSelf, Got: target.Fingerprint, Err: errors.New("the key looked for is this cluster's own")}
	}
	return nil
}

// find tries the target's places and addresses, which candidates are, and then its
// URL. Without a result it returns all failures, those given among them.
func find[T any](ctx context.Context, c *Client, target peer.Target, candidates []candidate, failures []*Error,
	try func(context.Context, candidate) (T, *Error), discard func(T)) (T, bool, []*Error) {
	try = lookingUp(c, anonymously(try), discard)
	result, ok, more := race(ctx, c.headStart, candidates, try, discard)
	failures = append(failures, more...)
	if ok || target.URL == "" || ctx.Err() != nil {
		return result, ok, failures
	}
	result, failure := try(ctx, candidate{lookup: target.URL})
	if failure != nil {
		return result, false, append(failures, failure)
	}
	return result, true, failures
}

// lookingUp makes an attempt of a host name one of all its addresses.
func lookingUp[T any](c *Client, try func(context.Context, candidate) (T, *Error), discard func(T)) func(context.Context, candidate) (T, *Error) {
	return func(ctx context.Context, cand candidate) (T, *Error) {
		if cand.lookup == "" {
			return try(ctx, cand)
		}
		var none T
		candidates, err := resolve(ctx, cand.lookup)
		if err != nil {
			return none, &Error{Reason: ReasonUnreachable, Err: err}
		}
		result, ok, failures := race(ctx, c.headStart, candidates, try, discard)
		if !ok {
			return none, mostTelling(failures, false)
		}
		return result, nil
	}
}

// anonymously calls a host a second time without its name if a holder of another
// key than the expected one answered to it. The certificate that a peer shows to
// those who call it by name is from a public authority, and says nothing about
// the key before.
func anonymously[T any](try func(context.Context, candidate) (T, *Error)) func(context.Context, candidate) (T, *Error) {
	return func(ctx context.Context, cand candidate) (T, *Error) {
		result, failure := try(ctx, cand)
		if failure != nil && failure.Reason == ReasonWrongKey && cand.name != "" {
			cand.name = ""
			return try(ctx, cand)
		}
		return result, failure
	}
}

// failed is the error of a call that came to no result.
func failed(ctx context.Context, what string, target peer.Target, failures []*Error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%s: %w", what, ctx.Err())
	case len(failures) == 0:
		return &Error{Reason: ReasonUnreachable, Err: errors.New("no address of the peer is known")}
	}
	return mostTelling(failures, !target.Fingerprint.IsZero())
}
