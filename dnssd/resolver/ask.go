package resolver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver/wire"
)

const (
	// setBack is how long a server that did not know what another one knew comes after it.
	setBack = time.Minute
	// plainFor is how long a server that does not understand EDNS0 is asked without.
	plainFor = 15 * time.Minute
	// maxHabits is how many servers' habits are remembered.
	maxHabits = 64
)

// group is a set of servers of which any may answer.
type group struct {
	targets  []wire.Target
	timeout  time.Duration
	attempts int
	rotate   bool
	tcp      bool
	advice   string // what a person can do when none of them is there
}

// habit is what is remembered of a server.
type habit struct {
	backUntil, plainUntil time.Time
}

// failure is what came of asking one server in vain.
type failure struct {
	target  wire.Target
	outcome Outcome
	err     error
	reading reading
}

// failures are the error of asking a group in vain.
type failures struct {
	question wire.Question
	all      []failure
	advice   string
}

func (f *failures) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "look up %s:", f.question)
	for i, one := range f.all {
		if i > 0 {
			b.WriteByte(';')
		}
		fmt.Fprintf(&b, " %s: %v", one.target, one.err)
	}
	if f.advice != "" {
		fmt.Fprintf(&b, " (%s)", f.advice)
	}
	return b.String()
}

func (f *failures) Unwrap() []error {
	var errs []error
	for _, one := range f.all {
		errs = append(errs, one.err)
	}
	return errs
}

// worth orders the outcomes of several servers: what a server said tells more than silence.
var worth = []Outcome{ServerFailure, Refused, BadAnswer, Timeout, Unreachable}

// outcome is that of the failure that tells most.
func (f *failures) outcome() Outcome {
	for _, o := range worth {
		if slices.ContainsFunc(f.all, func(one failure) bool { return one.outcome == o }) {
			return o
		}
	}
	return Timeout
}

// speaker is the server that said something, the last one that did; the zero target if none did.
func (f *failures) speaker() wire.Target {
	var last wire.Target
	for _, one := range f.all {
		if one.outcome != Timeout && one.outcome != Unreachable {
			last = one.target
		}
	}
	return last
}

// elsewhere returns the reading of a server that does not know and points away, if that is the most
// that any of them says.
func (f *failures) elsewhere() (reading, bool) {
	if f.outcome() != Refused {
		return reading{}, false
	}
	i := slices.IndexFunc(f.all, func(one failure) bool { return one.reading.elsewhere })
	if i < 0 {
		return reading{}, false
	}
	return f.all[i].reading, true
}

// result is an answer that counts, and who gave it.
type result struct {
	reading
	target wire.Target
	ad     bool
}

// askGroup asks the servers one after the other until one knows; those that were silent as often as the
// group says.
func (r *Resolver) askGroup(ctx context.Context, g group, q wire.Question, before []string) (result, *failures) {
	order := r.order(g)
	failed := make([]*failure, len(order))
	for range g.attempts {
		silent := false
		for i, to := range order {
			if failed[i] != nil && failed[i].outcome != Timeout {
				continue
			}
			got, fail := r.attempt(ctx, g, to, q, before)
			if fail == nil {
				r.prefer(to, failed)
				return got, nil
			}
			failed[i] = fail
			silent = silent || fail.outcome == Timeout
			r.log.DebugContext(ctx, "a DNS server gave no usable answer", "question", q.String(), "server", to.String(),
				"outcome", string(fail.outcome), "err", fail.err)
			if ctx.Err() != nil {
				return result{}, &failures{question: q, all: present(failed)}
			}
		}
		if !silent {
			break
		}
	}
	f := &failures{question: q, all: present(failed)}
	f.advice = g.advise(f.outcome())
	return result{}, f
}

func present(failed []*failure) []failure {
	var all []failure
	for _, f := range failed {
		if f != nil {
			all = append(all, *f)
		}
	}
	return all
}

