package names

import (
	"testing"

	"liqo.io/agent/internal/bed"
)

// TestMain runs the tests inside fresh namespaces: they give this machine addresses.
func TestMain(m *testing.M) { bed.Main(m) }
