package registry

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"golang.org/x/net/publicsuffix"
)

// Own in a list stands for the registries that the cluster's own pods use.
const Own = "own"

// wildcard before a name in a list stands for all names below it.
const wildcard = "*."

// maxImage is the longest name of an image, in bytes: registries take paths of 255.
const maxImage = 1024

// Defaults returns the registries that guests have unless somebody says otherwise.
func Defaults() []string {
	return []string{
		"docker.io", "gcr.io", "ghcr.io", "mcr.microsoft.com", "public.ecr.aws", "quay.io", "registry.gitlab.com", "registry.k8s.io", Own,
	}
}

// Of returns the registry that an image is pulled from, in lower case and with the
// port if it names one: docker.io for nginx.
func Of(image string) (string, error) {
	if len(image) > maxImage {
		return "", fmt.Errorf("it is longer than %d bytes", maxImage)
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", err
	}
	return strings.ToLower(reference.Domain(named)), nil
}

// Public returns an error unless a registry is called by a name that the public DNS
// can have, with or without a port. What else it may be is an address, or means
// something only where it is asked for: a guest could have the box call services
// around it that are no registries at all.
func Public(registry string) error {
	name := registry
	if host, port, err := net.SplitHostPort(registry); err == nil {
		if port == "" {
			return errors.New("it has no port after the colon")
		}
		name = host
	}
	name = strings.ToLower(name)
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return errors.New("it is an address")
	}
	suffix, managed := publicsuffix.PublicSuffix(name)
	switch {
	case name == "localhost" || strings.HasSuffix(name, ".localhost"):
		return errors.New("it is the box itself")
	case !strings.Contains(name, "."):
		return errors.New("it is a single word, not a name in the public DNS")
	case name == suffix && managed, strings.HasSuffix(name, ".arpa"), !managed && !strings.Contains(suffix, "."):
		// A suffix that is not managed, and has a dot, is a private one below a public one.
		return errors.New("it cannot be a name in the public DNS")
	}
	return nil
}

// CheckEntry returns what is wrong with an entry of a list.
func CheckEntry(entry string) error {
	if entry == Own {
		return nil
	}
	name := strings.TrimPrefix(entry, wildcard)
	// As the registry of an image, so that it can be compared with one.
	if registry, err := Of(name + "/x/y"); err != nil || registry != name {
		return errors.New("it must be a registry such as \"ghcr.io\", all below a name such as \"*.example.com\", or \"own\"")
	}
	return Public(name)
}

// List says which registries guests may have images from.
type List struct {
	// Entries are names, with a port where it is not the usual one; *. and a name for
	// all below it; and Own.
	Entries []string
	// Own are the registries that the cluster's own pods use; nil while that is not
	// known.
	Own []string
}

// Allows reports whether guests may have images from a registry.
func (l List) Allows(registry string) bool {
	if Public(registry) != nil {
		return false
	}
	return slices.ContainsFunc(l.Entries, func(entry string) bool {
		if entry == Own {
			return slices.Contains(l.Own, registry)
		}
		if parent, ok := strings.CutPrefix(entry, wildcard); ok {
			return strings.HasSuffix(registry, "."+parent)
		}
		return registry == entry
	})
}

// AllowsImage reports whether guests may have an image.
func (l List) AllowsImage(image string) bool {
	registry, err := Of(image)
	return err == nil && l.Allows(registry)
}

// Known reports whether all that the list allows is known: the registries of the
// cluster's own pods are not, where it has them, before those pods were looked at.
func (l List) Known() bool {
	return l.Own != nil || !slices.Contains(l.Entries, Own)
}

// Equal reports whether both allow the same.
func (l List) Equal(o List) bool {
	return slices.Equal(l.Entries, o.Entries) && slices.Equal(l.Own, o.Own)
}