// attempt asks one server, without EDNS0 if it does not understand that.
func (r *Resolver) attempt(ctx context.Context, g group, to wire.Target, q wire.Question, before []string) (result, *failure) {
	edns := !r.plain(to)
	m, err := r.transport.Exchange(ctx, to, q, wire.Options{EDNS: edns, TCP: g.tcp, Timeout: g.timeout})
	if err == nil && edns && refusesEDNS(m) {
		if m, err = r.transport.Exchange(ctx, to, q, wire.Options{EDNS: false, TCP: g.tcp, Timeout: g.timeout}); err == nil && !refusesEDNS(m) {
			r.remember(to, func(h *habit) { h.plainUntil = time.Now().Add(plainFor) })
		}
	}
	if err != nil {
		outcome, err := explain(ctx, err, g.timeout)
		return result{}, &failure{target: to, outcome: outcome, err: err}
	}
	got := read(q, m, before)
	if got.err != nil {
		return result{}, &failure{target: to, outcome: got.outcome, err: got.err, reading: got}
	}
	return result{got, to, m.AD}, nil
}

// refusesEDNS reports whether an answer may be that of a server that does not know EDNS0 or our version
// of it (RFC 6891 section 7).
func refusesEDNS(m wire.Message) bool {
	return m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented || m.Rcode == dns.RcodeBadVers
}

// explain says what an error of the transport means. The ctx is that of the look-up.
func explain(ctx context.Context, err error, timeout time.Duration) (Outcome, error) {
	var certificate *tls.CertificateVerificationError
	var op *net.OpError
	outcome := Unreachable
	second := errors.Is(err, wire.ErrSecond)
	var ne net.Error
	switch {
	case errors.Is(err, wire.ErrClosed), errors.Is(context.Cause(ctx), wire.ErrClosed):
		return Unreachable, wire.ErrClosed
	case ctx.Err() != nil:
		return Timeout, fmt.Errorf("given up: %w", context.Cause(ctx))
	case errors.Is(err, wire.ErrMalformed):
		return BadAnswer, err
	case errors.As(err, &certificate):
		err = fmt.Errorf("the server cannot prove who it is: %w", certificate.Err)
	case errors.Is(err, wire.ErrNoAnswer), errors.As(err, &ne) && ne.Timeout():
		outcome, err = Timeout, fmt.Errorf("no answer within %v: %w", timeout, context.DeadlineExceeded)
	case errors.Is(err, syscall.ECONNREFUSED):
		err = fmt.Errorf("no DNS server listens there: %w", syscall.ECONNREFUSED)
	case errors.Is(err, wire.ErrBroken):
		return outcome, err
	case errors.As(err, &op):
		err = op.Err // the server is named anyway
	default:
		return outcome, err
	}
	if second {
		err = fmt.Errorf("%w: %w", wire.ErrSecond, err)
	}
	return outcome, err
}

// advise says what a person can do about an outcome.
func (g group) advise(o Outcome) string {
	switch o {
	case Timeout, Unreachable:
		return g.advice
	case Refused:
		return "let that server answer this box, or name another one"
	case ServerFailure:
		return "its own log says why: a zone that did not load, for one, or DNSSEC"
	default:
		return ""
	}
}

// order returns the servers in the order in which they are to be asked: as configured, but those last
// that did not know lately what others knew.
func (r *Resolver) order(g group) []wire.Target {
	order := slices.Clone(g.targets)
	if g.rotate && len(order) > 1 {
		n := int(r.turn.Add(1) % uint64(len(order)))
		order = append(order[n:], order[:n]...)
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(order, func(a, b wire.Target) int {
		return rank(r.habits[a].backUntil.After(now)) - rank(r.habits[b].backUntil.After(now))
	})
	return order
}

func rank(back bool) int {
	if back {
		return 1
	}
	return 0
}

// prefer sets those back that failed where another one knew.
func (r *Resolver) prefer(knew wire.Target, failed []*failure) {
	until := time.Now().Add(setBack)
	for _, f := range failed {
		if f != nil && f.target != knew {
			r.remember(f.target, func(h *habit) { h.backUntil = until })
		}
	}
}

// plain reports whether a server is to be asked without EDNS0.
func (r *Resolver) plain(t wire.Target) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.habits[t].plainUntil.After(time.Now())
}

func (r *Resolver) remember(t wire.Target, change func(*habit)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, known := r.habits[t]
	if !known && len(r.habits) == maxHabits {
		clear(r.habits)
	}
	change(&h)
	r.habits[t] = h
}
