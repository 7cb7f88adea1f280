package offer

import (
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"liqo.io/agent/api"
)

func TestSplit(t *testing.T) {
	free := Amounts{cpu: 4000, memory: 8 << 30, pods: 110, "a.example/gpu": 1}
	all := api.RequestedResources{}
	asked := func(cpu, memory api.RequestedAmount) Split {
		return Split{50, 100, 1, api.RequestedResources{CPU: cpu, Memory: memory}}
	}
	rest := func(cpu, memory string) map[string]string {
		return map[string]string{"cpu": cpu, "memory": memory, "pods": "55", "a.example/gpu": "0"}
	}
	for _, tc := range []struct {
		split Split
		want  map[string]string
	}{
		{Split{100, 100, 0, all}, map[string]string{"cpu": "4", "memory": "8Gi", "pods": "110", "a.example/gpu": "1"}},
		{Split{100, 100, 1, all}, map[string]string{"cpu": "4", "memory": "8Gi", "pods": "110", "a.example/gpu": "1"}},
		{Split{50, 100, 1, all}, map[string]string{"cpu": "2", "memory": "4Gi", "pods": "55", "a.example/gpu": "0"}},
		{Split{100, 100, 3, all}, map[string]string{"cpu": "1330m", "memory": "2730Mi", "pods": "36", "a.example/gpu": "0"}},
		{Split{100, 200, 1, all}, map[string]string{"cpu": "4", "memory": "8Gi", "pods": "110", "a.example/gpu": "1"}},
		{Split{100, 200, 3, all}, map[string]string{"cpu": "2660m", "memory": "5461Mi", "pods": "73", "a.example/gpu": "0"}},
		{Split{0, 100, 1, all}, map[string]string{"cpu": "0", "memory": "0", "pods": "0", "a.example/gpu": "0"}},
		{Split{-5, 0, -1, all}, map[string]string{"cpu": "0", "memory": "0", "pods": "0", "a.example/gpu": "0"}},
		{Split{900, 5, 1, all}, map[string]string{"cpu": "4", "memory": "8Gi", "pods": "110", "a.example/gpu": "1"}},
		{asked("1500m", "1Gi"), rest("1500m", "1Gi")},
		{asked("1.234", ""), rest("1234m", "4Gi")},
		{asked("", "1e3"), rest("2", "1k")},
		{asked("2", "4Gi"), rest("2", "4Gi")},
		{asked("3", "5Gi"), rest("2", "4Gi")},
		{asked("0", "0"), rest("0", "0")},
		{asked("-1", "-1Gi"), rest("2", "4Gi")},
		{asked("much", "1e99"), rest("2", "4Gi")},
		{asked(api.RequestedAmount(strings.Repeat("0", maxQuantity)+"1"), "1Gi "), rest("2", "4Gi")},
	} {
		if got := tc.split.Of(free).Texts(); !maps.Equal(got, tc.want) {
			t.Errorf("%+v: %v, want %v", tc.split, got, tc.want)
		}
	}
	// Nothing is offered that there is not.
	if got := asked("1", "1Gi").Of(Amounts{pods: 2}); !maps.Equal(got, Amounts{pods: 1}) {
		t.Errorf("without CPU and memory: %v", got)
	}
	// Storage is divided as it was given.
	for consumers, want := range map[int]string{0: "20Gi", 1: "20Gi", 3: "6826Mi"} {
		if got := (Split{Percentage: 10, Overcommit: 500, Consumers: consumers}).Of(Amounts{claims: 20 << 30}).Texts()["storage"]; got != want {
			t.Errorf("storage for %d consumers: %s, want %s", consumers, got, want)
		}
	}
}

// TestSplitKeepsWord draws pools and terms, and checks what holds for all of them.
func TestSplitKeepsWord(t *testing.T) {
	names := []string{cpu, memory, storage, pods, "a.example/gpu"}
	rapid.Check(t, func(t *rapid.T) {
		free := Amounts{}
		for _, name := range names {
			free[name] = rapid.OneOf(rapid.Int64Range(0, 1<<20), rapid.Int64Range(0, 1<<63-1)).Draw(t, name)
		}
		s := Split{rapid.IntRange(0, 100).Draw(t, "percentage"), rapid.IntRange(100, 1000).Draw(t, "overcommit"), rapid.IntRange(1, 200).Draw(t, "consumers"), api.RequestedResources{}}
		each := s.Of(free)
		if len(each) != len(free) {
			t.Fatalf("a resource got lost: %v", each)
		}
		for name, amount := range free {
			part := each[name]
			pool := float64(amount) * float64(s.Percentage) / 100
			if got, most := float64(part)*float64(s.Consumers), pool*float64(s.Overcommit)/100; part < 0 || float64(part) > pool*(1+1e-9) || got > most*(1+1e-9) {
				t.Fatalf("%s: %d consumers are promised %d of %g", name, s.Consumers, part, pool)
			}
			// Nothing is kept back but what rounding takes.
			if fair := min(pool, pool*float64(s.Overcommit)/100/float64(s.Consumers)); float64(part) < fair*(1-1e-9)-mebi {
				t.Fatalf("%s: promised %d, fair is %g", name, part, fair)
			}
		}
		for what, more := range map[string]Split{
			"consumers": {s.Percentage, s.Overcommit, s.Consumers + 1, s.Asked}, "percentage": {max(s.Percentage-1, 0), s.Overcommit, s.Consumers, s.Asked},
			"overcommit": {s.Percentage, max(s.Overcommit-1, 100), s.Consumers, s.Asked},
		} {
			for name, amount := range more.Of(free) {
				if amount > each[name] {
					t.Fatalf("%s: %d becomes %d with another %s", name, each[name], amount, what)
				}
			}
		}
		for name := range free {
			free[name] -= min(free[name], rapid.Int64Range(0, 1<<62).Draw(t, "less"))
		}
		for name, amount := range s.Of(free) {
			if amount > each[name] {
				t.Fatalf("%s: less is free and more is promised", name)
			}
		}
		if back := parseAll(each.Texts()); !maps.Equal(back, each) {
			for name := range each {
				if each[name] <= maxUnits && back[name] != each[name] {
					t.Fatalf("%v is read as %v", each.Texts(), back)
				}
			}
		}
	})
}

func TestDiffers(t *testing.T) {
	told := Amounts{cpu: 1000, pods: 10, "a.example/gpu": 0}
	with := func(name string, amount int64) Amounts {
		out := maps.Clone(told)
		out[name] = amount
		return out
	}
	less := maps.Clone(told)
	delete(less, "a.example/gpu")
	for _, tc := range []struct {
		name    string
		now     Amounts
		percent int
		want    bool
	}{
		{"the same", told, 0, false},
		{"up to the threshold", with(cpu, 1100), 10, false},
		{"down to the threshold", with(cpu, 900), 10, false},
		{"above", with(cpu, 1110), 10, true},
		{"below", with(cpu, 890), 10, true},
		{"one less of few", with(pods, 9), 10, false},
		{"two less of few", with(pods, 8), 10, true},
		{"to zero", with(cpu, 0), 100, true},
		{"from zero", with("a.example/gpu", 1), 100, true},
		{"doubled", with(cpu, 2000), 100, false},
		{"tripled", with(cpu, 3000), 5000, true},
		{"any", with(cpu, 1001), 0, true},
		{"another resource", with("b.example/x", 1), 100, true},
		{"a resource less", less, 100, true},
	} {
		if got := tc.now.differs(told, tc.percent); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
