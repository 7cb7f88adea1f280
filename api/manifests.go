package api

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed crds/*.yaml
var manifests embed.FS

// Manifest is one CustomResourceDefinition as kubectl apply takes it.
type Manifest struct {
	// Name is the name of the CustomResourceDefinition: plural.group.
	Name string
	// YAML is the whole manifest; the caller must not change it.
	YAML []byte
}

// CRDs returns the manifests of every custom resource, sorted by name.
func CRDs() []Manifest {
	// Both calls read memory that the linker filled: they cannot fail on a
	// binary whose test ran once.
	entries, err := fs.ReadDir(manifests, "crds")
	if err != nil {
		panic(err)
	}
	out := make([]Manifest, 0, len(entries))
	for _, entry := range entries {
		yaml, err := fs.ReadFile(manifests, "crds/"+entry.Name())
		if err != nil {
			panic(err)
		}
		out = append(out, Manifest{Name: strings.TrimSuffix(entry.Name(), ".yaml"), YAML: yaml})
	}
	return out
}
