package look

import (
	"context"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Firewall is what could be read of the firewall's rules.
type Firewall struct {
	// Rules are one a line, with table and chain in front; none if they could not be read, which takes root and nft or iptables.
	Rules     []string
	Ufw       bool // ufw is switched on
	Firewalld bool // firewalld runs
}

// ReadFirewall reads the rules with nft, or else with iptables.
func ReadFirewall(ctx context.Context) Firewall {
	var out Firewall
	if raw, err := readFile("/etc/ufw/ufw.conf"); err == nil {
		out.Ufw = regexp.MustCompile(`(?mi)^\s*ENABLED\s*=\s*yes`).Match(raw)
	}
	if _, err := os.Stat("/run/firewalld.pid"); err == nil {
		out.Firewalld = true
	}
	raw, err := Command(ctx, maxFile, "nft", "list", "ruleset")
	if err == nil {
		out.Rules = ParseNFT(string(raw))
		return out
	}
	raw, err = Command(ctx, maxFile, "iptables-save")
	if err == nil {
		for line := range strings.Lines(string(raw)) {
			out.Rules = append(out.Rules, strings.TrimSpace(line))
		}
	}
	return out
}

// Name says which firewall people use here, "" when none is known.
func (f Firewall) Name() string {
	switch {
	case f.Ufw:
		return "ufw"
	case f.Firewalld:
		return "firewalld"
	case len(f.Rules) > 0:
		return "nftables"
	}
	return ""
}

// ParseNFT returns the rules of `nft list ruleset`, each with its table and chain in
// front.
func ParseNFT(text string) []string {
	var out []string
	var within []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasSuffix(line, "{"):
			within = append(within, strings.TrimSpace(strings.TrimSuffix(line, "{")))
		case line == "}":
			if len(within) > 0 {
				within = within[:len(within)-1]
			}
		default:
			out = append(out, strings.Join(append(append([]string{}, within...), line), " "))
		}
	}
	return out
}

// verdict finds what a rule does with what it matches.
var verdict = regexp.MustCompile(`(?:^|\s)(?:(drop|reject)\b|-j (DROP|REJECT)\b)`)

// Direction is which way a packet goes.
type Direction bool

// The directions.
const (
	Incoming Direction = false
	Outgoing Direction = true
)

// Drops returns the rules that drop or reject what is sent to a port: of this machine,
// or, outgoing, of others. Rules without the port, such as a policy, are not among
// them.
func (f Firewall) Drops(way Direction, protocol string, port uint16) []string {
	number := strconv.Itoa(int(port))
	at := regexp.MustCompile(`(?:dport|--dports?)\s+(?:\S+,|\{[^}]*[ ,])?` + number + `(?:\D|$)`)
	named := port == 5353 && protocol == "udp"
	mdns := regexp.MustCompile(`dport\s+(?:\{[^}]*[ ,])?"?mdns"?(?:\W|$)`)
	var out []string
	for _, rule := range f.Rules {
		output := strings.Contains(strings.ToLower(rule), " output ") || strings.Contains(rule, "-A OUTPUT")
		if !verdict.MatchString(rule) || output != bool(way) {
			continue
		}
		if strings.Contains(rule, protocol) && at.MatchString(rule) || named && mdns.MatchString(rule) {
			out = append(out, rule)
		}
	}
	return out
}
