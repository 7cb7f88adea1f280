package domains

import (
	"strings"
	"testing"

	"liqo.io/agent/agent/control"
)

// TestAdviceOnDomains: whatever can be wrong, there is something to do about it.
func TestAdviceOnDomains(t *testing.T) {
	for _, outcome := range []string{"NoData", "NoName", "ServerFailure", "Refused", "Timeout", "Unreachable", "BadAnswer"} {
		if outcomeAdvice(control.Domain{Name: "example.com", Outcome: outcome}) == "" {
			t.Errorf("no advice on %s", outcome)
		}
	}
	for source, want := range map[string]string{
		"command line (user alice)": "liqo-agent domains add example.com --server ADDRESS",
		"file /etc/x.toml line 3":   "set its server in file /etc/x.toml line 3",
		"SearchDomain example":      "set the server of SearchDomain example",
	} {
		if got := outcomeAdvice(control.Domain{Name: "example.com", Outcome: "Timeout", Source: source}); !strings.HasSuffix(got, want) {
			t.Errorf("advice on a domain from %s: %s, want %s", source, got, want)
		}
	}
	for _, outcome := range []string{"", "Found"} {
		if advice := outcomeAdvice(control.Domain{Outcome: outcome}); advice != "" {
			t.Errorf("advice on %q: %s", outcome, advice)
		}
	}
}
