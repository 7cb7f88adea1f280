package rbac

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every rule can be written into a role, says why it is there, and is not there twice.
func TestRules(t *testing.T) {
	seen := make(map[string]string)
	var parts []Part
	for _, r := range append(Rules(DefaultNamespace), LiqoRules()...) {
		what := strings.Join(r.Resources, ", ") + " " + strings.Join(r.Verbs, ", ")
		if len(r.Resources) == 0 || len(r.Verbs) == 0 {
			t.Errorf("a rule for nothing: %+v", r)
		}
		if r.Reason == "" || len(r.Reason) > 130 || strings.HasSuffix(r.Reason, ".") || strings.ContainsAny(r.Reason, "\n#") {
			t.Errorf("%s: reason %q", what, r.Reason)
		}
		for _, verb := range r.Granted {
			if !slices.Contains(r.Verbs, verb) {
				t.Errorf("%s: %s is passed on, and not one of the verbs", what, verb)
			}
		}
		for _, text := range slices.Concat([]string{r.Group, r.Namespace}, r.Resources, r.Names, r.Verbs) {
			if strings.ContainsAny(text, "* \n\"'{}[],") {
				t.Errorf("%s: %q", what, text)
			}
		}
		for _, need := range needs([]Rule{r}) {
			key := need.String()
			if other, twice := seen[key]; twice {
				t.Errorf("%s is allowed twice: %q and %q", key, other, r.Reason)
			}
			seen[key] = r.Reason
			if need.Name != "" {
				if other, twice := seen[strings.Replace(key, " "+need.Name, "", 1)]; twice {
					t.Errorf("%s is allowed for all names, too: %q", key, other)
				}
			}
		}
		if len(parts) == 0 || parts[len(parts)-1] != r.Part {
			parts = append(parts, r.Part)
		}
	}
	sorted := slices.Clone(parts)
	slices.Sort(sorted)
	if len(slices.Compact(sorted)) != len(parts) {
		t.Errorf("the rules of a part are not together: %q", parts)
	}
}

// The names of some things are written down here and in the packages that make them.
func TestNames(t *testing.T) {
	for _, name := range []string{"liqo:peers", "foreignclusters.discovery.liqo.io", "liqo-agent-offloading", "liqo-consumer", "liqo-offer"} {
		if !slices.ContainsFunc(Rules(DefaultNamespace), func(r Rule) bool { return slices.Contains(r.Names, name) }) {
			t.Errorf("no rule is about %s", name)
		}
	}
	if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(Name + TokenName + Manager) {
		t.Error("a name is none")
	}
}

func TestGapString(t *testing.T) {
	for want, gap := range map[string]Gap{
		"list secrets": {Verb: "list", Resource: "secrets"},
		"patch leases.coordination.k8s.io in namespace kube-node-lease": {Verb: "patch", Resource: "leases",
			Rule: Rule{Group: "coordination.k8s.io", Namespace: "kube-node-lease"}},
		"patch foreignclusters.discovery.liqo.io/status": {Verb: "patch", Resource: "foreignclusters/status", Rule: Rule{Group: "discovery.liqo.io"}},
		"impersonate groups liqo:peers":                  {Verb: "impersonate", Resource: "groups", Name: "liqo:peers"},
	} {
		if got := gap.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
