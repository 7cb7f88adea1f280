package document

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"liqo.io/agent/api"
	"liqo.io/agent/peer/text"
)

const (
	// maxAmount is how long an amount may be in bytes, and maxAmounts how many there may be.
	maxAmount, maxAmounts = 64, 32
	maxResource           = 317 // the name of one: a prefix of 253 bytes, a slash and 63 more
)

// Acceptance is what a provider says about one side of a ResourceSlice.
type Acceptance string

// The values of an Acceptance, besides "" for nothing yet
// (apis/authentication/v1beta1/resourceslice_types.go).
const (
	Accepted Acceptance = "Accepted"
	Denied   Acceptance = "Denied"
)

// SliceStatus is the status of a ResourceSlice, as far as it matters here. Its fields are what
// the provider wrote into its copy: read them with Review.
type SliceStatus struct {
	Conditions []SliceCondition  `json:"conditions,omitempty"`
	Resources  map[string]Amount `json:"resources,omitempty"`
}

// Amount is an amount of a resource, which may be written as a number.
type Amount string

// UnmarshalJSON implements json.Unmarshaler. What is no amount is kept as it is, so that it does
// not keep other objects from being read.
func (a *Amount) UnmarshalJSON(text []byte) error {
	var s string
	if json.Unmarshal(text, &s) != nil {
		s = string(text)
	}
	*a = Amount(s)
	return nil
}

// SliceCondition is one of its conditions.
type SliceCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
}

// Slice is what the status of a ResourceSlice says.
type Slice struct {
	// Authentication: there is an Identity for the virtual node. Resources: it is given what was
	// asked for.
	Authentication, Resources Acceptance
	// Message is why one of them is denied, a sentence in the provider's words; "" if none is.
	Message string
	// Granted are the amounts that are given, by resource.
	Granted map[string]string
}

// Accepted reports whether the ResourceSlice can be used.
func (s Slice) Accepted() bool { return s.Authentication == Accepted && s.Resources == Accepted }

// Review reads a status. Conditions and amounts that are none are left out.
func (s SliceStatus) Review() Slice {
	var out Slice
	for _, c := range s.Conditions {
		status := Acceptance(c.Status)
		if status != Accepted && status != Denied {
			continue
		}
		switch c.Type {
		case "Authentication":
			out.Authentication = status
		case "Resources":
			out.Resources = status
		default:
			continue
		}
		if status == Denied && out.Message == "" {
			out.Message = text.Sentence(c.Message)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Resources)) {
		if len(out.Granted) == maxAmounts {
			break
		}
		if amount := string(s.Resources[name]); checkAmount(name, amount) == nil {
			if out.Granted == nil {
				out.Granted = make(map[string]string)
			}
			out.Granted[name] = amount
		}
	}
	return out
}

// checkAmount checks an amount of a resource.
func checkAmount(name, amount string) error {
	if name == "" || len(name) > maxResource || !text.Printable(name) {
		return fmt.Errorf("%q is not the name of a resource", text.Line(name, maxAmount))
	}
	if len(amount) > maxAmount {
		return fmt.Errorf("the amount of %s has %d bytes", name, len(amount))
	}
	quantity, err := api.ParseAmount(amount)
	if err != nil || quantity.Sign() < 0 {
		return fmt.Errorf("%q is not an amount of %s", text.Line(amount, maxAmount), name)
	}
	return nil
}
