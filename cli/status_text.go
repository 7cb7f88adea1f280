package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"liqo.io/agent/agent/control"
)

// off says which setting switches something off, and where that is set.
func off(key, source string) string {
	if source == "" || source == "default" {
		return "off (" + key + " = false)"
	}
	return "off (" + key + " = false, " + source + ")"
}

// setBy names where a switch comes from that is not where a person looks first: the
// defaults and the file are as everybody expects.
func setBy(source string) string {
	if source == "" || source == "default" || strings.HasPrefix(source, "file ") {
		return ""
	}
	return " (" + source + ")"
}

func autojoinText(a control.Autojoin) string {
	switch {
	case !a.Enabled:
		return off("discovery.autojoin", a.Source)
	case a.Untrusted:
		return "on, also of clusters that nobody trusts (discovery.autojoin_untrusted)" + setBy(a.Source)
	}
	return "on" + setBy(a.Source)
}

// fewNotJoined is of how many clusters status says why they are not joined.
const fewNotJoined = 5

// notJoined says which clusters are not joined by themselves, and why.
func (p *printer) notJoined(clusters []control.NotJoined) {
	if len(clusters) == 0 {
		return
	}
	p.printf("\nNot joined by themselves:\n")
	for i, c := range clusters {
		if i == fewNotJoined {
			p.item("  - ", fmt.Sprintf("%d more: %s status -o json", len(clusters)-i, Name), "")
			break
		}
		p.item("  - ", nameOf(c.Name, c.ID)+": "+c.Message, "")
	}
}

// fewDomains is how many search domains status names.
const fewDomains = 4

func searchDomainsText(domains []control.DomainSummary) string {
	var parts []string
	outcomes, clusters := make(map[string]int), 0
	for _, d := range domains {
		word := d.Outcome
		if word == "" {
			word = "not looked at yet"
		}
		outcomes[word]++
		clusters += d.Clusters
		part := d.Domain + ": " + word
		switch {
		case d.Outcome == outcomeFound:
			part = d.Domain + ": " + count(d.Clusters, "cluster", "clusters")
		case d.Message != "":
			part += ", " + d.Message
		}
		parts = append(parts, part)
	}
	if len(domains) <= fewDomains {
		return strings.Join(parts, "; ")
	}
	parts = nil
	for _, word := range slices.Sorted(maps.Keys(outcomes)) {
		parts = append(parts, fmt.Sprintf("%d %s", outcomes[word], word))
	}
	return fmt.Sprintf("%s, %s (%s domains list)", strings.Join(parts, ", "), count(clusters, "cluster", "clusters"), Name)
}

// networksText says what counts on each link, by which rule.
func networksText(networks []control.LinkNetwork) string {
	var parts []string
	for _, n := range networks {
		rule := "no rule fits"
		if n.Rule != "" {
			rule = "rule " + n.Rule
			// What is said already is not said again.
			if why := strings.TrimSuffix(strings.TrimPrefix(n.Why, fmt.Sprintf("network %q: ", n.Rule)), " on "+n.Link); why != "" {
				rule += ": " + why
			}
		}
		parts = append(parts, fmt.Sprintf("%s %s (%s)", n.Link, allowedText(n), rule))
	}
	return strings.Join(parts, "; ")
}

func allowedText(n control.LinkNetwork) string {
	var may []string
	for _, one := range []struct {
		allowed bool
		what    string
	}{{n.Advertise, "advertises"}, {n.Discover, "discovers"}, {n.Autojoin, "joins"}} {
		if one.allowed {
			may = append(may, one.what)
		}
	}
	switch len(may) {
	case 0:
		return "silent"
	case 3:
		return "everything"
	}
	return "only " + strings.Join(may, " and ")
}
