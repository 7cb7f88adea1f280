package browser

import (
	"container/list"
	"net/netip"
	"time"
)

// newcomerGrace is how long an unresolved instance is left its place when there
// is nobody whose share is too large.
const newcomerGrace = 2 * time.Second

// source is one address that instances are announced from. It is the unit of
// fairness: when room is short the source with the most instances gives way,
// and sources take turns in being asked for what is missing.
type source struct {
	addr       netip.Addr
	place      int           // in link.order
	unresolved list.List     // *instance, oldest first
	found      list.List     // *instance, oldest first
	protected  int           // instances that are never evicted
	waiting    list.List     // subject: not found yet, to be asked for
	turn       *list.Element // in link.turns while waiting is not empty
}

func (s *source) slot() *int { return &s.place }

// evictable is the number of instances that could make room.
func (s *source) evictable() int { return s.unresolved.Len() + s.found.Len() }

// gives reports whether a gives way before b does.
func gives(a, b *source) bool {
	if x, y := a.evictable(), b.evictable(); x != y {
		return x > y
	}
	return a.unresolved.Len() > b.unresolved.Len()
}

// oldest returns the instance to evict first: one that did not resolve, if any.
func (s *source) oldest() *instance {
	for _, group := range [2]*list.List{&s.unresolved, &s.found} {
		if e := group.Front(); e != nil {
			return e.Value.(*instance)
		}
	}
	return nil
}

// source returns the source with an address, making it if needed.
func (l *link) source(addr netip.Addr) *source {
	s := l.sources[addr]
	if s == nil {
		s = &source{addr: addr, place: outside}
		l.sources[addr] = s
		l.order.push(s)
	}
	return s
}

// enroll adds a new instance to its source.
func (l *link) enroll(i *instance, s *source, remembered bool) {
	i.src = s
	if remembered {
		s.protected++
		return
	}
	i.group = &s.unresolved
	i.spot = i.group.PushBack(i)
	l.order.fix(s)
}

// promote notes that an instance was found.
func (l *link) promote(i *instance) {
	if i.group == nil {
		return
	}
	i.group.Remove(i.spot)
	i.group = &i.src.found
	i.spot = i.group.PushBack(i)
	l.order.fix(i.src)
}

// protect takes an instance out of the reach of eviction, for good: whether it
// is remembered is only asked when it arrives and when it would have to go.
func (l *link) protect(i *instance) {
	i.group.Remove(i.spot)
	i.group, i.spot = nil, nil
	i.src.protected++
	l.order.fix(i.src)
}

// discharge takes an instance from its source, which is forgotten with its last.
func (l *link) discharge(i *instance) {
	s := i.src
	if i.group != nil {
		i.group.Remove(i.spot)
		i.group, i.spot = nil, nil
	} else {
		s.protected--
	}
	if s.evictable()+s.protected > 0 {
		l.order.fix(s)
		return
	}
	l.order.remove(s)
	delete(l.sources, s.addr)
}

// makeRoom sees to it that one more instance from addr fits, and reports whether
// it does. A source that has, or would have, the largest share pays itself, and
// only with what did not resolve; else the largest pays. A remembered newcomer
// displaces anything that is not remembered.
func (l *link) makeRoom(now time.Time, addr netip.Addr, remembered bool) bool {
	for len(l.all) >= l.b.cfg.MaxInstances {
		top := l.order.top()
		own := l.sources[addr]
		share := 1
		if own != nil {
			share += own.evictable()
		}
		var victim *instance
		switch {
		case top.evictable() == 0:
			return false
		case remembered || top.evictable() > share:
			victim = top.oldest()
		case own != nil && own.unresolved.Len() > 0:
			victim = own.oldest()
		case top.unresolved.Len() > 0 && now.Sub(top.oldest().created) >= newcomerGrace:
			victim = top.oldest()
		default:
			return false
		}
		if l.b.remembered(victim.label) {
			l.protect(victim)
			continue
		}
		l.drop(victim, ReasonEvicted)
	}
	return true
}

// limitUnresolved makes the oldest unresolved instance of a source that has too
// many of them leave, and reports whether it had to.
func (l *link) limitUnresolved(addr netip.Addr) bool {
	limit := max(64, l.b.cfg.MaxInstances/4)
	for {
		s := l.sources[addr]
		if s == nil || s.unresolved.Len() < limit {
			return false
		}
		victim := s.oldest()
		if l.b.remembered(victim.label) {
			l.protect(victim)
			continue
		}
		l.drop(victim, ReasonEvicted)
		return true
	}
}
