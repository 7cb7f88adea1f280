package api

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// maxExponent is the most digits of an amount's decimal exponent, as in the schemas of the custom
// resources.
const maxExponent = 2

// ParseAmount reads an amount of a resource, a Kubernetes quantity, that somebody else wrote. One
// with a longer exponent than the custom resources take is none: a quantity is worked with digit by
// digit, which takes days for 1e-999999999.
func ParseAmount(text string) (resource.Quantity, error) {
	if LongExponent(text) {
		return resource.Quantity{}, fmt.Errorf("%.64q: its exponent has more than %d digits", text, maxExponent)
	}
	return resource.ParseQuantity(text)
}

// LongExponent reports whether the exponent of an amount is longer than the custom resources take.
func LongExponent(text string) bool {
	i := strings.IndexAny(text, "eE")
	return i >= 0 && len(strings.TrimLeft(text[i+1:], "+-")) > maxExponent
}
