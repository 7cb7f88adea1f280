package client

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
)

// ErrNoReach: the peer does not know the call, because it runs an older version or
// does not offer it.
var ErrNoReach = errors.New("the peer's agent cannot call back; it is of an older version")

// reachTimeout bounds one attempt to call back: less than a call may take, so
// that there is always an answer.
const reachTimeout = 4 * time.Second

// CallBack finds out whether the holder of a key, or of one that succeeded it, can
// be reached at an address. It connects, has the key proven and hangs up; nothing is
// sent. It takes at most four seconds.
func (c *Client) CallBack(ctx context.Context, key peer.Fingerprint, at netip.AddrPort) (out wire.Reached) {
	limited, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	out.Address = at.String()
	// As late as can be: the caller compares it with its own clock.
	defer func() { out.Time = time.Now().UTC() }()
	if err := usable(at); err != nil {
		out.Outcome, out.Detail = wire.ReachUnreachable, err.Error()
		return out
	}
	k, failure := c.open(limited, dialRequest{target: peer.Target{Fingerprint: key}}, candidate{addr: at})
	if failure == nil {
		k.Close()
		out.Outcome, out.Detail = wire.ReachReached, "the endpoint answers and proves its key"
		return out
	}
	out.Outcome, out.Detail = reachOutcome(limited, failure), failure.Err.Error()
	return out
}

// reachOutcome says what a failed attempt means.
func reachOutcome(ctx context.Context, failure *Error) wire.ReachOutcome {
	switch failure.Reason {
	case ReasonWrongKey, ReasonSelf, ReasonBadAnswer:
		return wire.ReachOtherKey
	case ReasonNotTLS:
		return wire.ReachNotTLS
	}
	var errno syscall.Errno
	switch {
	case errors.Is(failure.Err, syscall.ECONNREFUSED), errors.Is(failure.Err, syscall.ECONNRESET):
		return wire.ReachRefused
	case errors.Is(failure.Err, syscall.ETIMEDOUT), ctx.Err() != nil:
		return wire.ReachTimedOut
	case errors.As(failure.Err, &errno):
		return wire.ReachUnreachable
	}
	return wire.ReachTimedOut
}

// Reach asks a peer whose key is trusted to call us back at the port that greeting
// says, and returns what it found. The error is that of Exchange, wraps ErrNoReach,
// or holds the peer's refusal.
func (c *Client) Reach(ctx context.Context, target peer.Target, greeting wire.Greeting) (wire.Reached, error) {
	body, err := wire.Encode(greeting)
	if err != nil {
		return wire.Reached{}, err
	}
	resp, err := c.Exchange(ctx, target, Request{Method: http.MethodPost, Path: wire.PathReach, Body: body})
	if err != nil {
		return wire.Reached{}, err
	}
	switch resp.Status {
	case http.StatusOK:
		return wire.ParseReached(resp.Body)
	case http.StatusNotFound:
		return wire.Reached{}, ErrNoReach
	}
	return wire.Reached{}, errors.New(resp.Refusal().Error)
}
