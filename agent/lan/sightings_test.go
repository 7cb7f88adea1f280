package lan

import (
	"testing"

	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/mdnssvc/browser"
)

// Only what the peer said, or two signs, may count as its absence.
func TestAbsence(t *testing.T) {
	for reason, want := range map[string]struct{ said, expired bool }{
		browser.ReasonGoodbye:      {said: true},
		browser.ReasonDiscoveryOff: {said: true},
		browser.ReasonExpired:      {expired: true},
		browser.ReasonNoAnswer:     {expired: true},
		browser.ReasonEvicted:      {},
		browser.ReasonLinkGone:     {},
		"something new":            {},
	} {
		got := absence(reason)
		if got.Evidence == registry.Withdrawn != want.said || got.Evidence == registry.Expired != want.expired || got.Reason == "" {
			t.Errorf("absence(%q) = %+v", reason, got)
		}
	}
}
