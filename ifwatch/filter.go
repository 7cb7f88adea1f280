package ifwatch

import (
	"errors"
	"fmt"
	"path"
	"slices"
)

// DefaultExclude returns the globs of what is left out unless the user says
// otherwise: the plumbing of containers and virtual machines, and loopback.
func DefaultExclude() []string {
	return []string{"cni*", "flannel*", "veth*", "docker*", "br-*", "virbr*", "kube-*", "lo"}
}

// Filter chooses links by name. Patterns are globs as of path.Match.
//
// When Include is empty every link is chosen that Exclude does not match. When
// it is set only links that it matches are chosen, tunnels and loopback among
// them, because the user named them; Exclude then still removes links, except
// when it is just DefaultExclude. A link that is down, cannot multicast, or is
// a port of a bridge or bond is never used, however the filter is set.
type Filter struct {
	Include []string
	Exclude []string
}

// Validate returns an error that names every pattern that is not a glob.
func (f Filter) Validate() error {
	var errs []error
	for _, p := range slices.Concat(f.Include, f.Exclude) {
		if p == "" {
			errs = append(errs, errors.New(`interface pattern "" is empty; write a name or a glob such as "eth*"`))
			continue
		}
		if _, err := path.Match(p, ""); err != nil {
			errs = append(errs, fmt.Errorf("interface pattern %q is not a glob (names with *, ? and [a-z]): %w", p, err))
		}
	}
	return errors.Join(errs...)
}

// Allows reports whether the filter chooses a link of this name. Patterns that
// Validate refuses match nothing.
func (f Filter) Allows(name string) bool {
	if len(f.Include) == 0 {
		return !matchAny(f.Exclude, name)
	}
	if !matchAny(f.Include, name) {
		return false
	}
	return slices.Equal(f.Exclude, DefaultExclude()) || !matchAny(f.Exclude, name)
}

// explicit reports whether the user named the links to use.
func (f Filter) explicit() bool { return len(f.Include) > 0 }

func (f Filter) clone() Filter {
	return Filter{Include: slices.Clone(f.Include), Exclude: slices.Clone(f.Exclude)}
}

func (f Filter) equal(o Filter) bool {
	return slices.Equal(f.Include, o.Include) && slices.Equal(f.Exclude, o.Exclude)
}

func matchAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, err := path.Match(p, name); err == nil && ok {
			return true
		}
	}
	return false
}
