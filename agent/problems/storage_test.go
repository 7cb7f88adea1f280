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
	inUse := control.Storage{Guests: []control.GuestStorage{{ID: "a", Claims: 1, State: control.StorageInUse}}}
	for name, tc := range map[string]struct {
		now     control.Storage
		pressed []string
		want    string
	}{
		"none":            {},
		"in use":          {now: inUse},
		"retained":        {now: control.Storage{Guests: []control.GuestStorage{{ID: "a", Claims: 2, State: control.StorageRetained}}}, want: "storage-retained"},
		"bound":           {now: own("Bound")},
		"parted":          {now: own("Parted"), want: "storage-away"},
		"missing":         {now: own("Missing"), want: "storage-missing"},
		"no class":        {now: control.Storage{Problem: "there is none"}, want: "storage-unusable"},
		"a full disk":     {now: inUse, pressed: []string{"alder"}, want: "storage-pressure"},
		"of nobody's use": {pressed: []string{"alder"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				m, _ := ailing()
				m.lookAtStorage(tc.now, tc.pressed)
				time.Sleep(2 * time.Minute)
				m.lookAtStorage(tc.now, tc.pressed)
				if got := m.codes(); got != tc.want {
					t.Errorf("%q, want %q", got, tc.want)
				}
				m.lookAtStorage(control.Storage{}, nil)
				if got := m.codes(); got != "" {
					t.Errorf("it stays: %q", got)
				}
			})
		})
	}
}
