package host

import (
	"strings"
	"time"
)

// class are the objects of a consumer that have a limit together.
type class struct {
	most      int
	plainly   string // what people call them
	resources []string
	mostRules int64
	rules     string // what people call them
}

var classes = []class{
	{maxObjects, "ConfigMaps and Secrets", []string{resourceConfigMaps, resourceSecrets}, 0, ""},
	{maxServices, "Services", []string{resourceServices}, maxServicePorts, "ports"},
	{maxSlices, "EndpointSlices", []string{resourceSlices}, maxEndpointPorts, "ports of endpoints"},
}

// weight is what an object costs.
type weight struct {
	bytes int64
	rules int64 // that kube-proxy has for it, more or less
}

// most returns the most of both in each respect.
func (w weight) most(other weight) weight {
	return weight{max(w.bytes, other.bytes), max(w.rules, other.rules)}
}

// has reports whether an object belongs to the class, by its key.
func (c class) has(key string) bool {
	resource, _, _ := strings.Cut(key, "/")
	for _, r := range c.resources {
		if r == resource {
			return true
		}
	}
	return false
}

// ledger counts objects by their keys.
type ledger map[string]*object

// object is the name of an object.
type object struct {
	there       bool
	is, pending weight    // as it is, and as it may be soon
	until       time.Time // of pending
}

// reserveObject makes room for an object, or says why there is none.
func (a *account) reserveObject(key string, wants weight) *Refused {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	mine := a.objects[key]
	fresh := mine == nil
	if fresh {
		mine = &object{}
	}
	before := mine.is.most(mine.pending)
	more := before.most(wants)
	more.bytes -= before.bytes
	more.rules -= before.rules
	var bytes int64
	for _, o := range a.objects {
		bytes += o.is.most(o.pending).bytes
	}
	for _, c := range classes {
		if !c.has(key) {
			continue
		}
		has, rules := a.count(c)
		if fresh && has >= c.most {
			return refuse(ReasonTooManyObjects, "this consumer has %d %s here, and the limit is %d; delete some", has, c.plainly, c.most).after(retryUsedUp)
		}
		if more.rules > 0 && rules+more.rules > c.mostRules {
			return refuse(ReasonTooManyObjects, "the %s of this consumer have %d %s here, and %d more exceed the limit of %d; delete some", c.plainly, rules, c.rules, more.rules, c.mostRules).after(retryUsedUp)
		}
	}
	if more.bytes > 0 && bytes+more.bytes > maxObjectBytes {
		return refuse(ReasonTooManyObjects, "the ConfigMaps, Secrets, Services and EndpointSlices of this consumer have %d bytes here, and %d more exceed the limit of %d", bytes, more.bytes, int64(maxObjectBytes)).after(retryUsedUp)
	}
	mine.pending, mine.until = mine.pending.most(wants), a.now().Add(reservation)
	a.objects[key] = mine
	return nil
}

// count returns how many objects of a class there are, and their rules. The caller holds the lock.
func (a *account) count(c class) (n int, rules int64) {
	for key, o := range a.objects {
		if c.has(key) {
			n++
			rules += o.is.most(o.pending).rules
		}
	}
	return n, rules
}

// has reports whether there is an object, or was let through a moment ago.
func (a *account) has(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	return a.objects[key] != nil
}

// putObject counts an object as it is.
func (a *account) putObject(key string, is weight) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects.put(key, is)
}

// put counts an object as it is.
func (l ledger) put(key string, is weight) {
	o := l[key]
	if o == nil {
		o = &object{}
		l[key] = o
	}
	o.there, o.is = true, is
	if o.pending == is {
		o.pending = weight{}
	}
}

// drop counts an object no more.
func (l ledger) drop(key string) {
	o := l[key]
	if o == nil {
		return
	}
	o.there, o.is = false, weight{}
	if o.pending == (weight{}) {
		delete(l, key)
	}
}

// replace counts what is there anew. What is pending stays.
func (l ledger) replace(all map[string]weight) {
	for key := range l {
		l.drop(key)
	}
	for key, is := range all {
		l.put(key, is)
	}
}

// sweep drops what was pending for too long.
func (l ledger) sweep(now time.Time) {
	for key, o := range l {
		if !now.Before(o.until) {
			o.pending = weight{}
			if !o.there {
				delete(l, key)
			}
		}
	}
}

// dropObject counts an object no more.
func (a *account) dropObject(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects.drop(key)
}
