package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/adverts"
	"liqo.io/agent/cli/render"
)

// offeringText says what this cluster offers, for status.
func offeringText(o control.Offering) string {
	if !o.Enabled {
		return off("sharing.enable", o.Source)
	}
	text := fmt.Sprintf("%d%% of free resources", o.Percentage)
	if o.Overcommit > 100 {
		text += fmt.Sprintf(", overcommit %d%%", o.Overcommit)
	}
	text += setBy(o.Source) + ": " + adverts.AmountsText(o.Pool)
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
		text = "accepts offers manually" + setBy(u.Source)
	default:
		text = fmt.Sprintf("accepts up to %d offers automatically", u.MaxAccepted) + setBy(u.Source)
	}
	var parts []string
	for _, one := range []struct {
		n    int
		what string
	}{{u.Accepted, "accepted"}, {u.Pending, "pending (liqo-agent adverts list)"}, {u.Refused, "refused"}} {
		if one.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", one.n, one.what))
		}
	}
	if len(parts) == 0 {
		return text + ": none"
	}
	return text + ": " + strings.Join(parts, ", ")
}

// networkText says how many peers' pods reach pods here, for status.
func networkText(n control.NetworkSummary) string {
	switch {
	case n.Reason != "":
		return "off: " + withinSentence(n.Message)
	case n.Peers == 0:
		return "no peers to connect"
	}
	out := fmt.Sprintf("%d of %s connected", n.Connected, render.Count(n.Peers, "peer", "peers"))
	if n.WireGuard > 0 {
		out += fmt.Sprintf(", %d by WireGuard", n.WireGuard)
	}
	if n.Connected < n.Peers {
		out += " (liqo-agent network list)"
	}
	return out
}

// fewShared is how many clusters of each kind status lists.
const fewShared = 6

// printSharing lists what is used of others, and what others use here: at most so many of
// each, or all for 0.
func printSharing(p *render.Printer, s control.Sharing, most int) {
	providers, moreProviders := first(s.Using.Providers, most, func(one control.Provider) bool { return !one.Ready })
	consumers, moreConsumers := first(s.Offering.Consumers, most, func(one control.Consumer) bool { return one.Ending })
	if len(s.Using.Providers) > 0 {
		p.Printf("\nProviders:\n")
		rows := make([]render.Row, 0, len(providers))
		for _, one := range providers {
			r := render.Row{Cells: []string{one.Name, cmp.Or(one.Node, "none"), readyWord(one), fmt.Sprint(one.Pods), adverts.AmountsText(one.Offered), one.Message}}
			if !one.Ready {
				r.Color = render.Yellow
			}
			rows = append(rows, r)
		}
		p.Table([]string{"PEER", "NODE", "READY", "PODS", "OFFERED", "MESSAGE"}, rows)
		more(p, moreProviders)
	}
	if len(s.Offering.Consumers) > 0 {
		p.Printf("\nConsumers:\n")
		rows := make([]render.Row, 0, len(consumers))
		for _, one := range consumers {
			r := render.Row{Cells: []string{one.Name, fmt.Sprint(one.Pods), fmt.Sprint(one.Namespaces), adverts.AmountsText(one.Used), adverts.AmountsText(one.Promised)}}
			if one.Ending {
				r.Cells[0] += " (ending)"
				r.Color = render.Yellow
			}
			rows = append(rows, r)
		}
		p.Table([]string{"PEER", "PODS", "NAMESPACES", "USED", "PROMISED"}, rows)
		more(p, moreConsumers)
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

func more(p *render.Printer, n int) {
	if n > 0 {
		p.Printf("and %d more: liqo-agent info\n", n)
	}
}

func readyWord(one control.Provider) string {
	if one.Ready {
		return "yes"
	}
	return cmp.Or(one.Reason, "no")
}
