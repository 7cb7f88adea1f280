package plan

import "testing"

// BenchmarkNothingToDo is a plan about a peer that is joined, at which pods run, and
// of which nothing is new, as every event and every interval has one made.
func BenchmarkNothingToDo(b *testing.B) {
	w := used(b)
	for _, side := range []struct {
		name string
		box  *box
	}{{"consumer", w.a}, {"provider", w.b}} {
		obs := side.box.observe()
		side.box.provide(&obs)
		b.Run(side.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := Plan(obs, w.now); len(d.Actions) != 0 {
					b.Fatalf("something is to be done: %v", kinds(d.Actions))
				}
			}
		})
	}
}
