package control

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// Kinds of errors, for errors.Is. Errors of this package wrap one of these if it
// applies.
var (
	// ErrNotRunning: no agent answers on the socket.
	ErrNotRunning = errors.New("the agent is not running")
	// ErrPermission: this user may not use the socket, or not for this request.
	ErrPermission = errors.New("permission denied")
	// ErrNotFound: there is no such peer, invite or search domain.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous: more than one peer matches.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrInvalid: the request itself is wrong.
	ErrInvalid = errors.New("invalid request")
	// ErrInUse: another agent answers on the socket already.
	ErrInUse = errors.New("another agent is running")
	// ErrNotTrusted: a person has to confirm a key first. An *Error of this kind
	// has Shown set.
	ErrNotTrusted = errors.New("the key is not trusted")
	// ErrRefused: the other cluster refuses, or an earlier decision or a setting here
	// forbids it.
	ErrRefused = errors.New("refused")
	// ErrUnavailable: something that is needed does not answer now; a later attempt
	// may work.
	ErrUnavailable = errors.New("not available now")
)

// RunAgent is the advice for ErrNotRunning. If the agent is a service, the command line
// advises to start that instead.
const RunAgent = "sudo liqo-agent run"

// Error is an error with advice: what happened, and a command or an action that may
// help. It unwraps to its Kind, one of this package's Err
// values, and to its Cause.
type Error struct {
	Message string
	Advice  string // "" when there is none
	Kind    error
	Cause   error
	Shown   *Shown // what is to be confirmed, with ErrNotTrusted
}

// NotTrusted returns the error that asks for a person's decision about a
// cluster's key. Repeating the call with Shown's fingerprint is the decision.
func NotTrusted(shown Shown) error {
	who := cmp.Or(shown.Name, shown.ID)
	e := &Error{Kind: ErrNotTrusted, Shown: &shown,
		Message: fmt.Sprintf("the key of %s is not trusted yet; its verification code is %s", who, shown.Code),
		Advice:  "compare the code with what liqo-agent shows there, then repeat the command with --fingerprint " + shown.Fingerprint}
	if shown.Pinned != "" {
		e.Message = fmt.Sprintf("%s shows another key than the trusted one; the verification code of the new key is %s", who, shown.Code)
		e.Advice = "find out why its key changed; if the change is intended, compare the code with what liqo-agent shows there, then: " +
			fmt.Sprintf("liqo-agent peers trust %s --fingerprint %s", shown.ID, shown.Fingerprint)
	}
	return e
}

// Error returns what happened, in one line.
func (e *Error) Error() string { return e.Message }

// Try returns what to do next, or "".
func (e *Error) Try() string { return e.Advice }

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Kind, e.Cause}, func(err error) bool { return err == nil })
}

// ErrorBody is the JSON of every answer that is not a success.
type ErrorBody struct {
	Error  string `json:"error"`
	Try    string `json:"try,omitempty"`
	Reason string `json:"reason"`
	Shown  *Shown `json:"shown,omitempty"`
}

// reasons maps kinds of errors to their status and name on the wire.
var reasons = []struct {
	kind   error
	reason string
	status int
}{
	{ErrNotFound, "notFound", http.StatusNotFound},
	{ErrAmbiguous, "ambiguous", http.StatusConflict},
	{ErrInvalid, "invalid", http.StatusBadRequest},
	{ErrNotTrusted, "notTrusted", http.StatusConflict},
	{ErrRefused, "refused", http.StatusForbidden},
	{ErrPermission, "permission", http.StatusForbidden},
	{ErrUnavailable, "unavailable", http.StatusServiceUnavailable},
}

const reasonInternal = "internal"

// Advice returns the next step for a person after err: the result of the method Try of an
// error in its tree, "" if none has one.
func Advice(err error) string {
	var advised interface{ Try() string }
	if errors.As(err, &advised) {
		return advised.Try()
	}
	return ""
}

// BodyOf returns the answer for an error, with its status.
func BodyOf(err error) (int, ErrorBody) {
	body := ErrorBody{Error: err.Error(), Reason: reasonInternal, Try: Advice(err)}
	var e *Error
	if errors.As(err, &e) {
		body.Shown = e.Shown
	}
	for _, r := range reasons {
		if errors.Is(err, r.kind) {
			body.Reason = r.reason
			return r.status, body
		}
	}
	return http.StatusInternalServerError, body
}

// Err returns the error that the agent answered with.
func (b ErrorBody) Err() error {
	e := &Error{Message: b.Error, Advice: b.Try, Shown: b.Shown}
	for _, r := range reasons {
		if b.Reason == r.reason {
			e.Kind = r.kind
		}
	}
	return e
}
