package host

import "time"

// object is the name of a ConfigMap or Secret.
type object struct {
	there         bool
	size, pending int64     // as it is, and as it may be soon
	until         time.Time // of pending
}

// reserveObject makes room for a ConfigMap or Secret of a size, or says why there
// is none.
func (a *account) reserveObject(key string, size int64) *Refused {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	mine := a.objects[key]
	if mine == nil {
		if len(a.objects) >= maxObjects {
			return refuse(ReasonTooManyObjects, "this consumer has %d ConfigMaps and Secrets here, and the limit is %d; delete some", len(a.objects), maxObjects).after(retryUsedUp)
		}
		mine = &object{}
	}
	var bytes int64
	for _, o := range a.objects {
		bytes += max(o.size, o.pending)
	}
	if more := max(mine.size, mine.pending, size) - max(mine.size, mine.pending); more > 0 && bytes+more > maxObjectBytes {
		return refuse(ReasonTooManyObjects, "the ConfigMaps and Secrets of this consumer have %d bytes here, and %d more exceed the limit of %d", bytes, more, int64(maxObjectBytes)).after(retryUsedUp)
	}
	mine.pending, mine.until = max(mine.pending, size), a.now().Add(reservation)
	a.objects[key] = mine
	return nil
}

// putObject counts a ConfigMap or Secret as it is.
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

// dropObject counts a ConfigMap or Secret no more.
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
