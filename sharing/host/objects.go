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
}

var classes = []class{
	{maxObjects, "ConfigMaps and Secrets", []string{resourceConfigMaps, resourceSecrets}},
	{maxServices, "Services", []string{resourceServices}},
	{maxSlices, "EndpointSlices", []string{resourceSlices}},
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

// object is the name of an object.
type object struct {
	there         bool
	size, pending int64     // as it is, and as it may be soon
	until         time.Time // of pending
}

// reserveObject makes room for an object of a size, or says why there is none.
func (a *account) reserveObject(key string, size int64) *Refused {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	mine := a.objects[key]
	if mine == nil {
		for _, c := range classes {
			if has := a.count(c); c.has(key) && has >= c.most {
				return refuse(ReasonTooManyObjects, "this consumer has %d %s here, and the limit is %d; delete some", has, c.plainly, c.most).after(retryUsedUp)
			}
		}
		mine = &object{}
	}
	var bytes int64
	for _, o := range a.objects {
		bytes += max(o.size, o.pending)
	}
	if more := max(mine.size, mine.pending, size) - max(mine.size, mine.pending); more > 0 && bytes+more > maxObjectBytes {
		return refuse(ReasonTooManyObjects, "the ConfigMaps, Secrets, Services and EndpointSlices of this consumer have %d bytes here, and %d more exceed the limit of %d", bytes, more, int64(maxObjectBytes)).after(retryUsedUp)
	}
	mine.pending, mine.until = max(mine.pending, size), a.now().Add(reservation)
	a.objects[key] = mine
	return nil
}

// count returns how many objects of a class there are. The caller holds the lock.
func (a *account) count(c class) (n int) {
	for key := range a.objects {
		if c.has(key) {
			n++
		}
	}
	return n
}

// has reports whether there is an object, or was let through a moment ago.
func (a *account) has(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	return a.objects[key] != nil
}

// putObject counts an object as it is.
func (a *account) putObject(key string, size int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.putObjectLocked(key, size)
}

func (a *account) putObjectLocked(key string, size int64) {
	o := a.objects[key]
	if o == nil {
		o = &object{}
		a.objects[key] = o
	}
	o.there, o.size = true, size
	if o.pending == size {
		o.pending = 0
	}
}

// dropObject counts an object no more.
func (a *account) dropObject(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.objects[key]
	if o == nil {
		return
	}
	o.there, o.size = false, 0
	if o.pending == 0 {
		delete(a.objects, key)
	}
}
