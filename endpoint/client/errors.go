package client

import (
	"fmt"
	"net/netip"
	"strings"

	"liqo.io/agent/peer"
)

// Reason names why a peer could not be identified.
type Reason string

// The reasons of an Error.
const (
	// ReasonUnreachable: nobody answered, or not in time. The peer may be
	// there all the same.
	ReasonUnreachable Reason = "unreachable"
	// ReasonNotTLS: something answers, but not with TLS 1.3.
	ReasonNotTLS Reason = "not-tls"
	// ReasonWrongKey: only holders of other keys answer; Error.Got is one.
	ReasonWrongKey Reason = "wrong-key"
	// ReasonWrongID: the right key (or any, if none was expected) says another
	// cluster ID.
	ReasonWrongID Reason = "wrong-id"
	// ReasonBadAnswer: what answers is not a liqo-agent, or a broken one.
	ReasonBadAnswer Reason = "bad-answer"
	// ReasonSelf: it is this cluster itself that answers, and, if another key
	// was expected, at every address: they are ours here, whoever has them too.
	ReasonSelf Reason = "self"
)

// Error is a failed Identify: the most telling failure among all addresses,
// and the others behind it.
type Error struct {
	Reason Reason
	Addr   netip.AddrPort   // where; zero if it did not come to an address
	Got    peer.Fingerprint // the key that answered, if one did
	Err    error            // what happened, never nil
	Others []*Error         // what happened at the other addresses, in the order it did

	// keyProven: the failure came after the expected key was proven.
	keyProven bool
}

// maxTold is how many further failures Error's text spells out.
const maxTold = 3

// Error says what happened, where, and what the other addresses did.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.one())
	for i, o := range e.Others {
		if i == maxTold {
			fmt.Fprintf(&b, "; and %d more", len(e.Others)-i)
			break
		}
		b.WriteString("; ")
		b.WriteString(o.one())
	}
	return b.String()
}

func (e *Error) one() string {
	if !e.Addr.IsValid() {
		return e.Err.Error()
	}
	return e.Addr.String() + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// weight orders failures by how much they tell about the peer that was looked
// for. What its own key did tells most, then what others in its place did.
// That one of its addresses is ours as well tells nothing, unless no key is
// expected: then it is probably we who were looked for.
func (e *Error) weight(pinned bool) int {
	w := 0
	switch e.Reason {
	case ReasonWrongID:
		w = 6
	case ReasonBadAnswer:
		w = 4
	case ReasonWrongKey:
		w = 5
	case ReasonNotTLS:
		w = 3
	case ReasonSelf:
		if !pinned {
			w = 2
		}
	case ReasonUnreachable:
		w = 1
	}
	if e.keyProven {
		w += 10
	}
	return w
}

// mostTelling folds failures, at least one, into one error.
func mostTelling(failures []*Error, pinned bool) *Error {
	best := 0
	for i, f := range failures {
		if f.weight(pinned) > failures[best].weight(pinned) {
			best = i
		}
	}
	e := *failures[best]
	e.Others = make([]*Error, 0, len(failures)-1)
	for i, f := range failures {
		if i != best {
			e.Others = append(e.Others, f)
		}
	}
	return &e
}
