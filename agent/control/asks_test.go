package control

import (
	"errors"
	"testing"
)

// An amount that a PeeringRequest cannot say is refused when a person says it, not by the provider again
// and again; and none has millions of digits, which the agent would write out.
func TestAsksFitIntoRequests(t *testing.T) {
	for given, want := range map[string]string{
		"1e120": "", "1000e99": "", "1e1000000": "", "1e-1000000": "",
		"2": "2", "0.5": "500m", "1e3": "1e3", "2000m": "2", "1E": "1E",
	} {
		asks := Asks{CPU: &given}
		switch err := asks.Check(); {
		case want == "" && !errors.Is(err, ErrInvalid):
			t.Errorf("%s: %v, kept as %.40s", given, err, *asks.CPU)
		case want != "" && (err != nil || *asks.CPU != want):
			t.Errorf("%s: %v, kept as %.40s", given, err, *asks.CPU)
		}
	}
}
