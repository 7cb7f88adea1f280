package kube

import "testing"

// TestAllows has rules as RBAC has them, and what they do not allow although it looks alike.
func TestAllows(t *testing.T) {
	list := func(s ...string) []string { return s }
	pods := Granted{Verbs: list("get", "list"), Groups: list(""), Resources: list("pods", "pods/log")}
	one := Granted{Verbs: list("get"), Groups: list(""), Resources: list("secrets"), Names: list("liqo-agent")}
	all := Granted{Verbs: list("*"), Groups: list("*"), Resources: list("*")}
	status := Granted{Verbs: list("patch"), Groups: list("apps"), Resources: list("*/status")}
	for _, tc := range []struct {
		rule Granted
		what Access
		want bool
	}{
		{pods, Access{Verb: "list", Resource: "pods"}, true},
		{pods, Access{Verb: "get", Resource: "pods", Name: "web"}, true},
		{pods, Access{Verb: "get", Resource: "pods", Subresource: "log"}, true},
		{pods, Access{Verb: "get", Resource: "pods", Subresource: "exec"}, false},
		{pods, Access{Verb: "watch", Resource: "pods"}, false},
		{pods, Access{Verb: "list", Group: "metrics.k8s.io", Resource: "pods"}, false},
		{pods, Access{Verb: "*", Resource: "pods"}, false},
		{one, Access{Verb: "get", Resource: "secrets", Name: "liqo-agent"}, true},
		{one, Access{Verb: "get", Resource: "secrets", Name: "other"}, false},
		{one, Access{Verb: "get", Resource: "secrets"}, false},
		{all, Access{Verb: "*", Group: "*", Resource: "*"}, true},
		{all, Access{Verb: "get", Resource: "pods", Subresource: "log"}, true},
		{status, Access{Verb: "patch", Group: "apps", Resource: "deployments", Subresource: "status"}, true},
		{status, Access{Verb: "patch", Group: "apps", Resource: "deployments"}, false},
		{status, Access{Verb: "patch", Group: "apps", Resource: "status"}, false},
		{Granted{}, Access{Verb: "get", Resource: "pods"}, false},
	} {
		if got := tc.rule.Allows(tc.what); got != tc.want {
			t.Errorf("%+v allows %+v: %v", tc.rule, tc.what, got)
		}
	}
}
