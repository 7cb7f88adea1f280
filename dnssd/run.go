package dnssd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"liqo.io/agent/dnssd/resolver"
)

// watch is a domain that Run keeps an eye on.
type watch struct {
	domain   Domain
	resolver Resolver           // nil: to be made
	memory   *memory            // the running look's while there is one
	cancel   context.CancelFunc // of the running look; nil when there is none
	next     time.Time

	// What is to happen before or at the next look.
	renew  bool // another resolver
	expire bool // ask everything
	again  bool // at once, when the running look has ended
	retry  bool // the same, if anything was not answered

	cut bool // the running look is void
}

// result is what a look gave.
type result struct {
	watch  *watch
	report Report // the zero Report when the look was cut short
}

// loop is what Run owns.
type loop struct {
	*Poller
	watches map[string]*watch
	leaving map[*watch]bool // removed, and a look is still running
	results chan result
	looks   sync.WaitGroup
	hurried time.Time // last reaction to Hurry
	hurry   bool      // another one is due
}

// Run looks at the domains until ctx ends, and returns nil then, after everything that
// it started has ended. It must not be called twice at once.
func (p *Poller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &loop{Poller: p, watches: make(map[string]*watch), leaving: make(map[*watch]bool), results: make(chan result)}
	defer func() {
		cancel()
		l.looks.Wait()
		for _, w := range l.watches {
			w.close()
		}
		for w := range l.leaving {
			w.close()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l.heed()
		now := time.Now()
		timer.Reset(l.step(ctx, now).Sub(now))
		select {
		case <-ctx.Done():
			return nil
		case <-p.ready:
		case <-timer.C:
		case r := <-l.results:
			l.heed() // what was removed meanwhile has no report
			l.ended(r)
		}
	}
}

// heed takes up what was asked for.
func (l *loop) heed() {
	l.mu.Lock()
	asked := l.requests
	l.requests = noRequests()
	domains := make([]Domain, 0, len(l.domains))
	for _, d := range l.domains {
		domains = append(domains, d)
	}
	kept := make(map[string]bool, len(l.domains))
	for name := range l.domains {
		kept[name] = !asked.removed[name]
	}
	l.mu.Unlock()

	for name, w := range l.watches {
		if !kept[name] {
			delete(l.watches, name)
			l.remove(w)
		}
	}
	for _, d := range domains {
		w := l.watches[d.Name]
		if w == nil {
			w = &watch{domain: d, memory: newMemory(l.cfg.Recall(d.Name))}
			l.watches[d.Name] = w
			continue
		}
		w.change(d)
	}
	for name := range asked.ask {
		if w := l.watches[name]; w != nil {
			w.expire, w.again = true, true
		}
	}
	l.hurry = l.hurry || asked.hurry
}

// change gives a watch another domain of the same name.
func (w *watch) change(d Domain) {
	if w.domain == d {
		return
	}
	if w.domain.Server != d.Server {
		w.renew, w.expire = true, true
	}
	w.domain, w.again = d, true
	if w.cancel != nil {
		w.cancel()
		w.cut = true
	}
}

// remove ends a watch, at the latest when its look has ended.
func (l *loop) remove(w *watch) {
	if w.cancel != nil {
		w.cancel()
		l.leaving[w] = true
		return
	}
	w.close()
}

// close ends what the watch's resolver keeps open.
func (w *watch) close() {
	if c, ok := w.resolver.(interface{ Close() }); ok {
		c.Close()
	}
	w.resolver = nil
}

// step starts the looks that are due and returns when the next one is.
func (l *loop) step(ctx context.Context, now time.Time) time.Time {
	if l.hurry && now.Sub(l.hurried) >= calm {
		l.hurry, l.hurried = false, now
		for _, w := range l.watches {
			if w.cancel != nil {
				w.retry = true
			} else if w.memory.retry() {
				w.again = true
			}
		}
	}
	next := now.Add(defaultMaxInterval)
	if l.hurry {
		next = l.hurried.Add(calm)
	}
	for _, w := range l.watches {
		switch {
		case w.cancel != nil:
		case w.again || !now.Before(w.next):
			l.start(ctx, w, now)
		case w.next.Before(next):
			next = w.next
		}
	}
	return next
}

// start looks at a domain.
func (l *loop) start(ctx context.Context, w *watch, now time.Time) {
	if w.renew {
		w.close()
	}
	if w.expire {
		w.memory.expire()
	}
	w.renew, w.expire, w.again, w.retry, w.cut = false, false, false, false, false
	who := l.resolverOf(w)
	whole, cancel := context.WithCancel(ctx)
	w.cancel = cancel
	look := look{
		asker:   asker{domain: w.domain, resolver: counting{who, &l.asked}, gate: l.gate, start: now, whole: whole, memory: w.memory},
		service: l.cfg.Service, limit: l.cfg.MaxInstances, seed: l.seed,
	}
	l.looks.Go(func() {
		report := look.run(whole)
		select {
		case l.results <- result{watch: w, report: report}:
		case <-ctx.Done():
		}
	})
}

// resolverOf returns who is asked about a domain.
func (l *loop) resolverOf(w *watch) Resolver {
	if w.resolver != nil {
		return w.resolver
	}
	r, err := l.newResolver(w.domain)
	if err != nil {
		return broken{fmt.Errorf("nobody to ask: %w", err)}
	}
	w.resolver = r
	return r
}

func (l *loop) newResolver(d Domain) (Resolver, error) {
	if l.cfg.Resolver != nil {
		return l.cfg.Resolver(d.Server)
	}
	r, err := resolver.New(resolver.Config{Server: d.Server, Domain: d.Name, Logger: l.cfg.Logger})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// ended takes what a look gave.
func (l *loop) ended(r result) {
	w := r.watch
	w.cancel()
	w.cancel = nil
	switch {
	case l.leaving[w]:
		delete(l.leaving, w)
		w.close()
		return
	case w.cut || r.report.Domain == "":
		return // its domain has changed, and is looked at again
	case w.retry && w.memory.retry():
		w.again = true
	}
	w.retry = false
	r.report.Next = w.memory.next(r.report.At, w.domain, l.random())
	w.next = r.report.Next
	l.cfg.Logger.Debug("queried a search domain", "domain", r.report.Domain, "outcome", r.report.Outcome, "instances", len(r.report.Instances),
		"left_out", len(r.report.Skipped), "questions", r.report.Queries, "server", r.report.Server, "next", r.report.Next)
	if l.remember(r.report.clone()) {
		l.cfg.Report(r.report)
	}
}
