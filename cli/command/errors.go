package command

import (
	"context"
	"errors"
	"io"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/render"
)

// The exit codes. They are part of the contract in docs/cli.md.
const (
	ExitOK         = 0
	ExitError      = 1
	ExitUsage      = 2
	ExitNotRunning = 3
	ExitNotFound   = 4 // no such peer or search domain, or more than one
	ExitNotTrusted = 5 // somebody has to confirm a key first
	ExitRefused    = 6 // the other cluster, or an earlier decision, says no
	ExitTimeout    = 7 // it goes on, but nobody waits for it any longer
	ExitWarnings   = 8 // doctor found nothing worse than warnings
	// ExitInterrupted is for SIGINT while waiting, as shells do it.
	ExitInterrupted = 130
)

// Error is the failure of a command as a person sees it.
type Error struct {
	Message string
	Advice  string // what to try, "" when there is none
	Code    int    // exit code; 0 = that of Cause
	Cause   error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Try returns what to do about it.
func (e *Error) Try() string { return e.Advice }

// UsageError is a command line that cannot be run as it is.
func UsageError(message, try string) *Error {
	return &Error{Message: message, Advice: try, Code: ExitUsage}
}

// kinds are the exit codes of errors of the agent, and of Ctrl-C.
var kinds = []struct {
	kind error
	code int
}{
	{control.ErrInvalid, ExitUsage},
	{control.ErrNotRunning, ExitNotRunning},
	{control.ErrNotFound, ExitNotFound},
	{control.ErrAmbiguous, ExitNotFound},
	{control.ErrNotTrusted, ExitNotTrusted},
	{control.ErrRefused, ExitRefused},
	{context.Canceled, ExitInterrupted},
}

// Report writes an error, and what to do about it where that is known, and
// returns the exit code for it.
func Report(w io.Writer, err error) int {
	if err == nil {
		return ExitOK
	}
	render.Error(w, Name, err, control.Advice(err))
	var e *Error
	if errors.As(err, &e) && e.Code != 0 {
		return e.Code
	}
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			return k.code
		}
	}
	return ExitError
}
