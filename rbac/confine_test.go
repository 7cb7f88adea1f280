package rbac

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"liqo.io/agent/internal/generated"
)

// free is what the agent writes without being asked about it by the policy, with the
// reason why that makes nobody an administrator.
var free = map[string]string{
	"clusterconfigs.config.liqo.io":                           "its own kind, and no more than its configuration",
	"clusterconfigs.config.liqo.io/status":                    "its own kind",
	"searchdomains.discovery.liqo.io/status":                  "its own kind",
	"foreignclusters.discovery.liqo.io":                       "its own kind",
	"foreignclusters.discovery.liqo.io/status":                "its own kind",
	"peeringrequests.discovery.liqo.io":                       "its own kind",
	"peeringrequests.discovery.liqo.io/status":                "its own kind",
	"advertisements.sharing.liqo.io":                          "its own kind",
	"advertisements.sharing.liqo.io/status":                   "its own kind",
	"events":                                                  "they tell something",
	"pods/eviction":                                           "it ends a pod, as deleting one does",
	"leases.coordination.k8s.io":                              "they keep a node alive, or not",
	"certificatesigningrequests.certificates.k8s.io/approval": "for one signer, by the rule about signers",
	"signers.certificates.k8s.io":                             "not written",
	"tokenreviews.authentication.k8s.io":                      "not stored",
	"subjectaccessreviews.authorization.k8s.io":               "not stored",
	"serviceaccounts":                                         "not written, and acted as in the agent's namespace alone",
	"groups":                                                  "not written",
	"foreignclusters.core.liqo.io":                            "Liqo shows something in them, and writes it again",
}

// Whatever a rule lets the agent write, the policy is asked about, or there is a reason
// why not.
func TestConfinementIsComplete(t *testing.T) {
	operation := map[string]string{"create": "CREATE", "update": "UPDATE", "patch": "UPDATE"}
	for _, need := range needs(append(Rules(DefaultNamespace), LiqoRules()...)) {
		wanted := operation[need.Verb]
		switch {
		case need.Verb == "delete", need.Verb == "get", need.Verb == "list", need.Verb == "watch":
			continue // what is deleted is no way up; the policy is asked about some of it
		case strings.HasPrefix(need.Resource, "pods/") && need.Verb == "create" && need.Resource != "pods/eviction":
			wanted = "CONNECT"
		}
		what := strings.TrimPrefix(Gap{Rule: Rule{Group: need.Rule.Group}, Resource: need.Resource}.String(), " ")
		asked := slices.ContainsFunc(confinement, func(c confined) bool {
			return c.group == need.Rule.Group && slices.Contains(c.resources, need.Resource) && slices.Contains(c.operations, wanted)
		})
		_, excused := free[what]
		if asked == excused {
			t.Errorf("%s: the policy is asked: %t, and there is a reason why not: %t", need, asked, excused)
		}
	}
}

// The policy is about the agent and its peers in every place where it names somebody.
func TestConfinementNamesTheAgent(t *testing.T) {
	text := fmt.Sprint(Confinement("edge"))
	if !strings.Contains(text, ServiceAccount("edge")) || !strings.Contains(text, "system:serviceaccount:edge:liqo-peer-") || strings.Contains(text, ":liqo:") {
		t.Error(text)
	}
}

// The documentation shows the policy as it is; -update writes it there.
func TestPolicyDocumented(t *testing.T) {
	generated.Section(t, "../docs/security.md", "<!-- rbac.Confinement; go test ./rbac -update -->\n```yaml\n", "```\n", string(PolicyText()))
}
