package wire

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
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

// ParseReached reads the body of an answered PathReach. Its sentences are printable
// and of a bounded length.
func ParseReached(body []byte) (Reached, error) {
	var out Reached
	if err := decodeAnswer(PathReach, body, maxReached, &out); err != nil {
		return Reached{}, err
	}
	switch out.Outcome {
	case ReachReached, ReachRefused, ReachTimedOut, ReachUnreachable, ReachOtherKey, ReachNotTLS:
	default:
		return Reached{}, fmt.Errorf("answers %s with the unknown outcome %q", PathReach, Readable(string(out.Outcome)))
	}
	at, err := netip.ParseAddrPort(out.Address)
	if err != nil {
		return Reached{}, fmt.Errorf("answers %s with the unusable address %q", PathReach, Readable(out.Address))
	}
	// A zone is the peer's own name for a link, and may be anything.
	out.Address = strings.ToLower(netip.AddrPortFrom(at.Addr().WithZone(""), at.Port()).String())
	out.Detail = Readable(out.Detail)
	return out, nil
}
