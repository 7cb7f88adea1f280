package engine

import (
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	none := (*Installation)(nil)
	barn, mill := &Installation{ID: "barn", Version: "v1.2.0"}, &Installation{ID: "mill", Version: "v1.2.3"}
	old, bare := &Installation{ID: "mill", Version: "v1.1.2"}, &Installation{ID: "mill"}
	ill := &Installation{ID: "mill", Version: "v1.2.0", Problem: "liqo-webhook is not ready"}
	for _, c := range []struct {
		ours    Setting
		here    *Installation
		theirs  Setting
		there   *Installation
		want    Engine
		blocked bool
		why     string
	}{
		{Auto, none, "", none, Builtin, false, "Liqo is not installed here."},
		{Auto, barn, "", none, Builtin, false, "The other cluster does not say that it has Liqo."},
		{Auto, none, Auto, mill, Builtin, false, "Liqo is not installed here."},
		{Auto, barn, Auto, mill, Liqo, false, "Both clusters run Liqo: barn (v1.2.0) here, mill (v1.2.3) there."},
		{Auto, barn, Auto, bare, Liqo, false, "Both clusters run Liqo: barn (v1.2.0) here, mill there."},
		{Auto, barn, Auto, ill, Builtin, false, "Liqo there cannot be used: liqo-webhook is not ready."},
		{Auto, ill, Auto, barn, Builtin, false, "Liqo here cannot be used: liqo-webhook is not ready."},
		{Auto, barn, Auto, old, Builtin, false, "Liqo is v1.2.0 here and v1.1.2 there, which do not work together."},
		{Auto, barn, Auto, barn, Builtin, false, "Liqo calls both clusters barn."},
		{OnlyBuiltin, barn, Auto, mill, Builtin, false, "peering.engine is builtin here."},
		{Auto, barn, OnlyBuiltin, mill, Builtin, false, "peering.engine is builtin there."},
		{OnlyBuiltin, none, "", none, Builtin, false, "peering.engine is builtin here."},
		{OnlyLiqo, barn, Auto, mill, Liqo, false, "Both clusters run Liqo: barn (v1.2.0) here, mill (v1.2.3) there."},
		{OnlyLiqo, barn, "", none, Liqo, true, "peering.engine is liqo here, but the other cluster does not say that it has Liqo."},
		{OnlyLiqo, none, Auto, mill, Liqo, true, "peering.engine is liqo here, but Liqo is not installed here."},
		{Auto, none, OnlyLiqo, mill, Liqo, true, "peering.engine is liqo there, but Liqo is not installed here."},
		{OnlyLiqo, barn, OnlyBuiltin, mill, Liqo, true, "peering.engine is liqo here and builtin there: change one of the two."},
		{OnlyBuiltin, barn, OnlyLiqo, mill, Liqo, true, "peering.engine is builtin here and liqo there: change one of the two."},
	} {
		got := Choose(State{Setting: c.ours, Liqo: c.here}, State{Setting: c.theirs, Liqo: c.there})
		if got != (Choice{c.want, c.blocked, c.why}) {
			t.Errorf("%s %v, %s %v: %+v, want %s", c.ours, c.here, c.theirs, c.there, got, c.why)
		}
		// Both sides choose the same: what one does, the other one lets it.
		other := Choose(State{Setting: c.theirs, Liqo: c.there}, State{Setting: c.ours, Liqo: c.here})
		if other.Engine != got.Engine || other.Blocked != got.Blocked || !strings.HasSuffix(other.Why, ".") {
			t.Errorf("%s %v, %s %v: %+v here, %+v there", c.ours, c.here, c.theirs, c.there, got, other)
		}
		if may := (State{Setting: c.ours, Liqo: c.here}).May(); got.Engine == Liqo && !got.Blocked && !may {
			t.Errorf("%s %v: chosen, although it may not be", c.ours, c.here)
		}
	}
}
