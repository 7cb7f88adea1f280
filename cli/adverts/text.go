package adverts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/peer/text"
)

// firstResources are those that people look at first.
var firstResources = []string{"cpu", "memory", "pods", "ephemeral-storage", "storage"}

// AmountsText lists amounts of resources, the best known first; "nothing" for
// none.
func AmountsText(amounts map[string]string) string {
	rank := func(name string) int {
		if i := slices.Index(firstResources, name); i >= 0 {
			return i
		}
		return len(firstResources)
	}
	names := slices.SortedFunc(maps.Keys(amounts), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	parts := make([]string, 0, len(names))
	for _, name := range names {
		parts = append(parts, name+" "+amounts[name])
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// pairsText lists labels.
func pairsText(labels map[string]string) string {
	parts := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, name+"="+labels[name])
	}
	return strings.Join(parts, ", ")
}

// fewImages is how many images are named.
const fewImages = 5

func imagesText(images []string) string {
	return text.List(images, fewImages, ", ")
}

// nodeText says how a node stands, and how many pods are on it; "" when there is
// none and nothing to say.
func nodeText(node string, ready bool, reason, message string, pods int) string {
	text := node
	switch {
	case node == "" && reason == "" && message == "":
		return ""
	case node == "":
		text = "none"
	case ready:
		text += ", ready"
	default:
		text += ", not ready"
	}
	if !ready && reason != "" {
		text += " (" + reason + ")"
	}
	if node != "" {
		text += ", " + render.Count(pods, "pod", "pods")
	}
	if !ready && message != "" {
		text += ": " + message
	}
	return text
}

// ProviderText says what is used of a peer, "" for nothing.
func ProviderText(one *control.Provider) string {
	if one == nil {
		return ""
	}
	text := nodeText(one.Node, one.Ready, one.Reason, one.Message, one.Pods)
	if len(one.Offered) > 0 {
		text = strings.TrimPrefix(text+"; ", "; ") + "it offers " + AmountsText(one.Offered)
	}
	return text
}

// ConsumerText says what a peer uses here, "" for nothing.
func ConsumerText(one *control.Consumer) string {
	if one == nil {
		return ""
	}
	text := fmt.Sprintf("%s in %s", render.Count(one.Pods, "pod", "pods"), render.Count(one.Namespaces, "namespace", "namespaces"))
	if len(one.Used) > 0 {
		text += " with " + AmountsText(one.Used)
	}
	if len(one.Promised) > 0 {
		text += ", of " + AmountsText(one.Promised)
	}
	if one.Ending {
		text += "; ending"
	}
	return text
}
