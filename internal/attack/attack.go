// Package attack is how tests report what an attacker tried, so that make attack can show it as a table.
package attack

import (
	"encoding/json"
	"testing"
)

// Key is the name of the test attribute that carries an Attempt with what came of it, as JSON.
const Key = "attack"

// Attempt is one thing that somebody tries who may not.
type Attempt struct {
	What string `json:"what"` // what is tried: "read the Secret regcred in the guest namespace"
	As   string `json:"as"`   // by whom: "stranger on the LAN", "trusted peer", "guest", "provider", "thief of the agent's token"
	Want string `json:"want"` // what it gets, in a few words: "403 Forbidden", "not pinned"
}

// Seen is an Attempt with what came of it.
type Seen struct {
	Attempt
	Got string `json:"got"`
}

// Saw reports what came of an attempt. The test has failed if that is not what was wanted.
func (a Attempt) Saw(t testing.TB, got string) {
	t.Helper()
	text, err := json.Marshal(Seen{a, got})
	if err != nil {
		t.Fatal(err)
	}
	t.Attr(Key, string(text))
	if got != a.Want {
		t.Errorf("%s: %s: got %q, want %q", a.As, a.What, got, a.Want)
	}
}
