package dnssd

import (
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver"
	"liqo.io/agent/peer/text"
)

const (
	// leastBackoff is the least time before a question is asked again that was not
	// answered.
	leastBackoff = 5 * time.Second
	// early is the part of its time that an answer may be asked for again before it
	// ends: what falls due at about the same time is asked in one look, and looks are
	// spread (RFC 6762 section 5.2 has a jitter for the same reason).
	early = 0.1
)

// question is one question of DNS. The name is canonical, see canonical.
type question struct {
	name  string
	qtype uint16
}

func (q question) String() string { return text.Excerpt(q.name) + " " + dns.Type(q.qtype).String() }

// topic is what is known about a question.
type topic struct {
	// The last conclusive answer; outcome is "" if there was none yet.
	outcome       resolver.Outcome
	facts         facts
	ttl           time.Duration
	at            time.Time
	server        string
	authenticated bool
	// most is the greatest TTL that was seen lately. It is what the records have,
	// while the servers between count theirs down.
	most   time.Duration
	mostAt time.Time

	// What stands in the way since then; nil if nothing does.
	failure *failure

	now    bool          // to be asked again whatever the TTL says
	tried  time.Time     // when it was asked last
	used   uint64        // number of the last look that needed it
	asked  uint64        // number of the last look that asked
	asking chan struct{} // closed when the answer is there; nil when it is not being asked
}

// failure is a question that was not answered.
type failure struct {
	outcome resolver.Outcome
	message string
	server  string // that said so; "" if none did
	at      time.Time
	count   int // in a row
}

// learn takes an answer.
func (t *topic) learn(a resolver.Answer, f facts, at time.Time, d Domain) {
	t.outcome, t.facts, t.ttl, t.at = a.Outcome, f, a.TTL, at
	t.server, t.authenticated = a.Server, a.Authenticated
	t.failure, t.now = nil, false
	if a.TTL >= t.most || at.Sub(t.mostAt) > 2*(t.most+d.MaxInterval) {
		t.most, t.mostAt = a.TTL, at
	}
}

// fail notes that there was no answer. A question that there was no time for is not
// the server's fault and does not count towards the backoff.
func (t *topic) fail(f failure, late bool) {
	f.count = 1
	if t.failure != nil {
		f.count = t.failure.count
		if !late || f.count == 0 {
			f.count++
		}
	}
	t.failure, t.now = &f, false
}

// times returns when the question was dealt with last and how long that is good for.
func (t *topic) times(d Domain) (at time.Time, good time.Duration) {
	if f := t.failure; f != nil {
		return f.at, backoff(f.count, d)
	}
	return t.at, min(max(t.ttl, d.MinInterval), d.MaxInterval)
}

// due reports whether the question is to be asked.
func (t *topic) due(now time.Time, d Domain) bool {
	if t.now || t.outcome == "" && t.failure == nil {
		return true
	}
	at, good := t.times(d)
	return now.Sub(at) >= good-time.Duration(float64(good)*early)
}

// backoff is how long a question rests that was not answered count times in a row.
func backoff(count int, d Domain) time.Duration {
	wait := min(max(d.MinInterval, leastBackoff), d.MaxInterval)
	for ; count > 1 && wait < d.MaxInterval; count-- {
		wait *= 2
	}
	return min(wait, d.MaxInterval)
}

// memory is what is remembered of a domain from look to look.
type memory struct {
	looks     uint64
	topics    map[question]*topic
	instances map[string]Instance // as last reported, by name
	recalled  map[string]bool     // of instances, those of which it is not known which list has them
}

// newMemory returns a memory of instances, and of nothing that was asked about them.
func newMemory(instances []Instance) *memory {
	m := &memory{topics: make(map[question]*topic), instances: make(map[string]Instance), recalled: make(map[string]bool)}
	for _, i := range instances {
		m.instances[i.Name], m.recalled[i.Name] = i, true
	}
	return m
}

// expire has everything asked again. What is known stays, for questions that are not
// answered.
func (m *memory) expire() {
	for _, t := range m.topics {
		t.now = true
		t.failure = nil
	}
}

// retry has everything asked again that was not answered, and says whether there is
// any.
func (m *memory) retry() bool {
	any := false
	for _, t := range m.topics {
		if t.failure != nil {
			t.now, any = true, true
			t.failure.count = 0
		}
	}
	return any
}

// forget drops what the last look did not need.
func (m *memory) forget() {
	for q, t := range m.topics {
		if t.used != m.looks {
			delete(m.topics, q)
		}
	}
}

// next returns when the next look is due. random is in [0, 1).
func (m *memory) next(now time.Time, d Domain, random float64) time.Time {
	wait := d.MaxInterval
	for _, t := range m.topics {
		at, good := t.times(d)
		wait = min(wait, at.Add(good).Sub(now))
	}
	wait -= time.Duration(float64(wait) * early * random)
	return now.Add(max(wait, d.MinInterval))
}
