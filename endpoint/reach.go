package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"liqo.io/agent/peer"
)

// ReachOutcome says how an attempt to call somebody back ended.
type ReachOutcome string

// The outcomes of an attempt.
const (
	// ReachReached: the holder of the caller's key answers there.
	ReachReached ReachOutcome = "reached"
	// ReachRefused: nothing listens there, or something answers in its place that it
	// does not (a TCP reset).
	ReachRefused ReachOutcome = "refused"
	// ReachTimedOut: nothing came back. Something drops what is sent there.
	ReachTimedOut ReachOutcome = "timed-out"
	// ReachUnreachable: a router or firewall on the way says that there is no way.
	ReachUnreachable ReachOutcome = "unreachable"
	// ReachOtherKey: the holder of another key answers there, such as another
	// cluster behind the same router.
	ReachOtherKey ReachOutcome = "other-key"
	// ReachNotTLS: something answers there that is no endpoint of a cluster.
	ReachNotTLS ReachOutcome = "not-tls"
)

// Reached is the answer to PathReach.
type Reached struct {
	Outcome ReachOutcome `json:"outcome"`
	// Address is what was tried, "ip:port": the caller as it is seen from here.
	Address string `json:"address"`
	Detail  string `json:"detail"` // a sentence for people
	// Time is what the clock of the answering cluster shows.
	Time time.Time `json:"time"`
}

// ErrNoReach: the peer does not know the call, because it runs an older version or
// does not offer it.
var ErrNoReach = errors.New("the peer's agent cannot call back; it is of an older version")

const (
	// reachTimeout bounds one attempt to call back: less than a call may take, so
	// that there is always an answer.
	reachTimeout = 4 * time.Second
	// A doctor asks once and a person who mends a firewall asks again. More would make
	// a port scanner of us, if only of the caller's own address.
	reachRate, reachBurst    = 0.1, 5 // a second, of one peer
	reachPerPeer, reachInAll = 1, 8
	// maxReached bounds the body of a Reached in bytes.
	maxReached = 4 << 10
)

// serveReach answers PathReach. The address tried is that of the caller's own
// connection: nobody can have us connect to anybody else.
func (s *Server) serveReach(w http.ResponseWriter, r *http.Request, c *conn, caller Caller) *refusal {
	if no := needsKnown(caller); no != nil {
		return no
	}
	if r.Method != http.MethodPost {
		return notAllowed("POST")
	}
	body, no := s.readBody(w, r, c, "application/json", maxCallBody)
	if no != nil {
		return no
	}
	var greeting Greeting
	if no := decodeCall(body, &greeting, &greeting, caller.ID); no != nil {
		return no
	}
	if greeting.Port == 0 || !caller.Source.IsValid() {
		return badBody("the greeting must say the port that is to be called back")
	}
	if wait := s.limits.reachRate.Take(caller.ID, s.limits.now()); wait > 0 {
		return tooMany(wait, "from your cluster to be called back")
	}
	if !s.limits.reach.Take(caller.ID) {
		return busy("calls back")
	}
	defer s.limits.reach.Release(caller.ID)
	ctx, cancel := s.allow(w, r, s.times.call)
	defer cancel()
	return reply(w, s.cfg.Reach(ctx, caller, netip.AddrPortFrom(caller.Source, greeting.Port)))
}

// CallBack finds out whether the holder of a key, or of one that succeeded it, can
// be reached at an address. It connects, has the key proven and hangs up; nothing is
// sent. It takes at most four seconds.
func (c *Client) CallBack(ctx context.Context, key peer.Fingerprint, at netip.AddrPort) (out Reached) {
	limited, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	out.Address = at.String()
	// As late as can be: the caller compares it with its own clock.
	defer func() { out.Time = time.Now().UTC() }()
	if err := usable(at); err != nil {
		out.Outcome, out.Detail = ReachUnreachable, err.Error()
		return out
	}
	k, failure := c.open(limited, quest{target: Target{Fingerprint: key}}, candidate{addr: at})
	if failure == nil {
		k.close()
		out.Outcome, out.Detail = ReachReached, "the endpoint answers and proves its key"
		return out
	}
	out.Outcome, out.Detail = reachOutcome(limited, failure), failure.Err.Error()
	return out
}

// reachOutcome says what a failed attempt means.
func reachOutcome(ctx context.Context, failure *Error) ReachOutcome {
	switch failure.Reason {
	case ReasonWrongKey, ReasonSelf, ReasonBadAnswer:
		return ReachOtherKey
	case ReasonNotTLS:
		return ReachNotTLS
	}
	var errno syscall.Errno
	switch {
	case errors.Is(failure.Err, syscall.ECONNREFUSED), errors.Is(failure.Err, syscall.ECONNRESET):
		return ReachRefused
	case errors.Is(failure.Err, syscall.ETIMEDOUT), ctx.Err() != nil:
		return ReachTimedOut
	case errors.As(failure.Err, &errno):
		return ReachUnreachable
	}
	return ReachTimedOut
}

// Reach asks a peer whose key is trusted to call us back at the port that greeting
// says, and returns what it found. The error is that of Exchange, wraps ErrNoReach,
// or holds the peer's refusal.
func (c *Client) Reach(ctx context.Context, target Target, greeting Greeting) (Reached, error) {
	body, err := encode(greeting)
	if err != nil {
		return Reached{}, err
	}
	resp, err := c.Exchange(ctx, target, Request{Method: http.MethodPost, Path: PathReach, Body: body})
	if err != nil {
		return Reached{}, err
	}
	switch resp.Status {
	case http.StatusOK:
		return resp.Reached()
	case http.StatusNotFound:
		return Reached{}, ErrNoReach
	}
	return Reached{}, errors.New(resp.Refusal().Error)
}

// Reached reads the body of an answered PathReach. Its sentences are printable and
// of a bounded length.
func (r Response) Reached() (Reached, error) {
	var out Reached
	if len(r.Body) > maxReached {
		return Reached{}, fmt.Errorf("answers %s with %d bytes, at most %d make sense", PathReach, len(r.Body), maxReached)
	}
	if err := json.Unmarshal(r.Body, &out); err != nil {
		return Reached{}, fmt.Errorf("answers %s with something else: %w", PathReach, err)
	}
	switch out.Outcome {
	case ReachReached, ReachRefused, ReachTimedOut, ReachUnreachable, ReachOtherKey, ReachNotTLS:
	default:
		return Reached{}, fmt.Errorf("answers %s with the unknown outcome %q", PathReach, readable(string(out.Outcome)))
	}
	at, err := netip.ParseAddrPort(out.Address)
	if err != nil {
		return Reached{}, fmt.Errorf("answers %s with the unusable address %q", PathReach, readable(out.Address))
	}
	// A zone is the peer's own name for a link, and may be anything.
	out.Address = strings.ToLower(netip.AddrPortFrom(at.Addr().WithZone(""), at.Port()).String())
	out.Detail = readable(out.Detail)
	return out, nil
}
