package problems

import (
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/internal/bubble"
)

// TestStorageProblems: data that is kept, away or missing is shown, and a class that is not there.
func TestStorageProblems(t *testing.T) {
	own := func(state string) control.Storage {
		return control.Storage{Own: []control.OwnStorage{{ID: "a", Name: "barn", Claim: "data", Bytes: 1 << 30, State: state}, {ID: "a", Name: "barn", Claim: "more", State: state}}}
	}
	for name, tc := range map[string]struct {
		now  control.Storage
		want string
	}{
		"none":     {},
		"in use":   {now: control.Storage{Guests: []control.GuestStorage{{ID: "a", Claims: 1, State: control.StorageInUse}}}},
		"retained": {control.Storage{Guests: []control.GuestStorage{{ID: "a", Claims: 2, State: control.StorageRetained}}}, "storage-retained"},
		"bound":    {now: own("Bound")},
		"parted":   {own("Parted"), "storage-away"},
		"missing":  {own("Missing"), "storage-missing"},
		"no class": {control.Storage{Problem: "there is none"}, "storage-unusable"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				m, _ := ailing()
				m.lookAtStorage(tc.now)
				time.Sleep(2 * time.Minute)
				m.lookAtStorage(tc.now)
				if got := m.codes(); got != tc.want {
					t.Errorf("%q, want %q", got, tc.want)
				}
				m.lookAtStorage(control.Storage{})
				if got := m.codes(); got != "" {
					t.Errorf("it stays: %q", got)
				}
			})
		})
	}
}
