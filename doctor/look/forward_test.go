package look

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// rulesOf has a shell script make rules in a network namespace of its own, and returns what can be
// read of them, as from this machine's.
func rulesOf(t *testing.T, script string) Firewall {
	t.Helper()
	var text strings.Builder
	cmd := exec.CommandContext(t.Context(), "unshare", "--map-root-user", "--net", "sh", "-ec", script+"\nexec nft list ruleset")
	var problems strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, problems.String())
	}
	return Firewall{Rules: ParseNFT(text.String())}
}

const (
	dropped = "export XTABLES_LOCKFILE=/dev/null\niptables-nft -P FORWARD DROP\n"
	flannel = "iptables-nft -N FLANNEL-FWD\niptables-nft -A FORWARD -j FLANNEL-FWD\niptables-nft -A FLANNEL-FWD -s 10.42.0.0/16 -j ACCEPT\n"
)

// TestForwards: a chain that drops what is passed on is found among real rules, and only one that
// does.
func TestForwards(t *testing.T) {
	pods := []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24"), netip.MustParsePrefix("fd42::/64")}
	six := strings.NewReplacer("iptables-nft", "ip6tables-nft", "10.42.0.0/16", "fd42::/56").Replace
	for _, tc := range []struct{ name, script, want string }{
		{"no rules", "true", ""},
		{"accepting", "nft 'add table inet f; add chain inet f c { type filter hook forward priority 0; policy accept; }'", ""},
		{"nftables", "nft 'add table inet f; add chain inet f c { type filter hook forward priority 0; policy drop; }'", "inet f c"},
		{"another hook", "nft 'add table inet f; add chain inet f c { type filter hook input priority 0; policy drop; }'", ""},
		{"docker", dropped, "ip filter FORWARD"},
		{"docker, allowed", dropped + "iptables-nft -I FORWARD -i liqo0 -j ACCEPT; iptables-nft -I FORWARD -o liqo0 -j ACCEPT", ""},
		{"K3s beside docker", dropped + flannel + "iptables-nft -A FLANNEL-FWD -d 10.42.0.0/16 -j ACCEPT", ""},
		{"K3s with IPv6 beside docker", six(dropped + flannel + "iptables-nft -A FLANNEL-FWD -d 10.42.0.0/16 -j ACCEPT"), ""},
		{"one way only, with IPv6", six(dropped + flannel), "ip6 filter FORWARD"},
		{"one way only", dropped + flannel, "ip filter FORWARD"},
		{"other pods", dropped + strings.ReplaceAll(flannel+"iptables-nft -A FLANNEL-FWD -d 10.42.0.0/16 -j ACCEPT", "10.42.", "10.244."), "ip filter FORWARD"},
		{"a rule at the end", "nft 'add table inet f; add chain inet f c { type filter hook forward priority 0; }; add rule inet f c ct state established accept; add rule inet f c counter reject with icmpx admin-prohibited'", "inet f c"},
		{"a rule about something", "nft 'add table inet f; add chain inet f c { type filter hook forward priority 0; }; add rule inet f c tcp dport 22 drop'", ""},
		{"our own", "nft 'add table ip liqo; add chain ip liqo forward { type filter hook forward priority -5; policy drop; }'", ""},
		{"allowed in another table", dropped + "nft 'add table inet f; add chain inet f c { type filter hook forward priority 0; }; add rule inet f c iifname liqo0 accept'", "ip filter FORWARD"},
	} {
		f := rulesOf(t, tc.script)
		var got []string
		for _, c := range f.Forwards("liqo0", pods) {
			got = append(got, c.Family+" "+c.Table+" "+c.Chain)
			if !slices.Contains(f.Rules, c.Rule) {
				t.Errorf("%s: the rule %q is none", tc.name, c.Rule)
			}
		}
		if strings.Join(got, ", ") != tc.want {
			t.Errorf("%s: %q, want %q, of\n%s", tc.name, got, tc.want, strings.Join(f.Rules, "\n"))
		}
	}
	saved := Firewall{Rules: []string{"*filter", ":INPUT ACCEPT [0:0]", ":FORWARD DROP [0:0]"}}
	if got := saved.Forwards("liqo0", pods); len(got) != 1 || got[0].Chain != "FORWARD" {
		t.Errorf("of iptables-save: %+v", got)
	}
	saved.Rules = append(saved.Rules, "-A FORWARD -i liqo0 -j ACCEPT")
	if got := saved.Forwards("liqo0", pods); len(got) != 0 {
		t.Errorf("of iptables-save, allowed: %+v", got)
	}
}

// TestMasquerades: only a rule that is about every packet is found.
func TestMasquerades(t *testing.T) {
	const chain = "nft 'add table ip n; add chain ip n postrouting { type nat hook postrouting priority 100; }; add rule ip n postrouting "
	for rule, want := range map[string]int{"masquerade": 1, "counter masquerade": 1, `oifname "eth0" masquerade`: 0, "ip saddr 10.0.0.0/8 masquerade": 0} {
		f := rulesOf(t, chain+rule+"'")
		if got := f.Masquerades(); len(got) != want {
			t.Errorf("%s: %q, want %d, of\n%s", rule, got, want, strings.Join(f.Rules, "\n"))
		}
	}
	if got := rulesOf(t, "iptables-nft -t nat -A POSTROUTING -s 10.42.0.0/16 -j MASQUERADE\niptables-nft -t nat -A POSTROUTING -j MASQUERADE").Masquerades(); len(got) != 1 {
		t.Errorf("of iptables: %q", got)
	}
}
