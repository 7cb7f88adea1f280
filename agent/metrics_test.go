package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/agent/metrics"
)

func TestMeasuresOfParts(t *testing.T) {
	var m measures
	m.failed("mDNS", nil) // it ran steadily from the start
	m.failed("mDNS", errors.New("no socket"))
	m.failed("endpoint", errors.New("too many files"))
	m.failed("mDNS", errors.New("no socket"))
	m.failed("endpoint", nil)
	if diff := cmp.Diff(map[string]uint64{"mDNS": 2, "endpoint": 1}, m.restarts); diff != "" {
		t.Errorf("restarts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"mDNS": true}, m.failing); diff != "" {
		t.Errorf("failing (-want +got):\n%s", diff)
	}
	m.anew()
	if len(m.failing) != 0 || m.restarts["mDNS"] != 2 {
		t.Errorf("with parts made anew: %v fail, after %v", m.failing, m.restarts)
	}

	first, second := time.Unix(1, 0), time.Unix(2, 0)
	m.reloaded(first, nil)
	m.reloaded(second, errors.New("line 3"))
	if !m.badRead || !m.read.Equal(first) {
		t.Errorf("after a bad file: bad %t, read at %s", m.badRead, m.read)
	}
	m.reloaded(second, nil)
	if m.badRead || !m.read.Equal(second) {
		t.Errorf("after a good one: bad %t, read at %s", m.badRead, m.read)
	}
}

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
