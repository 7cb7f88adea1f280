package offer

import (
	"math/bits"

	"liqo.io/agent/api"
)

// Split says how a pool is shared out.
type Split struct {
	// Percentage of the pool is offered at all, 0 to 100.
	Percentage int
	// Overcommit is how much of that is promised to all consumers together, in
	// percent; at least 100. No consumer is promised more than all of it.
	Overcommit int
	// Consumers is how many there are; 0 counts as 1.
	Consumers int
	// Asked is how much the consumer asked for, which comes from the network.
	Asked api.RequestedResources
}

// Of returns what a consumer is promised of what is free: the same for all of
// them, so that all promises together are at most Percentage of Overcommit of it, but
// for those who asked for less. What they leave is promised to nobody.
// Amounts are rounded down: cpu to ten thousandths, memory and storage to MiB. Storage for
// claims is what people decided to give, so all of it is divided, and none promised twice. A
// resource of which so little is left that it is nothing is there with 0.
func (s Split) Of(free Amounts) Amounts {
	consumers := max(s.Consumers, 1)
	percentage, overcommit := min(max(s.Percentage, 0), 100), max(s.Overcommit, 100)
	out := make(Amounts, len(free))
	for name, amount := range free {
		part := share(amount, percentage*min(overcommit, 100*consumers), 100*100*consumers)
		switch name {
		case cpu:
			part -= part % tenMilli
		case claims:
			part = amount / int64(consumers)
			part -= part % mebi
		case memory, storage:
			part -= part % mebi
		}
		out[name] = part
	}
	s.bound(out)
	return out
}

// bound lowers amounts to what was asked for, and reports whether they were more. What says
// no amount asks for nothing in particular.
func (s Split) bound(amounts Amounts) (lowered bool) {
	for name, text := range s.Asked.Amounts() {
		if asked, said := parse(name, text); said && amounts[name] > asked {
			amounts[name], lowered = asked, true
		}
	}
	return lowered
}

// share returns amount*of/by, rounded down. of is at most by, and none is negative.
func share(amount int64, of, by int) int64 {
	high, low := bits.Mul64(uint64(amount), uint64(of))
	quotient, _ := bits.Div64(high, low, uint64(by))
	return int64(quotient)
}
