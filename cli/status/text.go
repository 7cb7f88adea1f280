package status

import (
	"cmp"
	"fmt"
	"strings"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
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
		return "on, including untrusted clusters (discovery.autojoin_untrusted)" + setBy(a.Source)
	}
	return "on" + setBy(a.Source)
}

// fewNotJoined is of how many clusters status says why they are not joined.
const fewNotJoined = 5

// notJoined says which clusters are not joined by themselves, and why.
func notJoined(p *render.Printer, clusters []control.NotJoined) {
	if len(clusters) == 0 {
		return
	}
	p.Printf("\nNot joined automatically:\n")
	for i, c := range clusters {
		if i == fewNotJoined {
			p.Item("  - ", fmt.Sprintf("%d more: %s status -o json", len(clusters)-i, command.Name), "")
			break
		}
		p.Item("  - ", cmp.Or(c.Name, c.ID)+": "+c.Message, "")
	}
}

// networksText says what counts on each link, by which rule.
func networksText(networks []control.LinkNetwork) string {
	var parts []string
	for _, n := range networks {
		rule := "no rule matches"
		if n.Rule != "" {
			rule = "rule " + n.Rule
			if n.Why != "" {
				rule += ": " + n.Why
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
