package ledger

import (
	"time"

	"golang.org/x/time/rate"

	"liqo.io/agent/peer"
)

const (
	// maxBadTokens wrong tokens within guessWindow, from anywhere, and invites
	// rest for as long.
	maxBadTokens = 10
	guessWindow  = time.Minute
)

// guesses counts wrong tokens. It is guarded by Ledger.mu.
type guesses struct {
	times     [maxBadTokens]time.Time // of the last wrong ones, a ring
	next      int
	restUntil time.Time
}

// resting reports whether no token is looked at now.
func (g *guesses) resting(now time.Time) bool { return now.Before(g.restUntil) }

// wrong counts a wrong token.
func (g *guesses) wrong(now time.Time) {
	g.times[g.next] = now
	g.next = (g.next + 1) % maxBadTokens
	if oldest := g.times[g.next]; !oldest.IsZero() && now.Sub(oldest) < guessWindow {
		g.restUntil = now.Add(guessWindow)
	}
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
// by Ledger.mu.
type noise struct{ limit *rate.Limiter }

func newNoise() noise {
	return noise{rate.NewLimiter(rate.Every(noteStrangers), noteStrangersBurst)}
}

func (n *noise) worthNoting(now time.Time) bool { return n.limit.AllowN(now, 1) }

// unvouched counts the pins that strangers can bring about.
func (l *Ledger) unvouched() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	n := 0
	for _, r := range l.records {
		if r.Pin.Method == peer.TrustOpen || r.Pin.Method == peer.TrustRoots {
			n++
		}
	}
	return n
}
