package offer

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Names of resources that are counted in other units than pieces.
const (
	cpu     = "cpu"
	memory  = "memory"
	storage = "ephemeral-storage"
	pods    = "pods"
	// claims is what PersistentVolumeClaims ask for.
	claims = "storage"
)

// mebi is the granularity of memory and storage in offers, tenMilli that of cpu.
const (
	mebi     = 1 << 20
	tenMilli = 10
)

// maxUnits bounds an amount, so that a thousandth of it can be counted.
const maxUnits = 1 << 53

// maxQuantity bounds the text of an amount in bytes.
const maxQuantity = 64

// Amounts are amounts of resources: cpu in thousandths of a CPU, memory,
// ephemeral-storage and storage in bytes, everything else in pieces. None is negative.
type Amounts map[string]int64

// offered reports whether a resource can be offered: cpu, memory, ephemeral-storage,
// storage, pods, and extended resources as Kubernetes defines them (a name with a domain
// that is not kubernetes.io). Huge pages cannot.
func offered(name string) bool {
	switch name {
	case cpu, memory, storage, claims, pods:
		return true
	}
	domain, _, ok := strings.Cut(name, "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasPrefix(name, "requests.")
}

// parse returns the amount of a resource that a quantity says, false when it says
// none.
func parse(name, text string) (int64, bool) {
	if len(text) > maxQuantity {
		return 0, false
	}
	quantity, err := resource.ParseQuantity(text)
	switch {
	case err != nil || quantity.Sign() < 0:
		return 0, false
	case quantity.CmpInt64(maxUnits) > 0:
		quantity.Set(maxUnits)
	}
	if name == cpu {
		return quantity.MilliValue(), true
	}
	return quantity.Value(), true
}

// parseAll returns the amounts of the resources that can be offered. What says no
// amount is left out.
func parseAll(texts map[string]string) Amounts {
	out := make(Amounts, len(texts))
	for name, text := range texts {
		if !offered(name) {
			continue
		}
		if amount, ok := parse(name, text); ok {
			out[name] = amount
		}
	}
	return out
}

// Texts returns the amounts as Kubernetes quantities.
func (a Amounts) Texts() map[string]string {
	out := make(map[string]string, len(a))
	for name, amount := range a {
		quantity := resource.NewQuantity(amount, resource.DecimalSI)
		switch name {
		case cpu:
			quantity = resource.NewMilliQuantity(amount, resource.DecimalSI)
		case memory, storage, claims:
			quantity = resource.NewQuantity(amount, resource.BinarySI)
		}
		out[name] = quantity.String()
	}
	return out
}

// add adds b to a.
func (a Amounts) add(b Amounts) {
	for name, amount := range b {
		a[name] = plus(a[name], amount)
	}
}

// raise makes a at least b.
func (a Amounts) raise(b Amounts) {
	for name, amount := range b {
		a[name] = max(a[name], amount)
	}
}

// plus is a+b, or the largest number there is.
func plus(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return 1<<63 - 1
}

// empty reports whether there is nothing of anything.
func (a Amounts) empty() bool {
	for _, amount := range a {
		if amount > 0 {
			return false
		}
	}
	return true
}

// differs reports whether a is another offer than what was told: other resources,
// something where there was nothing or the other way round, or a change by more
// than that many percent of what was told.
func (a Amounts) differs(told Amounts, percent int) bool {
	if percent == 0 {
		return !maps.Equal(a, told)
	}
	if len(a) != len(told) {
		return true
	}
	for name, amount := range a {
		was, there := told[name]
		if !there || (amount == 0) != (was == 0) {
			return true
		}
		if change := amount - was; max(change, -change) > share(was, min(percent, 100), 100) {
			return true
		}
	}
	return false
}
