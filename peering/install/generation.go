package install

import "strconv"

// Generation counts the changes of the custom resource definitions. It goes up
// with every release that changes one of them, and an agent never replaces a
// definition of a higher generation: one that was rolled back would else take away
// fields, and what stored objects have in them. A test compares it with the
// manifests.
const Generation = 1

// annotationGeneration on a definition is the Generation of the agent that
// applied it last.
const annotationGeneration = "liqo.io/crd-generation"

// stampGeneration has a manifest say of which generation it is.
func stampGeneration(manifest map[string]any) {
	metadata, ok := manifest["metadata"].(map[string]any)
	if !ok {
		metadata = make(map[string]any)
		manifest["metadata"] = metadata
	}
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		annotations = make(map[string]any)
		metadata["annotations"] = annotations
	}
	annotations[annotationGeneration] = strconv.FormatInt(Generation, 10)
}

// generationOf returns the generation of a definition, 0 when it has none that can
// be read: then somebody else brought it, or it is older than generations are.
func generationOf(crd map[string]any) int64 {
	metadata, _ := crd["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	text, _ := annotations[annotationGeneration].(string)
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// NewerDefinition reports whether a custom resource definition, as an API server
// has it, was brought by a newer agent than this build is.
func NewerDefinition(crd map[string]any) bool { return generationOf(crd) > Generation }
