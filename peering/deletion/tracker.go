package deletion

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/peering/plan"
)

// Tracker tells who deleted an object that has the same name whenever it exists. Its
// exported fields are for reading.
type Tracker struct {
	UID       types.UID    // of the one seen last
	Seen      time.Time    // when it was first seen
	By        plan.Deleter // who deletes or deleted it
	At        time.Time    // when that was noted
	confirmed bool         // the API server said that it carries that deletion out
	absent    bool         // it is gone
}

// Pending is a deletion that was begun and not resolved.
type Pending struct {
	by     plan.Deleter
	at     time.Time
	before Tracker // without it
}

// Outcome is what came of a deletion, as far as is known.
type Outcome int

// The values of an Outcome.
const (
	Unknown Outcome = iota // there was no answer, or none that tells
	Taken                  // the API server carries it out
	Refused                // nothing was deleted, or nothing was there
)

// OutcomeOf returns what the status of an API server's answer says, 0 for none.
func OutcomeOf(status int) Outcome {
	switch {
	case status >= 200 && status < 300:
		return Taken
	case status >= 400 && status < 500 && status != http.StatusRequestTimeout:
		return Refused
	}
	return Unknown
}

// unsureNote is how long a deletion that nobody answered is taken to be about to
// happen: by then the API server has given it up.
const unsureNote = time.Minute

// unseenNote is how long a note about an object that was not seen yet is taken to
// be about the next one that is: the time by which the watch may lag behind.
const unseenNote = 10 * time.Second

// Observed notes that there is an object with that UID.
func (t *Tracker) Observed(uid types.UID, now time.Time) {
	if t.UID == uid {
		return
	}
	next := Tracker{UID: uid, Seen: now}
	if t.UID == "" && t.By != plan.DeletedUnseen && now.Sub(t.At) < unseenNote {
		next.By, next.At, next.confirmed = t.By, t.At, t.confirmed
	}
	*t = next
}

// Begin notes who is about to delete the object. Resolve takes what came of it.
func (t *Tracker) Begin(by plan.Deleter, now time.Time) Pending {
	n := Pending{by: by, at: now, before: *t}
	t.By, t.At, t.confirmed = by, now, false
	return n
}

// Resolve takes in what came of a deletion. Who did not delete anything is not the one
// when the object goes later.
func (t *Tracker) Resolve(n Pending, came Outcome) {
	if n.before.UID != "" && n.before.UID != t.UID {
		return // there is another object by now
	}
	noted := t.By == n.by && t.At.Equal(n.at)
	switch {
	case came == Taken:
		t.By, t.At, t.confirmed = n.by, n.at, true
	case came == Refused && noted:
		t.By, t.At, t.confirmed = n.before.By, n.before.At, n.before.confirmed
		if t.absent && t.By == plan.DeletedUnseen {
			t.By = plan.DeletedByPerson // who was quicker
		}
	}
}

// Deleted notes that the object is not there any more.
func (t *Tracker) Deleted(uid types.UID, restored bool, now time.Time) {
	if t.UID != uid {
		return
	}
	t.absent = true
	switch {
	case t.By == plan.DeletedUnseen && restored:
		*t = Tracker{}
	case t.By == plan.DeletedUnseen, !t.confirmed && now.Sub(t.At) > unsureNote:
		t.By = plan.DeletedByPerson
	}
}

// Resync compares the object with the one of the first list of a new connection, "" for
// none. However long there was none, a deletion that nobody answered is the last that
// is known of it.
func (t *Tracker) Resync(uid types.UID, restored bool) {
	switch t.UID {
	case "":
	case uid:
		if !t.confirmed { // it was not carried out
			t.By, t.At = plan.DeletedUnseen, time.Time{}
		}
	default:
		t.Deleted(t.UID, restored, t.At)
	}
}
