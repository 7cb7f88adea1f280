package dnssd

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
)

// zeroWeight is what weight 0 counts beside greater ones: RFC 2782 wants "a very
// small chance of being selected".
const zeroWeight = 1.0 / 64

// order returns services in the order in which they are to be tried (RFC 2782): by
// priority, and at random in proportion to their weights within one. The draw depends
// on the seed and the record alone: with one seed the order does not change from look
// to look, and a new record does not reorder the others.
//
// Each record gets a time at which it would come up if it came at random with its
// weight as rate; the first of independent such times belongs to a record with the
// probability that the RFC asks for, and so does each next one of the rest.
func order(services []service, seed uint64) []service {
	type drawn struct {
		service
		after float64
	}
	list := make([]drawn, len(services))
	for i, s := range services {
		weight := float64(s.weight)
		if s.weight == 0 {
			weight = zeroWeight
		}
		list[i] = drawn{s, -math.Log1p(-draw(s, seed)) / weight}
	}
	slices.SortStableFunc(list, func(a, b drawn) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.after, b.after))
	})
	out := make([]service, len(list))
	for i, d := range list {
		out[i] = d.service
	}
	return out
}

// draw returns a number in [0, 1) for a record.
func draw(s service, seed uint64) float64 {
	h := fnv.New64a()
	h.Write([]byte(s.host))
	h.Write(binary.BigEndian.AppendUint16([]byte{0}, s.port))
	return rand.New(rand.NewPCG(seed, h.Sum64())).Float64()
}
