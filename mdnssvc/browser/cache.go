package browser

import "time"

const (
	// maxTTL caps how long a record is kept without hearing of it again. RFC 6762
	// section 10 recommends 75 minutes at most for any record; what a sender sets
	// beyond that would only keep a vanished neighbour around for longer, and
	// saves nothing but one question every hour. Known answers still carry what
	// is left of the sender's own TTL, which is what it compares them with (7.1).
	maxTTL = 75 * time.Minute
	// goodbyeTTL is how long a record outlives its goodbye (10.1) or a flush by a
	// newer record of its set (10.2).
	goodbyeTTL = time.Second
	// askGap is the least time between two questions for one record.
	askGap = time.Second
	// maxRefresh is how often a record is asked for in one life before it ends.
	maxRefresh = 16
)

// ending says why a record is about to end; the zero value means that it is not.
type ending uint8

const (
	goodbye ending = iota + 1 // its owner said so
	flushed                   // a newer set of records replaces it
)

// record is what the cache knows about the life of one record; the data are
// beside it. The zero value is no record.
type record struct {
	ttl      uint32 // as its sender set it, seconds
	tries    uint8  // questions asked to refresh it in this life
	jitter   uint8  // 0-255: share of the 2 % by which refreshes are late (5.2)
	ending   ending
	spared   bool      // since it is about to end
	received time.Time // last time it was heard of
	expires  time.Time
	asked    time.Time // last question to refresh it
}

// set starts a new life.
func (r *record) set(now time.Time, ttl uint32, jitter uint8) {
	*r = record{ttl: ttl, jitter: jitter, received: now, expires: now.Add(min(time.Duration(ttl)*time.Second, maxTTL))}
}

func (r *record) live() bool { return !r.expires.IsZero() }

func (r *record) clear() { *r = record{} }

// end shortens the life of a live record to one second.
func (r *record) end(now time.Time, why ending) {
	r.ending = why
	if at := now.Add(goodbyeTTL); at.Before(r.expires) {
		r.expires = at
	}
}

// resume takes a goodbye back that turned out not to be its owner's.
func (r *record) resume(now time.Time) {
	if r.ending != goodbye {
		return
	}
	if at := r.received.Add(min(time.Duration(r.ttl)*time.Second, maxTTL)); at.After(now) {
		r.ending, r.expires, r.spared = 0, at, false
	}
}

// spare has a record that ended while nobody was called live on for as long as an answer may take, and reports whether it does. One
// that was about to end anyway has its last second again, once. late is how late the timer was.
func (r *record) spare(now time.Time, late time.Duration) bool {
	if !r.expired(now) || r.spared {
		return false
	}
	// What else was due in the same moment may have set the timer anew.
	late = max(late, now.Sub(r.expires))
	switch {
	case r.ending != 0 && late > tardyAfter:
		r.expires, r.spared = now.Add(goodbyeTTL), true
	case late > lateAfter:
		r.expires = now.Add(checkTime + goodbyeTTL)
	default:
		return false
	}
	return true
}

func (r *record) expired(now time.Time) bool { return due(r.expires, now) }

func (r *record) life() time.Duration { return r.expires.Sub(r.received) }

// retryGap is the least time between a refresh question and the next one when
// no answer came.
func (r *record) retryGap() time.Duration { return max(askGap, r.life()/100) }

// refreshAt returns when to ask for the record next, zero for never: at 80, 85,
// 90 and 95 % of its life (RFC 6762 section 5.2), the first three up to 2 % later.
// When no answer comes the question is repeated after each of these, at gaps that
// double, and after the last one until the end: a question is cheap compared with
// reporting a living neighbour as lost because packets were, and a vanished one
// costs this only once.
func (r *record) refreshAt() time.Time {
	if !r.live() || r.ending != 0 || r.tries >= maxRefresh {
		return time.Time{}
	}
	life, tries := r.life(), time.Duration(r.tries)
	var after time.Duration
	if stage := tries / 3; stage < 3 {
		after = life*(80+5*stage)/100 + life*time.Duration(r.jitter)/(50*255)
		after += (1<<(tries%3) - 1) * r.retryGap()
	} else {
		after = life*95/100 + (tries-9)*r.retryGap()
	}
	at := r.received.Add(after)
	if soonest := r.asked.Add(askGap); at.Before(soonest) {
		at = soonest
	}
	if !at.Before(r.expires) {
		return time.Time{}
	}
	return at
}

// refreshDue reports whether the record may be asked for now. Every refresh has
// 2 % of the record's life as its window, so one that is up that soon can share
// a packet with one that is up now.
func (r *record) refreshDue(now time.Time) bool {
	return due(r.refreshAt(), now.Add(r.life()/50)) && now.Sub(r.asked) >= askGap
}

// refreshed notes that the record was asked for.
func (r *record) refreshed(now time.Time) {
	r.tries++
	r.asked = now
}

// known returns the TTL to give the record in the known answers of a query; ok
// is false when at most half of it is left (RFC 6762 section 7.1), or half of
// what is believed of it: nobody answers what is known, and then it would end.
func (r *record) known(now time.Time) (left uint32, ok bool) {
	if !r.live() || r.ending != 0 {
		return 0, false
	}
	age := now.Sub(r.received)
	if age >= min(time.Duration(r.ttl)*time.Second, r.life())/2 {
		return 0, false
	}
	return r.ttl - uint32(age/time.Second), true
}

// reason returns why a record that expires is lost.
func (r *record) reason() string {
	if r.ending == goodbye {
		return ReasonGoodbye
	}
	return ReasonExpired
}

// retry is the backoff for something missing: at once, then after 1, 2, 4, ...
// seconds, and then no more.
type retry struct {
	tries uint8
	at    time.Time // next try
}

const maxTries = 6 // the last one 31 s after the first

func (r *retry) start(now time.Time) { *r = retry{at: now} }

func (r *retry) next() time.Time {
	if r.tries >= maxTries {
		return time.Time{}
	}
	return r.at
}

func (r *retry) tried(now time.Time) {
	r.at = now.Add(time.Second << r.tries)
	r.tries++
}

// giveUp ends the tries. gaveUp reports that the last one had its time.
func (r *retry) giveUp() { r.tries, r.at = maxTries, time.Time{} }

func (r *retry) gaveUp(now time.Time) bool { return r.tries >= maxTries && !now.Before(r.at) }

// budget is a token bucket that bounds how many names are asked for per second.
type budget struct {
	rate, burst, tokens float64
	at                  time.Time
}

func newBudget(rate, burst float64) budget { return budget{rate: rate, burst: burst, tokens: burst} }

func (t *budget) take(now time.Time) bool {
	if !t.at.IsZero() && now.After(t.at) {
		t.tokens = min(t.burst, t.tokens+t.rate*now.Sub(t.at).Seconds())
	}
	t.at = now
	if t.tokens < 1 {
		return false
	}
	t.tokens--
	return true
}
