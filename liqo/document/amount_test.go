package document

import (
	"encoding/json"
	"testing"
)

// The amounts of a provider are worked with digit by digit, so one with millions of them keeps a processor
// busy for as long as the provider likes, whenever its document is read.
func TestAmountsHaveFewDigits(t *testing.T) {
	for amount, taken := range map[string]bool{
		"1e-1000000": false, "1234567890123456789e1000000": false, "1E+100": false,
		"1e3": true, "1E": true, "1Ei": true, "1e-9": true, "500m": true,
	} {
		var s SliceStatus
		if err := json.Unmarshal([]byte(`{"resources":{"cpu":"`+amount+`"}}`), &s); err != nil {
			t.Fatal(err)
		}
		if _, granted := s.Review().Granted["cpu"]; granted != taken {
			t.Errorf("%s is an amount: %v", amount, granted)
		}
	}
}
