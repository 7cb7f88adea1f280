//go:build linux

package main

import (
	"math"
	"testing"
)

func TestTrend(t *testing.T) {
	for _, test := range []struct {
		name           string
		x, y           []float64
		slope, failing float64
	}{
		{"exact", []float64{0, 1, 2, 3}, []float64{5, 7, 9, 11}, 2, 0},
		{"flat", []float64{0, 1, 2, 3}, []float64{1, -1, -1, 1}, 0, math.Sqrt(4.0 / 2 / 5)},
		{"two points", []float64{0, 1}, []float64{0, 9}, 0, math.Inf(1)},
		{"one moment", []float64{1, 1, 1}, []float64{0, 9, 3}, 0, math.Inf(1)},
	} {
		slope, failing := trend(test.x, test.y)
		if math.Abs(slope-test.slope) > 1e-9 || failing != test.failing && math.Abs(failing-test.failing) > 1e-9 {
			t.Errorf("%s: %v ± %v, want %v ± %v", test.name, slope, failing, test.slope, test.failing)
		}
	}
}
