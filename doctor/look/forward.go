package look

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Forward is a chain that drops packets which this machine passes on.
type Forward struct {
	// Family, Table and Chain name it as nft does, "ip filter FORWARD".
	Family, Table, Chain string
	// Rule is what drops: the policy of the chain, or a rule for everything.
	Rule string
}

var (
	// hooked finds the chains that see what is passed on, and what they do with the rest.
	hooked = regexp.MustCompile(`^table (\S+) (\S+) chain (\S+) type filter hook forward .*policy (\w+);`)
	// whole finds a rule for everything, behind its chain.
	whole = regexp.MustCompile(`^(?:counter(?: packets \d+ bytes \d+)? )?(?:drop|reject\b.*)$`)
	// policies finds the policy of iptables-save.
	policies = regexp.MustCompile(`^:FORWARD (DROP|REJECT)\b`)
)

// Forwards returns the chains, except those of our own tables, that drop what is passed on between pods and a device, as
// far as that can be told from the rules: a chain does not if its table has a rule that names the device, or rules that
// accept what comes from and what goes to the pods.
func (f Firewall) Forwards(device string, pods []netip.Prefix) []Forward {
	var out []Forward
	for _, rule := range f.Rules {
		found := Forward{Rule: rule}
		switch m := hooked.FindStringSubmatch(rule); {
		case m != nil && m[4] == "drop":
			found.Family, found.Table, found.Chain = m[1], m[2], m[3]
		case m != nil:
			found.Family, found.Table, found.Chain = m[1], m[2], m[3]
			at := slices.IndexFunc(f.Rules, func(r string) bool {
				rest, within := strings.CutPrefix(r, "table "+m[1]+" "+m[2]+" chain "+m[3]+" ")
				return within && whole.MatchString(rest)
			})
			if at < 0 {
				continue
			}
			found.Rule = f.Rules[at]
		case policies.MatchString(rule):
			found.Family, found.Table, found.Chain = "ip", "filter", "FORWARD"
		default:
			continue
		}
		if found.Table != ownTable && !f.admits(found, device, pods) {
			out = append(out, found)
		}
	}
	return out
}

// ownTable is what the agent calls its tables.
const ownTable = "liqo"

// admits reports whether a table lets the packets of the pods pass.
func (f Firewall) admits(chain Forward, device string, pods []netip.Prefix) bool {
	from, to := false, false
	for _, rule := range f.Rules {
		if !strings.HasPrefix(rule, "table "+chain.Family+" "+chain.Table+" ") && !strings.HasPrefix(rule, "-A ") || !accepts.MatchString(rule) {
			continue
		}
		if strings.Contains(rule, `"`+device+`"`) || strings.Contains(rule, " "+device+" ") {
			return true
		}
		from, to = from || covers(sources, rule, pods), to || covers(destinations, rule, pods)
	}
	return from && to
}

var (
	accepts      = regexp.MustCompile(`(?:^|\s)(?:accept|-j ACCEPT)\b`)
	sources      = regexp.MustCompile(`(?:saddr|-s) ([0-9a-f.:/]+)`)
	destinations = regexp.MustCompile(`(?:daddr|-d) ([0-9a-f.:/]+)`)
)

// covers reports whether what a rule matches has all pods in it.
func covers(part *regexp.Regexp, rule string, pods []netip.Prefix) bool {
	m := part.FindStringSubmatch(rule)
	if m == nil {
		return false
	}
	p, err := netip.ParsePrefix(m[1])
	return err == nil && slices.ContainsFunc(pods, func(pod netip.Prefix) bool { return p.Bits() <= pod.Bits() && p.Contains(pod.Addr()) })
}

// masks finds a rule that gives everything another source, behind its chain.
var masks = regexp.MustCompile(`(?:^table (?:ip6?|inet) \S+ chain \S+ (?:counter(?: packets \d+ bytes \d+)? )?masquerade\b|^-A POSTROUTING -j MASQUERADE\b)`)

// Masquerades returns the rules that give every packet which leaves another source.
func (f Firewall) Masquerades() []string {
	var out []string
	for _, rule := range f.Rules {
		if masks.MatchString(rule) && strings.Contains(strings.ToLower(rule), "postrouting") {
			out = append(out, rule)
		}
	}
	return out
}
