package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

// tokenManifests are an account that may read pods of its namespace and keep a Lease, and pods with it: one at home, and one at
// a provider, where there is one of another namespace, too.
func tokenManifests(home, away string) string {
	pod := func(namespace, name, node, account string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: " + namespace + "}\nspec:\n      serviceAccountName: " + account +
			"\n      nodeSelector: {kubernetes.io/hostname: " + node + "}" + shopPod + "---\n"
	}
	return `apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: robot, namespace: shop}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: robot, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: robot}
subjects: [{kind: ServiceAccount, name: robot, namespace: shop}]
---
` + pod("shop", "home", home, "robot") + pod("shop", "away", away, "robot") + pod("plain", "quiet", away, "default") + pod("kube-system", "system", away, "default")
}

// tokens: a pod at a provider reaches the API server of its own cluster, with a token of its own account, if its namespace
// says so. The token opens nothing at the provider, and ends with the pod.
func (p *pair) tokens(t *testing.T) {
	a, b := p.a, p.b
	a.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {liqo.io/enabled: \"true\", liqo.io/tokens: \"true\"}}\n---\n" +
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: plain, labels: {liqo.io/enabled: \"true\"}}\n")
	a.shell("kubectl label namespace kube-system liqo.io/enabled=true liqo.io/tokens=true")
	a.tolerates("plain", "kube-system")
	for _, namespace := range []string{"shop", "plain", "kube-system"} {
		a.eventually("namespace "+namespace+" has its service account", func() error {
			_, found, err := get[corev1.ServiceAccount](a, "/api/v1/namespaces/"+namespace+"/serviceaccounts/default")
			if err == nil && !found {
				err = errors.New("not yet")
			}
			return err
		})
	}
	a.apply(tokenManifests(a.host.Name, b.asNode()))
	for _, pod := range []string{"home", "away"} {
		a.awaitAddress(pod)
	}
	for _, path := range []string{"plain/pods/quiet", "kube-system/pods/system"} {
		a.eventually(path+" runs", func() error {
			pod, _, err := get[corev1.Pod](a, "/api/v1/namespaces/"+path)
			if err == nil && !podReady(pod) {
				err = fmt.Errorf("it is %s: %+v", pod.Status.Phase, pod.Status.Conditions)
			}
			return err
		})
	}
	run := func(namespace, pod, command string) (string, error) {
		return a.tryShell("kubectl exec -n " + namespace + " " + pod + " -- " + command)
	}
	// As a controller does, at home and next door.
	for i, pod := range []string{"home", "away"} {
		lease := fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"lead-%s"},"spec":{"holderIdentity":"%s","leaseTransitions":0}}`, pod, pod)
		a.eventually(pod+" reads the pods of its namespace", func() error {
			out, err := run("shop", pod, "shop api GET /api/v1/namespaces/shop/pods")
			if err == nil && !(strings.Contains(out, `"name":"home"`) && strings.Contains(out, `"nodeName":"`+b.asNode()+`"`)) {
				err = errors.New(out)
			}
			return err
		})
		const leases = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"
		for _, command := range []string{"POST " + leases + " '" + lease + "'", "PATCH " + leases + "/lead-" + pod + ` '{"spec":{"leaseTransitions":7}}'`} {
			a.eventually(pod+" writes its Lease", func() error {
				out, err := run("shop", pod, "shop api "+command)
				if strings.Contains(out, "409 Conflict") { // it was made, and the answer was late
					err = nil
				}
				if err != nil {
					err = fmt.Errorf("%s: %s", command, out)
				}
				return err
			})
		}
		if l, _, err := get[coordinationv1.Lease](a, leases+"/lead-"+pod); err != nil || l.Spec.LeaseTransitions == nil || *l.Spec.LeaseTransitions != 7 || *l.Spec.HolderIdentity != pod {
			t.Errorf("%d: %v %+v", i, err, l.Spec)
		}
		out, err := run("shop", pod, "shop api GET /api/v1/namespaces/kube-system/secrets")
		if err == nil || !strings.Contains(out, "403 Forbidden") || !strings.Contains(out, "system:serviceaccount:shop:robot") {
			t.Errorf("%s: %v: %s", pod, err, out)
		}
		out, err = run("shop", pod, "cat /var/run/secrets/kubernetes.io/serviceaccount/namespace")
		if err != nil || !strings.HasSuffix(out, "shop") {
			t.Errorf("%s: %v: %s", pod, err, out)
		}
	}

	// The token is one of A's, and opens nothing at B.
	token, err := run("shop", "away", "cat /var/run/secrets/kubernetes.io/serviceaccount/token")
	if err != nil {
		t.Fatal(err, token)
	}
	uses := func(x *box, at *box) (string, error) {
		return x.tryShell(fmt.Sprintf("kubectl --kubeconfig=/dev/null --server=https://%s:6443 --insecure-skip-tls-verify --token=%s get pods -n shop", at.addr, token))
	}
	if out, err := uses(a, a); err != nil || !strings.Contains(out, "away") {
		t.Errorf("A's API server does not take the token: %v: %s", err, out)
	}
	if out, err := uses(b, b); err == nil || !strings.Contains(out, "Unauthorized") && !strings.Contains(out, "must be logged in") {
		t.Errorf("B's API server says %v: %s", err, out)
	}

	// Where the API server of A is for its pods at B, nothing else is, and nobody else's.
	var at string
	a.eventually("a pod at B finds the API server of A", func() error {
		looked, err := run("shop", "away", "shop look kubernetes.default.svc kubernetes.default kubernetes.default.svc.cluster.local")
		_, at, _ = strings.Cut(strings.SplitN(looked, "\n", 2)[0], "\t")
		if err == nil && (!strings.HasPrefix(at, "241.") || strings.Count(looked, "\t"+at) != 3) {
			err = errors.New(looked)
		}
		return err
	})
	for _, pod := range []string{"plain/quiet", "kube-system/system"} {
		namespace, name, _ := strings.Cut(pod, "/")
		a.eventually(pod+" finds no API server", func() error {
			out, err := run(namespace, name, "shop look kubernetes.default.svc")
			if strings.Contains(out, at) {
				t.Errorf("%s is told of the API server of A: %s", pod, out)
			}
			if err == nil && !strings.Contains(out, "none") {
				err = errors.New(out)
			}
			return err
		})
		if out, err := run(namespace, name, "ls /var/run/secrets/kubernetes.io/serviceaccount"); err == nil {
			t.Errorf("%s has %s", pod, out)
		}
		if out, err := run(namespace, name, "nc -w 2 "+at+" 443 </dev/null"); err == nil {
			t.Errorf("%s reaches the API server of A: %s", pod, out)
		}
	}
	for _, port := range []int{6443, 6444, 6447, 10250} {
		if out, err := run("shop", "away", fmt.Sprintf("nc -w 2 %s %d </dev/null", at, port)); err == nil {
			t.Errorf("port %d of A's host is open: %s", port, out)
		}
	}
	if out, err := b.tryShell("nc -w 2 " + at + " 443 </dev/null"); err == nil {
		t.Errorf("B's host reaches the API server of A: %s", out)
	}
	for namespace, want := range map[string]string{"plain": "label the namespace liqo.io/tokens=true", "kube-system": "never leave this cluster"} {
		a.eventually("an event in "+namespace+" says that there is no token", func() error {
			events, err := list[corev1.Event](a, "/api/v1/namespaces/"+namespace+"/events")
			if err == nil && !slices.ContainsFunc(events, func(e corev1.Event) bool {
				return e.Reason == workload.ReasonNoToken && strings.Contains(e.Message, want)
			}) {
				err = fmt.Errorf("there are %d others", len(events))
			}
			return err
		})
	}

	// What is at B of it: a Secret, of shop alone.
	guests := workload.Namespace("liqo", peer.ClusterID(p.aID), "shop")
	secrets := func(namespace string) (out []corev1.Secret) {
		t.Helper()
		found, err := list[corev1.Secret](b, "/api/v1/namespaces/"+workload.Namespace("liqo", peer.ClusterID(p.aID), namespace)+"/secrets")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range found {
			if workload.IsTokenSecret(&s) {
				out = append(out, s)
			}
		}
		return out
	}
	if n := len(secrets("plain")) + len(secrets("kube-system")); n > 0 {
		t.Errorf("%d Secrets with tokens that must not be there", n)
	}
	first := secrets("shop")
	if len(first) != 1 || string(first[0].Data["token-0"]) != token {
		t.Fatalf("%d Secrets with tokens", len(first))
	}
	// A restart changes nothing. What is deleted there meanwhile is made anew, and reaches the pod.
	if err := a.agent.Kill(); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.eventually("the agent knows of the pod", func() error {
		used, err := a.asks.Network(t.Context())
		if err == nil && (len(used.Peers) == 0 || used.Peers[0].State != "Connected") {
			err = fmt.Errorf("%+v", used.Peers)
		}
		return err
	})
	a.eventually("away reads pods again", func() error {
		out, err := run("shop", "away", "shop api GET /api/v1/namespaces/shop/pods")
		if err != nil {
			err = errors.New(out)
		}
		return err
	})
	if again := secrets("shop"); len(again) != 1 || again[0].ResourceVersion != first[0].ResourceVersion {
		t.Errorf("after a restart there are %d Secrets", len(again))
	}
	if err := a.agent.Kill(); err != nil {
		t.Fatal(err)
	}
	b.shell("kubectl delete secret -n " + guests + " " + first[0].Name)
	a.start()
	var second string
	b.eventually("the Secret is there again", func() error {
		found := secrets("shop")
		if len(found) != 1 || found[0].UID == first[0].UID {
			return errors.New("it is not")
		}
		if second = string(found[0].Data["token-0"]); second == "" {
			return errors.New("it is empty") // as an endpoint makes it, before it applies what was sent
		}
		return nil
	})
	if second == token {
		t.Error("it has the first token again")
	}

	// Without the label, all of it is taken back, and the path with it.
	a.shell("kubectl label namespace shop liqo.io/tokens-")
	b.eventually("the Secret is gone", func() error {
		if n := len(secrets("shop")); n > 0 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	a.eventually("away does not reach the API server", func() error {
		if out, err := run("shop", "away", "nc -w 2 "+at+" 443 </dev/null"); err == nil {
			return errors.New("it does: " + out)
		}
		return nil
	})
	// The token ends with the pod.
	if out, err := uses(a, a); err != nil {
		t.Errorf("the token has ended before the pod: %v: %s", err, out)
	}
	a.shell("kubectl delete pod -n shop away --wait=true")
	a.eventually("the token is refused at home", func() error {
		if out, err := uses(a, a); err == nil {
			return errors.New("it is not: " + out)
		}
		return nil
	})

	a.shell("kubectl label namespace kube-system liqo.io/enabled- liqo.io/tokens- && kubectl delete pod -n kube-system system --wait=false && kubectl delete pod -n shop home && kubectl delete namespace plain --wait=false")
	b.eventually("no pods of A are left", func() error {
		pods, err := b.guests(p.aID)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("there are %d", len(pods))
		}
		return err
	})
}
