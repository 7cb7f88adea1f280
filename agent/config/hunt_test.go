package config

import "testing"

// A slip of the finger must not keep "config check", or the agent, busy for hours with its digits.
func TestAmountsHaveFewDigits(t *testing.T) {
	if _, err := Load(Options{Path: "/nonexistent", Set: []string{"sharing.storage=1e-1000000"}}); err == nil {
		t.Error("it is taken")
	}
}
