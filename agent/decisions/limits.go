package decisions

import (
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
)

const (
	// maxBadTokens wrong tokens of an address or a key are answered at once, and then
	// one per badTokenPause. This does not slow down others: there are far too many
	// tokens to guess one, even with many addresses and keys.
	maxBadTokens  = 10
	badTokenPause = 6 * time.Second
	// maxGuessers bounds the addresses and keys that are counted.
	maxGuessers = 1024
)

// guesses counts wrong tokens. It is safe for concurrent use.
type guesses struct {
	warn      *rate.Limiter // of our warnings
	addresses *throttle.Buckets[netip.Prefix]
	keys      *throttle.Buckets[peer.Fingerprint]
}

func newGuesses() guesses {
	every := rate.Every(badTokenPause)
	return guesses{rate.NewLimiter(rate.Every(time.Minute), 1), throttle.New[netip.Prefix](every, maxBadTokens, maxGuessers), throttle.New[peer.Fingerprint](every, maxBadTokens, maxGuessers)}
}

// tooMany reports whether a caller's wrong tokens are not answered now.
func (g *guesses) tooMany(c endpoint.Caller, now time.Time) bool {
	return g.addresses.Wait(throttle.Source(c.Source), now) > 0 || g.keys.Wait(c.Shown.Fingerprint, now) > 0
}

// wrong counts a wrong token.
func (g *guesses) wrong(c endpoint.Caller, now time.Time) {
	g.addresses.Take(throttle.Source(c.Source), now)
	g.keys.Take(c.Shown.Fingerprint, now)
}

const (
	// noteStrangers bounds how often what strangers do is written down: the disk
	// and the history are for those we know.
	noteStrangers      = 2 * time.Minute
	noteStrangersBurst = 32
	// noteAgain is how long the same refused key of one peer is not written down
	// again.
	noteAgain = time.Hour
	// maxUnvouched bounds the keys that are trusted because the configuration is
	// open or the system's authorities vouch for a name.
	maxUnvouched = 4096
)

// noise decides which doings of strangers get into the history. It is guarded
// by Store.mu.
type noise struct{ limit *rate.Limiter }

func newNoise() noise {
	return noise{rate.NewLimiter(rate.Every(noteStrangers), noteStrangersBurst)}
}

func (n *noise) worthNoting(now time.Time) bool { return n.limit.AllowN(now, 1) }

// unvouched counts the pins that strangers can bring about.
func (s *Store) unvouched() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 0
	for _, r := range s.records {
		if r.Pin.Method == peer.TrustOpen || r.Pin.Method == peer.TrustRoots {
			n++
		}
	}
	return n
}
