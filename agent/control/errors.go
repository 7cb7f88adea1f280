package control

import (
	"errors"
	"net/http"
)

// What can be the matter, for errors.Is. Errors of this package wrap one of
// these where it applies.
var (
	// ErrNotRunning: no agent answers on the socket.
	ErrNotRunning = errors.New("the agent is not running")
	// ErrPermission: the socket is there, but this user may not use it.
	ErrPermission = errors.New("permission denied")
	// ErrNotFound: there is no such peer.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous: more than one peer fits.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrInvalid: the request itself is wrong.
	ErrInvalid = errors.New("invalid request")
	// ErrInUse: another agent answers on the socket already.
	ErrInUse = errors.New("another agent is running")
)

// Error is an error with advice: what happened, and a command or an action
// that leads further. It unwraps to its Kind, one of this package's Err
// values, and to its Cause.
type Error struct {
	Message string
	Advice  string // "" when there is none
	Kind    error
	Cause   error
}

// Error returns what happened, in one line.
func (e *Error) Error() string { return e.Message }

// Try returns what to do next, or "".
func (e *Error) Try() string { return e.Advice }

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	var out []error
	for _, err := range []error{e.Kind, e.Cause} {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// errorBody is the JSON of every answer that is not a success.
type errorBody struct {
	Error  string `json:"error"`
	Try    string `json:"try,omitempty"`
	Reason string `json:"reason"`
}

// reasons maps kinds of errors to what stands for them on the wire.
var reasons = []struct {
	kind   error
	reason string
	status int
}{
	{ErrNotFound, "notFound", http.StatusNotFound},
	{ErrAmbiguous, "ambiguous", http.StatusConflict},
	{ErrInvalid, "invalid", http.StatusBadRequest},
}

const reasonInternal = "internal"

func bodyOf(err error) (int, errorBody) {
	body := errorBody{Error: err.Error(), Reason: reasonInternal}
	var advised interface{ Try() string }
	if errors.As(err, &advised) {
		body.Try = advised.Try()
	}
	for _, r := range reasons {
		if errors.Is(err, r.kind) {
			body.Reason = r.reason
			return r.status, body
		}
	}
	return http.StatusInternalServerError, body
}

func (b errorBody) err() error {
	e := &Error{Message: b.Error, Advice: b.Try}
	for _, r := range reasons {
		if b.Reason == r.reason {
			e.Kind = r.kind
		}
	}
	return e
}
