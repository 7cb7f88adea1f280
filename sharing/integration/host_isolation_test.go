package integration

import (
	"fmt"
	"log/slog"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/sharing/host"
	"liqo.io/agent/sharing/spec"
)

// testIsolation has a consumer try, past the endpoint's own checks, what it should not
// be able to do.
func testIsolation(t *testing.T, k *bed.Kube) {
	root, barn, cellar := admin(t, k), consumer(2), consumer(3)
	r := startHost(t, k)
	r.Set(tenancy(barn, smallOffer()))
	r.Set(tenancy(cellar, smallOffer()))
	mine, other := r.namespace(t, barn, "mine"), r.namespace(t, cellar, "other")
	asked := object{"cpu": "10m", "memory": "1Mi"}
	secret := func(name string) object {
		return object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": name}, "stringData": object{"a": "b"}}
	}
	must(t, root.Create(t.Context(), namespaces+other+"/pods", hostPod(other, "theirs", asked), nil))
	must(t, root.Create(t.Context(), namespaces+other+"/secrets", secret("theirs"), nil))
	must(t, root.Create(t.Context(), namespaces+"default/secrets", secret("ours"), nil))

	me := asConsumer(t, k, barn)
	here, there := namespaces+mine, namespaces+other
	get := func(path string) func() error {
		return func() error { return me.Get(t.Context(), path, nil) }
	}
	create := func(path string, o object) func() error {
		return func() error { return me.Create(t.Context(), path, o, nil) }
	}
	update := func(path string, o object) func() error {
		return func() error { return me.Update(t.Context(), path, o, nil) }
	}
	patch := func(path, text string) func() error {
		return func() error { return me.Patch(t.Context(), path, "", types.MergePatchType, []byte(text), nil) }
	}
	remove := func(path string) func() error {
		return func() error { return me.Delete(t.Context(), path, metav1.DeleteOptions{}) }
	}

	// What it may do.
	for name, do := range map[string]func() error{
		"create a pod":       create(here+"/pods", hostPod(mine, "web", asked)),
		"create a secret":    create(here+"/secrets", secret("web")),
		"create a configmap": create(here+"/configmaps", object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "web"}}),
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, do := range map[string]func() error{
		"get a pod": get(here + "/pods/web"), "list pods": get(here + "/pods"), "label a pod": patch(here+"/pods/web", `{"metadata":{"labels":{"a":"b"}}}`),
		"list events": get(here + "/events"), "list secrets": get(here + "/secrets"), "delete a secret": remove(here + "/secrets/web"),
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// There is no container to speak to, but nobody forbids it.
	for _, path := range []string{"/pods/web/log", "/pods/web/exec", "/pods/web/portforward"} {
		if err := get(here + path)(); apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", path, err)
		}
	}

	binding := object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": object{"name": "more"},
		"subjects": []any{object{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": api.PeerUsers{Namespace: "liqo"}.Name(string(barn))}},
		"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
	}
	clusterBinding := object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": object{"name": "more"},
		"subjects": binding["subjects"], "roleRef": binding["roleRef"],
	}
	openPolicy := object{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": object{"name": "more"},
		"spec": object{"podSelector": object{}, "egress": []any{object{}}, "ingress": []any{object{}}},
	}
	token := object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": object{}}
	binds := object{"apiVersion": "v1", "kind": "Binding", "metadata": object{"name": "web"}, "target": object{"kind": "Node", "name": hostNode}}
	forbidden := map[string]func() error{
		"another's pod":                   get(there + "/pods/theirs"),
		"another's pods":                  get(there + "/pods"),
		"pods of all":                     get("/api/v1/pods"),
		"configmaps of all":               get("/api/v1/configmaps"),
		"secrets of all":                  get("/api/v1/secrets"),
		"another's secret":                get(there + "/secrets/theirs"),
		"another's secrets":               get(there + "/secrets"),
		"another's configmaps":            get(there + "/configmaps"),
		"another's events":                get(there + "/events"),
		"another's log":                   get(there + "/pods/theirs/log"),
		"exec elsewhere":                  create(there+"/pods/theirs/exec", nil),
		"port-forward elsewhere":          create(there+"/pods/theirs/portforward", nil),
		"a pod elsewhere":                 create(there+"/pods", hostPod(other, "mine", asked)),
		"a pod in default":                create(namespaces+"default/pods", hostPod("default", "mine", asked)),
		"a pod in kube-system":            create(namespaces+"kube-system/pods", hostPod("kube-system", "mine", asked)),
		"a label elsewhere":               patch(there+"/pods/theirs", `{"metadata":{"labels":{"a":"b"}}}`),
		"delete elsewhere":                remove(there + "/pods/theirs"),
		"the provider's secret":           get(namespaces + "default/secrets/ours"),
		"nodes":                           get("/api/v1/nodes"),
		"namespaces":                      get("/api/v1/namespaces"),
		"its own namespace":               get(here),
		"label its namespace":             patch(here, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`),
		"delete its namespace":            remove(here),
		"finalize its namespace":          update(here+"/finalize", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": mine}}),
		"a namespace":                     create("/api/v1/namespaces", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "mine"}}),
		"quota":                           get(here + "/resourcequotas/" + host.QuotaName),
		"raise its quota":                 patch(here+"/resourcequotas/"+host.QuotaName, `{"spec":{"hard":{"pods":"1000"}}}`),
		"delete its quota":                remove(here + "/resourcequotas/" + host.QuotaName),
		"its network policy":              get(networking + mine + "/networkpolicies/" + host.PolicyName),
		"loosen its network policy":       patch(networking+mine+"/networkpolicies/"+host.PolicyName, `{"spec":{"egress":[{}]}}`),
		"delete its network policy":       remove(networking + mine + "/networkpolicies/" + host.PolicyName),
		"another network policy":          create(networking+mine+"/networkpolicies", openPolicy),
		"quota status":                    patch(here+"/resourcequotas/"+host.QuotaName+"/status", `{"status":{"used":{"pods":"0"}}}`),
		"extend its role":                 patch(rbac+mine+"/roles/"+host.RoleName, `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`),
		"a role":                          create(rbac+mine+"/roles", object{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": object{"name": "more"}, "rules": []any{}}),
		"a role binding":                  create(rbac+mine+"/rolebindings", binding),
		"its role binding":                patch(rbac+mine+"/rolebindings/"+host.RoleName, `{"subjects":[]}`),
		"delete its role binding":         remove(rbac + mine + "/rolebindings/" + host.RoleName),
		"a role binding elsewhere":        create(rbac+"kube-system/rolebindings", binding),
		"a cluster role binding":          create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", clusterBinding),
		"cluster roles":                   get("/apis/rbac.authorization.k8s.io/v1/clusterroles"),
		"service accounts":                get(here + "/serviceaccounts"),
		"a service account":               create(here+"/serviceaccounts", object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": "mine"}}),
		"a token":                         create(here+"/serviceaccounts/default/token", token),
		"a token of the provider":         create(namespaces+"kube-system/serviceaccounts/namespace-controller/token", token),
		"ephemeral containers elsewhere":  patch(there+"/pods/theirs/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"a","image":"a"}]}}`),
		"replace ephemeral containers":    update(here+"/pods/web/ephemeralcontainers", hostPod(mine, "web", asked)),
		"a pod's status":                  patch(here+"/pods/web/status", `{"status":{"phase":"Succeeded"}}`),
		"resize":                          patch(here+"/pods/web/resize", `{"spec":{}}`),
		"eviction":                        create(here+"/pods/web/eviction", object{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": object{"name": "web"}}),
		"binding":                         create(here+"/pods/web/binding", binds),
		"the pod proxy":                   get(here + "/pods/web/proxy/"),
		"the node proxy":                  get("/api/v1/nodes/" + hostNode + "/proxy/"),
		"replace a pod":                   update(here+"/pods/web", hostPod(mine, "web", asked)),
		"services":                        create(here+"/services", object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": "web"}, "spec": object{"type": "NodePort", "ports": []any{object{"port": 80}}}}),
		"claims":                          create(here+"/persistentvolumeclaims", object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": object{"name": "web"}}),
		"volumes":                         get("/api/v1/persistentvolumes"),
		"deployments":                     create("/apis/apps/v1/namespaces/"+mine+"/deployments", object{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": "web"}}),
		"a certificate":                   create("/apis/certificates.k8s.io/v1/certificatesigningrequests", object{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": object{"name": "mine"}}),
		"a webhook":                       get("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"),
		"custom resource definitions":     get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
		"an event":                        create(here+"/events", object{"apiVersion": "v1", "kind": "Event", "metadata": object{"name": "mine"}}),
		"somebody's rights":               create("/apis/authorization.k8s.io/v1/subjectaccessreviews", object{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": object{"user": "x"}}),
		"a token's owner":                 create("/apis/authentication.k8s.io/v1/tokenreviews", object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": object{"token": "x"}}),
		"metrics":                         get("/metrics"),
		"the configuration of the server": get("/configz"),
	}
	for name, do := range forbidden {
		if err := do(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want that it is forbidden", name, orNil(err))
		}
	}
	// Whom it may act for, as the API server sees it.
	for _, what := range []object{
		{"verb": "impersonate", "resource": "users"}, {"verb": "impersonate", "resource": "groups"}, {"verb": "impersonate", "resource": "serviceaccounts", "namespace": mine},
		{"verb": "escalate", "group": "rbac.authorization.k8s.io", "resource": "roles", "namespace": mine}, {"verb": "bind", "group": "rbac.authorization.k8s.io", "resource": "roles", "namespace": mine},
		{"verb": "deletecollection", "resource": "pods", "namespace": mine}, {"verb": "update", "resource": "pods", "namespace": mine},
	} {
		review := object{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": object{
			"user": api.PeerUsers{Namespace: "liqo"}.Name(string(barn)), "groups": []string{api.PeerGroup}, "resourceAttributes": what,
		}}
		var answer object
		must(t, root.Create(t.Context(), "/apis/authorization.k8s.io/v1/subjectaccessreviews", review, &answer))
		if pick(answer, "status", "allowed") != false {
			t.Errorf("it may %v", what)
		}
	}
	// Through the front door it gets no further.
	for _, namespace := range []string{other, "default", "kube-system", "", "../" + other, mine + "/../" + other} {
		if _, _, err := r.Pod(t.Context(), barn, namespace, marshal(t, hostPod(namespace, "mine", asked))); refusedWith(err, host.ReasonNotYours) != nil {
			t.Errorf("a pod in %q: %v", namespace, err)
		}
		if _, err := r.Object(barn, namespace, "secrets", "mine", marshal(t, secret("mine"))); refusedWith(err, host.ReasonNotYours) != nil {
			t.Errorf("a secret in %q: %v", namespace, err)
		}
		if _, _, err := r.PodPatch(barn, namespace, "theirs", []byte(`{}`)); refusedWith(err, host.ReasonNotYours) != nil {
			t.Errorf("a patch in %q: %v", namespace, err)
		}
	}
	for _, o := range [][2]string{{"configmaps", "kube-root-ca.crt"}, {"serviceaccounts", "default"}, {"pods", "web"}} {
		if _, err := r.Object(barn, mine, o[0], o[1], []byte(`{}`)); refusedWith(err, host.ReasonBadName) != nil {
			t.Errorf("%v: %v", o, err)
		}
	}
	r.Set(spec.Tenant{ID: barn})
	r.Set(spec.Tenant{ID: cellar})
	bedtest.Within(t, "everything is gone", func() error {
		if here, there := r.Stands(barn).Namespaces, r.Stands(cellar).Namespaces; here+there > 0 {
			return fmt.Errorf("%d and %d namespaces are here", here, there)
		}
		return nil
	})
	if troubles := r.log.Lines(slog.LevelWarn); len(troubles) > 0 {
		t.Errorf("logged: %q", troubles)
	}
}
