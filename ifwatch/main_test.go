package ifwatch

import (
	"testing"

	"liqo.io/agent/internal/bed"
)

// TestMain runs the tests inside a fresh network namespace: nothing here may
// touch the machine's own links.
func TestMain(m *testing.M) { bed.Main(m) }
