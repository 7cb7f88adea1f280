//go:build linux

package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/rbac"
)

// used is what privileges the agents of all tests have used.
var used usage

// usage counts requests. It may be used by any number of goroutines.
type usage struct {
	mu    sync.Mutex
	count map[request]int
}

// request is one kind of request.
type request struct {
	verb, group, resource, namespace, name string
	impersonated                           bool // a peer's, passed on
}

func (u *usage) add(events []bed.AuditEvent) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count == nil {
		u.count = make(map[request]int)
	}
	for _, event := range events {
		if event.ResponseStatus.Code == http.StatusForbidden {
			continue
		}
		ref := event.ObjectRef
		r := request{verb: event.Verb, group: ref.APIGroup, resource: ref.Resource, namespace: ref.Namespace, name: ref.Name, impersonated: event.ImpersonatedUser != nil}
		if ref.Subresource != "" {
			r.resource += "/" + ref.Subresource
		}
		u.count[r]++
		if event.Verb == "patch" && event.ResponseStatus.Code == http.StatusCreated {
			r.verb = "create" // by server-side apply, which is asked for both
			u.count[r]++
		}
	}
}

// of reports whether anybody used a verb of a rule on a resource.
func (u *usage) of(rule rbac.Rule, resource, verb string) bool {
	switch resource {
	case "serviceaccounts", "groups": // each request of a peer uses both
		if verb != "impersonate" {
			break
		}
		return u.any(func(r request) bool { return r.impersonated })
	case "signers": // is asked about when a request is approved
		rule = rbac.Rule{Group: rule.Group}
		resource, verb = "certificatesigningrequests/approval", "update"
	}
	passedOn := slices.Contains(rule.Granted, verb)
	return u.any(func(r request) bool {
		return r.verb == verb && r.group == rule.Group && r.resource == resource && r.impersonated == passedOn &&
			(rule.Namespace == "" || r.namespace == rule.Namespace) &&
			(len(rule.Names) == 0 || slices.Contains(rule.Names, r.name))
	})
}

func (u *usage) any(is func(request) bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for r := range u.count {
		if is(r) {
			return true
		}
	}
	return false
}

// unused are the privileges that no scenario of this package needs for certain, each
// with what needs it.
var unused = map[string]string{
	"get advertisements":             "a peer may ask for its own; today's agents know what they wrote from the answer",
	"get clusterroles":               "looks at one that cannot be put right, before it is replaced (peering/integration.TestAccess)",
	"get clusterrolebindings":        "as above: where it leads cannot be changed",
	"get nodes":                      "somebody else made a node of that name at the same moment",
	"get rolebindings liqo-consumer": "as with bindings for the whole cluster: where it leads cannot be changed",
	"patch pods":                     "a guest changes the image of a pod that runs",
	"get events":                     "guests follow all events of a namespace",
	"get pods/exec":                  "WebSockets are asked for by GET",
	"get pods/attach":                "WebSockets are asked for by GET",
	"get pods/portforward":           "WebSockets are asked for by GET",
	"create pods/attach":             "kubectl attach, which is kubectl exec without a command",
	"get certificatesigningrequests": "looks again when following a request broke off",
	// API servers before Kubernetes 1.34 have no policies that change pods
	// (sharing/integration.TestWebhook).
	"create mutatingwebhookconfigurations":                       "an older API server",
	"list mutatingwebhookconfigurations liqo-agent-offloading":   "an older API server",
	"watch mutatingwebhookconfigurations liqo-agent-offloading":  "an older API server",
	"update mutatingwebhookconfigurations liqo-agent-offloading": "an older API server",
	"delete mutatingwebhookconfigurations liqo-agent-offloading": "an older API server",
}

// complete runs the tests of this package and then, if they were all run and none
// failed, checks that the agent needs every privilege that it has.
type complete struct{ *testing.M }

func (c complete) Run() int {
	code := c.M.Run()
	if code != 0 || !whole() {
		return code
	}
	faults := surplus()
	for _, fault := range faults {
		fmt.Println("rbac.Rules:", fault)
	}
	if len(faults) > 0 {
		fmt.Println("FAIL")
		return 1
	}
	return 0
}

// whole reports whether all tests were asked for.
func whole() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.fuzz"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return !testing.Short()
}

// surplus compares the privileges with what was used.
func surplus() []string {
	var out []string
	known := make(map[string]bool)
	for _, rule := range rbac.Rules(rbac.DefaultNamespace) {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				what := verb + " " + strings.Join(append([]string{resource}, rule.Names...), " ")
				known[what] = true
				// What is excused may be used all the same, when things happen to come that way.
				if _, excused := unused[what]; !excused && !used.of(rule, resource, verb) {
					out = append(out, what+" is used by no test: it is a privilege too many, or there is a test too few")
				}
			}
		}
	}
	for what := range unused {
		if !known[what] {
			out = append(out, what+" is excused, and is no privilege of the agent's")
		}
	}
	return out
}
