package dnssd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver"
	"liqo.io/agent/peer/text"
)

const (
	// longestLook ends a look: what was not asked by then is asked by the next one,
	// first of all.
	longestLook = 2 * time.Minute
	// silentAfter is how many questions in a row go unanswered until the rest of a look
	// is not asked.
	silentAfter = 32
)

// Resolver answers questions. resolver.Resolver is one. A Resolver that has a method
// Close is closed when its domain is removed or gets another server.
type Resolver interface {
	// Lookup answers one question. It returns soon after ctx ended. It is called by
	// several goroutines at once.
	Lookup(ctx context.Context, name string, qtype uint16) resolver.Answer
}

// reply is what is known about a question now.
type reply struct {
	outcome resolver.Outcome
	message string // what stands in the way when the outcome is not conclusive
	// facts are of the last conclusive answer. When the outcome is not conclusive they
	// are what was known before.
	facts  facts
	ttl    time.Duration // what the records have
	server string
}

// asker asks the questions of one look, each once, and only those that are due. Its
// methods may be called from several goroutines.
type asker struct {
	domain   Domain
	resolver Resolver
	gate     *gate
	start    time.Time
	// whole is the look's context; when it ends nothing is remembered any more.
	whole context.Context

	mu      sync.Mutex // guards all below
	memory  *memory
	queries int
	silent  int              // questions in a row that nobody said anything to
	silence resolver.Outcome // that of the last of them
	answers int
	signed  int // answers that were authenticated
}

// ask returns what is known about a question, after asking it if that is due. ctx ends
// with the look.
func (a *asker) ask(ctx context.Context, name string, qtype uint16) reply {
	q := question{name, qtype}
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.memory.topics[q]
	if t == nil {
		t = new(topic)
		a.memory.topics[q] = t
	}
	t.used = a.memory.looks
	switch {
	case t.asking != nil:
		asking := t.asking
		a.mu.Unlock()
		<-asking
		a.mu.Lock()
	case t.asked != a.memory.looks && t.due(a.start, a.domain):
		t.asked = a.memory.looks
		t.asking = make(chan struct{})
		a.mu.Unlock()
		answer, late := a.query(ctx, q)
		var f facts
		if answer.Outcome == resolver.Found {
			f = interpret(qtype, answer)
		}
		a.mu.Lock()
		a.take(t, q, answer, f, late)
		close(t.asking)
		t.asking = nil
	}
	return a.reply(t)
}

// take remembers an answer. Locks held: mu.
func (a *asker) take(t *topic, q question, answer resolver.Answer, f facts, late bool) {
	now := time.Now()
	if !late {
		t.tried = now
	}
	switch {
	case answer.Outcome.Conclusive():
		a.silent = 0
		t.learn(answer, f, now, a.domain)
		return
	case a.whole.Err() != nil:
		return // nobody's fault
	case late:
	case answer.Outcome == resolver.Timeout, answer.Outcome == resolver.Unreachable:
		a.silent++
		a.silence = answer.Outcome
	default:
		a.silent = 0
	}
	why := failure{outcome: answer.Outcome, server: answer.Server, at: now}
	if rank(why.outcome) == 0 {
		why.outcome = resolver.BadAnswer
	}
	if answer.Err != nil {
		why.message = text.Sentence(answer.Err.Error())
	} else {
		why.message = text.Sentence(fmt.Sprintf("look up %s: %s", q, why.outcome))
	}
	t.fail(why, late)
}

// reply tells what a topic says. Locks held: mu.
func (a *asker) reply(t *topic) reply {
	r := reply{outcome: t.outcome, facts: t.facts, ttl: t.most, server: t.server}
	switch {
	case t.failure != nil:
		r.outcome, r.message, r.server = t.failure.outcome, t.failure.message, t.failure.server
	case t.outcome == "": // the look was given up
		r.outcome, r.message = resolver.Timeout, "not asked"
	default:
		a.answers++
		if t.authenticated {
			a.signed++
		}
	}
	return r
}

// query asks, unless the time of the look is over (late) or nobody answers anyway.
func (a *asker) query(ctx context.Context, q question) (answer resolver.Answer, late bool) {
	overdue := resolver.Answer{Outcome: resolver.Timeout, Err: fmt.Errorf("look up %s: not done after %s, which a look may take; the next one begins with it", q, longestLook)}
	if a.gate.enter(ctx, a.domain.Name) != nil {
		return overdue, true
	}
	defer a.gate.leave(a.domain.Name)
	a.mu.Lock()
	if a.silent >= silentAfter {
		outcome := a.silence
		a.mu.Unlock()
		return resolver.Answer{Outcome: outcome, Err: fmt.Errorf("look up %s: not asked, because the last %d questions were not answered", q, silentAfter)}, false
	}
	a.queries++
	a.mu.Unlock()
	answer = a.resolver.Lookup(ctx, fqdn(q.name), q.qtype)
	if !answer.Outcome.Conclusive() && ctx.Err() != nil {
		return overdue, true
	}
	return answer, false
}

// touch keeps what is known about an instance that is not looked up this time.
func (a *asker) touch(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	use := func(name string, qtype uint16) *topic {
		t := a.memory.topics[question{name, qtype}]
		if t != nil {
			t.used = a.memory.looks
		}
		return t
	}
	use(name, dns.TypeTXT)
	if t := use(name, dns.TypeSRV); t != nil {
		for _, s := range t.facts.services {
			use(s.host, dns.TypeA)
			use(s.host, dns.TypeAAAA)
		}
	}
}

// last returns when a question was asked last; zero when never.
func (a *asker) last(name string, qtype uint16) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.memory.topics[question{name, qtype}]
	if t == nil {
		return time.Time{}
	}
	return t.tried
}

// fqdn returns a canonical name with its trailing dot.
func fqdn(name string) string {
	if name == "." {
		return name
	}
	return name + "."
}
