package filter

import (
	"testing"

	"liqo.io/agent/internal/bed"
)

// TestMain runs the tests inside fresh namespaces: nothing here may touch the
// machine's own rules.
func TestMain(m *testing.M) { bed.Main(m) }
