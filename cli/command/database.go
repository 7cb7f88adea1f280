package command

import (
	"errors"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/state"
)

// DatabaseName is the file in the state directory.
const DatabaseName = "agent.db"

// Unreadable says that neither the agent nor its database can be asked.
func Unreadable(notRunning, dbErr error) error {
	if errors.Is(dbErr, state.ErrNoDatabase) {
		return notRunning
	}
	out := &control.Error{Kind: control.ErrNotRunning, Cause: dbErr, Message: "the agent is not running, and its database cannot be read: " + dbErr.Error()}
	if errors.Is(dbErr, state.ErrNewerSchema) {
		return out // it says what to do; this program's agent could not start either
	}
	out.Advice = control.Advice(notRunning)
	return out
}
