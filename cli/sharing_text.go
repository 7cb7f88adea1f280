package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"liqo.io/agent/agent/control"
)

// firstResources are those that people look at first.
var firstResources = []string{"cpu", "memory", "pods", "ephemeral-storage"}

// amountsText lists amounts of resources, the best known first; "nothing" for
// none.
func amountsText(amounts map[string]string) string {
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
	if more := len(images) - fewImages; more > 0 {
		return strings.Join(images[:fewImages], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(images, ", ")
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
		text += ", " + count(pods, "pod", "pods")
	}
	if !ready && message != "" {
		text += ": " + message
	}
	return text
}

// offeringText says what this cluster offers, for status.
func offeringText(o control.Offering) string {
	if !o.Enabled {
		return off("sharing.enable", o.Source)
	}
	text := fmt.Sprintf("%d%% of what is free", o.Percentage)
	if o.Overcommit > 100 {
		text += fmt.Sprintf(", promised %d%%", o.Overcommit)
	}
	text += setBy(o.Source) + ": " + amountsText(o.Pool)
	if o.Message != "" {
		text += "; " + withinSentence(o.Message)
	}
	return text
}

// withinSentence makes of a sentence a part of another one.
func withinSentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToLower(first)) + strings.TrimSuffix(text[size:], ".")
}

// usingText says what this cluster uses of others, for status.
func usingText(u control.Using) string {
	var text string
	switch {
	case !u.Enabled:
		text = off("sharing.use", u.Source)
	case u.Policy == "manual":
		text = "offers that people accept" + setBy(u.Source)
	default:
		text = fmt.Sprintf("offers as they come, up to %d", u.MaxAccepted) + setBy(u.Source)
	}
	var parts []string
	for _, one := range []struct {
		n    int
		what string
	}{{u.Accepted, "accepted"}, {u.Pending, "to be decided about (liqo-agent adverts list)"}, {u.Refused, "refused"}} {
		if one.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", one.n, one.what))
		}
	}
	if len(parts) == 0 {
		return text + ": none"
	}
	text += ": " + strings.Join(parts, ", ")
	if u.Accepted > 0 {
		text += "; pods there have no IP here, and no Service leads to them"
	}
	return text
}

// fewShared is how many clusters of each kind status lists.
const fewShared = 6

// sharing lists what is used of others, and what others use here: at most so many of
// each, or all for 0.
func (p *printer) sharing(s control.Sharing, most int) {
	providers, moreProviders := first(s.Using.Providers, most, func(one control.Provider) bool { return !one.Ready })
	consumers, moreConsumers := first(s.Offering.Consumers, most, func(one control.Consumer) bool { return one.Ending })
	if len(s.Using.Providers) > 0 {
		p.printf("\nUsed of others:\n")
		rows := make([]row, 0, len(providers))
		for _, one := range providers {
			r := row{cells: []string{one.Name, cmp.Or(one.Node, "none"), readyWord(one), fmt.Sprint(one.Pods), amountsText(one.Offered), one.Message}}
			if !one.Ready {
				r.color = colorYellow
			}
			rows = append(rows, r)
		}
		p.table([]string{"PEER", "NODE", "READY", "PODS", "OFFERED", "MESSAGE"}, rows)
		p.more(moreProviders)
	}
	if len(s.Offering.Consumers) > 0 {
		p.printf("\nUsed by others:\n")
		rows := make([]row, 0, len(consumers))
		for _, one := range consumers {
			r := row{cells: []string{one.Name, fmt.Sprint(one.Pods), fmt.Sprint(one.Namespaces), amountsText(one.Used), amountsText(one.Promised)}}
			if one.Ending {
				r.cells[0] += " (ending)"
				r.color = colorYellow
			}
			rows = append(rows, r)
		}
		p.table([]string{"PEER", "PODS", "NAMESPACES", "USED", "PROMISED"}, rows)
		p.more(moreConsumers)
	}
}

// first returns at most so many of all, or all for 0, and how many are left out.
// Those of which something is the matter come first then.
func first[T any](all []T, most int, wrong func(T) bool) ([]T, int) {
	if most == 0 || len(all) <= most {
		return all, 0
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b T) int {
		switch {
		case wrong(a) == wrong(b):
			return 0
		case wrong(a):
			return -1
		}
		return 1
	})
	return sorted[:most], len(all) - most
}

func (p *printer) more(n int) {
	if n > 0 {
		p.printf("and %d more: liqo-agent info\n", n)
	}
}

func readyWord(one control.Provider) string {
	if one.Ready {
		return "yes"
	}
	return cmp.Or(one.Reason, "no")
}

// providerText says what is used of a peer, "" for nothing.
func providerText(one *control.Provider) string {
	if one == nil {
		return ""
	}
	text := nodeText(one.Node, one.Ready, one.Reason, one.Message, one.Pods)
	if len(one.Offered) > 0 {
		text = strings.TrimPrefix(text+"; ", "; ") + "it offers " + amountsText(one.Offered)
	}
	return text
}

// consumerText says what a peer uses here, "" for nothing.
func consumerText(one *control.Consumer) string {
	if one == nil {
		return ""
	}
	text := fmt.Sprintf("%s in %s", count(one.Pods, "pod", "pods"), count(one.Namespaces, "namespace", "namespaces"))
	if len(one.Used) > 0 {
		text += " with " + amountsText(one.Used)
	}
	if len(one.Promised) > 0 {
		text += ", of " + amountsText(one.Promised)
	}
	if one.Ending {
		text += "; it is being removed"
	}
	return text
}
