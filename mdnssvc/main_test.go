package mdnssvc

import (
	"testing"

	"liqo.io/agent/internal/bed"
)

func TestMain(m *testing.M) { bed.Main(m) }
