//go:build linux

package integration

import (
	"fmt"
	"maps"

	"liqo.io/agent/internal/attack"
	"liqo.io/agent/kube"
)

// forTokens tries the right to ask for tokens of service accounts: it is for pods of namespaces that say so, and no way to those
// of others.
func (f *thief) forTokens() {
	f.Helper()
	ctx := f.Context()
	must := func(err error) {
		f.Helper()
		if err != nil {
			f.Fatal(err)
		}
	}
	labels := object{"liqo.io/enabled": "true", "liqo.io/tokens": "true"}
	for name, has := range map[string]object{"tokens": labels, "half": {"liqo.io/tokens": "true"}, "plain": {"liqo.io/enabled": "true"}} {
		must(f.admin.Create(ctx, core+"/namespaces", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name, "labels": has}}, nil))
	}
	for _, name := range []string{"kube-system", "liqo", home} {
		must(f.admin.Patch(ctx, core+"/namespaces/"+name, "", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"liqo.io/enabled":"true","liqo.io/tokens":"true"}}}`), nil))
	}
	uids := make(map[string]any)
	for _, namespace := range []string{"tokens", "half", "plain", "kube-system", "liqo", home} {
		in := core + "/namespaces/" + namespace
		for _, account := range []string{"robot", "other"} {
			must(f.admin.Create(ctx, in+"/serviceaccounts", made("v1", "ServiceAccount", account, "secrets", []any{}), nil))
		}
		must(f.admin.Create(ctx, in+"/pods", pod("robot", object{"serviceAccountName": "robot"}), nil))
		uids[namespace] = f.read(in + "/pods/robot")["metadata"].(object)["uid"]
	}
	ask := func(c *kube.Client, namespace, account string, more object) error {
		spec := object{"expirationSeconds": 3600, "boundObjectRef": object{"kind": "Pod", "apiVersion": "v1", "name": "robot", "uid": uids[namespace]}}
		maps.Copy(spec, more)
		return c.Create(ctx, core+"/namespaces/"+namespace+"/serviceaccounts/"+account+"/token", object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}, nil)
	}
	bound := func(ref any) object { return object{"boundObjectRef": ref} }
	must(ask(f.self, "tokens", "robot", nil))
	must(ask(f.self, "tokens", "robot", object{"audiences": []any{"vault"}, "expirationSeconds": 86400}))
	for _, a := range []struct {
		what, want string
		err        error
	}{
		{"that is bound to nothing", forbidden, ask(f.self, "tokens", "robot", bound(nil))},
		{"that is bound to a Secret", forbidden, ask(f.self, "tokens", "robot", bound(object{"kind": "Secret", "apiVersion": "v1", "name": "robot", "uid": "u"}))},
		{"that is bound to any pod of a name", forbidden, ask(f.self, "tokens", "robot", bound(object{"kind": "Pod", "apiVersion": "v1", "name": "robot"}))},
		{"of another account than the pod's", "400 Bad Request", ask(f.self, "tokens", "other", nil)},
		{"for a pod that is gone", "409 Conflict", ask(f.self, "tokens", "robot", bound(object{"kind": "Pod", "apiVersion": "v1", "name": "robot", "uid": "gone"}))},
		{"for a year", forbidden, ask(f.self, "tokens", "robot", object{"expirationSeconds": 31536000})},
		{"that a peer is known by, of which there is none", "404 Not Found", ask(f.self, "liqo", "liqo-peer-mill", nil)},
		{"of the agent itself", forbidden, ask(f.self, "liqo", "liqo-agent", nil)},
		{"in a namespace without the label", forbidden, ask(f.self, "plain", "robot", nil)},
		{"in a namespace that is not enabled", forbidden, ask(f.self, "half", "robot", nil)},
		{"of an account of kube-system, although it has the label", forbidden, ask(f.self, "kube-system", "robot", nil)},
		{"of an account in its own namespace, although it has the label", forbidden, ask(f.self, "liqo", "robot", nil)},
		{"of an account of a guest, although its namespace has the label", forbidden, ask(f.self, home, "robot", nil)},
		{"as a peer, in its own namespace", forbidden, ask(f.peer, home, "robot", nil)},
		{"after giving a namespace the label", forbidden, f.self.Patch(ctx, core+"/namespaces/plain", "", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"liqo.io/tokens":"true"}}}`), nil)},
	} {
		attack.Attempt{What: fmt.Sprintf("the token of a service account %s", a.what), As: "thief of the agent's token", Want: a.want}.Saw(f, what(a.err))
	}
}
