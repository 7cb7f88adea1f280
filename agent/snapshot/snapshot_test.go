package snapshot

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/agent/metrics"
)

func TestAmounts(t *testing.T) {
	got := amounts(map[string]string{
		"cpu": "1500m", "memory": "2Gi", "pods": "lots", "nvidia.com/gpu": "1", "ephemeral-storage": "1k",
	})
	if diff := cmp.Diff(metrics.Amounts{"cpu": 1.5, "memory": 2 << 30, "ephemeral-storage": 1000}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if amounts(nil) != nil {
		t.Error("what is not known became nothing")
	}
}
