//go:build linux

package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/attack"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/rbac"
	"liqo.io/agent/sharing/vnode"
)

const (
	guest = "mill"      // a consumer
	home  = "mill-shop" // a namespace of its own here

	core       = "/api/v1"
	system     = core + "/namespaces/kube-system"
	roles      = "/apis/rbac.authorization.k8s.io/v1"
	admission  = "/apis/admissionregistration.k8s.io/v1"
	requests   = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	forbidden  = "403 Forbidden"
	everything = `{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}`
)

// object is any object of Kubernetes.
type object = map[string]any

// thief has the agent's credential, and knows what the agent knows.
type thief struct {
	*site
	config *rest.Config // the agent's
	self   *kube.Client
	peer   *kube.Client // as the peer called guest
}

// as is a client of the thief's who pretends to be somebody else.
func (f *thief) as(user string, groups ...string) *kube.Client {
	f.Helper()
	config := rest.CopyConfig(f.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return f.client(config)
}

// what is an answer of the API server's.
func what(err error) string {
	if err == nil {
		return "200 OK"
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error()
	}
	code := int(status.Status().Code)
	return fmt.Sprintf("%d %s", code, http.StatusText(code))
}

// made is an object with a name and a part of it.
func made(apiVersion, kind, name, key string, value any) object {
	return object{"apiVersion": apiVersion, "kind": kind, "metadata": object{"name": name}, key: value}
}

func labelled(o object, labels object) object {
	o["metadata"].(object)["labels"] = labels
	return o
}

func pod(name string, spec object) object {
	if spec["containers"] == nil {
		spec["containers"] = []any{object{"name": "a", "image": "a"}}
	}
	return made("v1", "Pod", name, "spec", spec)
}

func role(kind, name string, rules ...any) object {
	return made("rbac.authorization.k8s.io/v1", kind, name, "rules", rules)
}

func rule(group, resource, name, verb string) object {
	out := object{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": []any{verb}}
	if name != "" {
		out["resourceNames"] = []any{name}
	}
	return out
}

func binding(kind, name, roleKind, roleName, user string) object {
	out := made("rbac.authorization.k8s.io/v1", kind, name, "roleRef", object{"apiGroup": "rbac.authorization.k8s.io", "kind": roleKind, "name": roleName})
	out["subjects"] = []any{object{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}}
	return out
}

func webhook(kind, name, url string, rules object, selector object) object {
	return made("admissionregistration.k8s.io/v1", kind, name, "webhooks", []any{object{
		"name": "a.example.com", "clientConfig": object{"url": url}, "rules": []any{rules}, "namespaceSelector": selector,
		"sideEffects": "None", "admissionReviewVersions": []any{"v1"}, "failurePolicy": "Ignore",
	}})
}

func covers(group, resource string) object {
	return object{"apiGroups": []any{group}, "apiVersions": []any{"*"}, "resources": []any{resource}, "operations": []any{"CREATE"}}
}

// namespace is one that stands for a consumer's.
func namespace(name, security string) object {
	return object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name, "labels": object{
		api.LabelManagedBy: api.ManagedByAgent, api.LabelOriginCluster: guest, "pod-security.kubernetes.io/enforce": security,
	}}}
}

func node(name string, taints ...any) object {
	return labelled(made("v1", "Node", name, "spec", object{"providerID": "liqo://" + name, "taints": taints}),
		object{"liqo.io/type": "virtual-node", "liqo.io/cluster-id": name, api.LabelManagedBy: api.ManagedByAgent})
}

func csr(t *testing.T, name, signer string) object {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "eve", Organization: []string{"eves"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return made("certificates.k8s.io/v1", "CertificateSigningRequest", name, "spec", object{
		"request": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), "signerName": signer, "usages": []any{"client auth"},
	})
}

// newThief installs the agent's user and takes its kubeconfig away.
func newThief(t *testing.T) *thief {
	t.Helper()
	s := newSite(t)
	issued := make(chan error, 1)
	go func() { issued <- s.kube.IssueToken(t.Context(), "liqo", rbac.TokenName) }()
	for _, done := range s.must("--apply") {
		if done.Result == rbac.Unsupported {
			t.Errorf("%+v", done)
		}
	}
	if err := <-issued; err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(s.file()))
	if err != nil {
		t.Fatal(err)
	}
	f := &thief{site: s, config: config, self: s.client(rest.CopyConfig(config))}
	f.peer = f.as(api.PeerUsers{Namespace: "liqo"}.Name(guest), api.PeerGroup)
	// An API server goes by a policy about a second after it has it.
	tries := 0
	bedtest.Within(s, "the policy", func() error {
		tries++
		label := fmt.Sprintf(`{"metadata":{"labels":{"try":"%d"}}}`, tries)
		if got := what(f.self.Patch(t.Context(), core+"/namespaces/default", "", types.MergePatchType, []byte(label), nil)); got != forbidden {
			return errors.New(got)
		}
		return nil
	})
	return f
}

// Whoever has the agent's credential, and that alone, cannot become administrator by any
// of the known ways. What the agent does with it goes on, and nobody else is hindered.
func TestAttackWithTheAgentsToken(t *testing.T) {
	f := newThief(t)
	ctx := t.Context()
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	token := object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": object{}}
	peerUser := api.PeerUsers{Namespace: "liqo"}.Name(guest)
	self := rbac.ServiceAccount("liqo")
	taint := object{"key": "virtual-node.liqo.io/not-allowed", "value": "true", "effect": "NoExecute"}
	put := func(c *kube.Client, path string, o object) error { return c.Create(ctx, path, o, nil) }
	apply := func(path string, o object) error { return f.self.Apply(ctx, path, "thief", true, o, nil) }
	patch := func(c *kube.Client, path, text string) error {
		return c.Patch(ctx, path, "", types.MergePatchType, []byte(text), nil)
	}
	remove := func(c *kube.Client, path string) error { return c.Delete(ctx, path, metav1.DeleteOptions{}) }

	// What is there to be won, made by the administrator, whom no policy hinders.
	for _, o := range []struct {
		in   string
		made object
	}{
		{system + "/serviceaccounts", made("v1", "ServiceAccount", "root", "automountServiceAccountToken", true)},
		{roles + "/clusterrolebindings", binding("ClusterRoleBinding", "root", "ClusterRole", "cluster-admin", "system:serviceaccount:kube-system:root")},
		{system + "/pods", pod("victim", object{"serviceAccountName": "root", "hostPID": true, "volumes": []any{object{"name": "root", "hostPath": object{"path": "/"}}}})},
		{system + "/configmaps", made("v1", "ConfigMap", "coredns", "data", object{})},
		{system + "/secrets", made("v1", "Secret", "treasure", "data", object{})},
		{roles + "/namespaces/kube-system/roles", role("Role", "liqo-consumer", rule("", "secrets", "", "get"))},
		{requests, csr(t, "others", "kubernetes.io/kube-apiserver-client")},
	} {
		ok("the administrator: "+o.in, put(f.admin, o.in, o.made))
	}
	ok("the administrator", patch(f.admin, core+"/namespaces/default", `{"metadata":{"labels":{"a":"b"}}}`))

	// The agent goes on with its work.
	ok("a guest's namespace", put(f.self, core+"/namespaces", namespace(home, "baseline")))
	ok("a stricter one", patch(f.self, core+"/namespaces/"+home, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	ok("and back", patch(f.self, core+"/namespaces/"+home, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`))
	lost := core + "/namespaces/liqo-mill-lost"
	ok("another guest's namespace", put(f.self, core+"/namespaces", namespace("liqo-mill-lost", "baseline")))
	ok("the administrator", patch(f.admin, lost, `{"metadata":{"labels":null}}`))
	ok("labels that were lost", apply(lost, namespace("liqo-mill-lost", "baseline")))
	ok("a note on a namespace", patch(f.self, core+"/namespaces/default", `{"metadata":{"annotations":{"offload.liqo.io/mill":"x"}}}`))
	ok("the ID", apply(core+"/namespaces/liqo/configmaps/cluster-id", made("v1", "ConfigMap", "cluster-id", "data", object{"CLUSTER_ID": "x"})))
	ok("a peer's key", apply(core+"/namespaces/liqo/secrets/liqo-peer-mill", made("v1", "Secret", "liqo-peer-mill", "type", "Opaque")))
	ok("and its end", remove(f.self, core+"/namespaces/liqo/secrets/liqo-peer-mill"))
	ok("a quota", apply(core+"/namespaces/"+home+"/resourcequotas/liqo-offer", made("v1", "ResourceQuota", "liqo-offer", "spec", object{"hard": object{"services": "0"}})))
	ok("a guest's network", apply("/apis/networking.k8s.io/v1/namespaces/"+home+"/networkpolicies/liqo-guests",
		made("networking.k8s.io/v1", "NetworkPolicy", "liqo-guests", "spec", object{"podSelector": object{}})))
	ok("a guest's role", apply(roles+"/namespaces/"+home+"/roles/liqo-consumer", role("Role", "liqo-consumer", object{
		"apiGroups": []any{""}, "resources": []any{"pods", "secrets", "configmaps", "services", "persistentvolumeclaims"}, "verbs": []any{"get", "create", "patch", "delete"},
	}, object{"apiGroups": []any{""}, "resources": []any{"pods/ephemeralcontainers"}, "verbs": []any{"patch"}},
		object{"apiGroups": []any{"discovery.k8s.io"}, "resources": []any{"endpointslices"}, "verbs": []any{"get", "list", "watch", "create", "patch", "delete"}},
		object{"apiGroups": []any{"metrics.k8s.io"}, "resources": []any{"pods"}, "verbs": []any{"list"}})))
	ok("a guest's binding", apply(roles+"/namespaces/"+home+"/rolebindings/liqo-consumer", binding("RoleBinding", "liqo-consumer", "Role", "liqo-consumer", peerUser)))
	ok("a peer's role", apply(roles+"/clusterroles/liqo:peer:mill", role("ClusterRole", "liqo:peer:mill", rule(api.GroupVersion.Group, api.PluralPeeringRequests, guest, "get"))))
	ok("a peer's binding", apply(roles+"/clusterrolebindings/liqo:peer:mill", binding("ClusterRoleBinding", "liqo:peer:mill", "ClusterRole", "liqo:peer:mill", peerUser)))
	ok("a virtual node", put(f.self, core+"/nodes", node("mill", taint)))
	ok("its status", patch(f.self, core+"/nodes/mill/status", `{"status":{"nodeInfo":{"kubeletVersion":"v1"}}}`))
	ok("where it says what its pods use", patch(f.self, core+"/nodes/mill", `{"metadata":{"annotations":{"metrics.k8s.io/resource-metrics-path":"/metrics/resource/mill"}}}`))
	ok("a label of it", patch(f.self, core+"/nodes/mill", `{"metadata":{"labels":{"offer.liqo.io/a":"b"}}}`))
	ok("a pod's state", patch(f.self, system+"/pods/victim/status", `{"status":{"reason":"Elsewhere"}}`))
	beside := "https://127.0.0.1:6446/admit"
	enabled := object{"matchLabels": object{"liqo.io/enabled": "true"}}
	ok("its webhook", apply(admission+"/validatingwebhookconfigurations/liqo-agent", webhook("ValidatingWebhookConfiguration", "liqo-agent", beside, covers(api.GroupVersion.Group, "peeringrequests"), object{})))
	ok("that for pods", put(f.self, admission+"/mutatingwebhookconfigurations", webhook("MutatingWebhookConfiguration", vnode.OffloadingName, beside, covers("", "pods"), enabled)))
	ok("a certificate of its own", put(f.self, requests, csr(t, "own", "kubernetes.io/kubelet-serving")))
	bedtest.Within(f, "the guest has its role", func() error {
		return put(f.peer, core+"/namespaces/"+home+"/secrets", made("v1", "Secret", "own", "type", "Opaque"))
	})
	f.serviceAccount(home)
	service := func(name string, spec object) object {
		return labelled(made("v1", "Service", name, "spec", spec), object{api.LabelOriginCluster: guest})
	}
	slice := func(name, address string) object {
		out := labelled(made("discovery.k8s.io/v1", "EndpointSlice", name, "endpoints", []any{object{"addresses": []any{address}}}),
			object{api.LabelOriginCluster: guest, api.LabelSliceManager: api.ManagedByAgent, "kubernetes.io/service-name": "web"})
		out["addressType"] = "IPv4"
		return out
	}
	slices := "/apis/discovery.k8s.io/v1/namespaces/"
	ports := []any{object{"port": 80}}
	ok("a guest's Service", put(f.peer, core+"/namespaces/"+home+"/services", service("web", object{"ports": ports, "selector": object{"app": "web", api.LabelOriginCluster: guest}})))
	ok("a change of it", patch(f.peer, core+"/namespaces/"+home+"/services/web", `{"spec":{"sessionAffinity":"ClientIP"}}`))
	ok("its endpoints", put(f.peer, slices+home+"/endpointslices", slice("web-liqo-4-0", "241.7.4.9")))
	ok("that they are not ready", patch(f.self, slices+home+"/endpointslices/web-liqo-4-0", `{"endpoints":[{"addresses":["241.7.4.9"],"conditions":{"ready":false}}]}`))
	ok("the administrator", put(f.admin, core+"/namespaces/"+home+"/services", made("v1", "Service", "ours", "spec", object{"ports": ports})))
	generated := labelled(slice("web-x7k2b", "10.42.0.9"), object{api.LabelOriginCluster: guest, api.LabelSliceManager: "endpointslice-controller.k8s.io"})
	ok("the API server's controller", put(f.admin, slices+home+"/endpointslices", generated))
	ok("a guest's pod", put(f.peer, core+"/namespaces/"+home+"/pods", pod("web", object{})))
	ok("a guest's ephemeral container", patch(f.peer, core+"/namespaces/"+home+"/pods/web/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"e","image":"e"}]}}`))

	const classes = "/apis/storage.k8s.io/v1/storageclasses"
	claim := func(name string, more object) object {
		spec := object{"storageClassName": "liqo", "accessModes": []any{"ReadWriteOnce"}, "resources": object{"requests": object{"storage": "1Gi"}}}
		maps.Copy(spec, more)
		return made("v1", "PersistentVolumeClaim", name, "spec", spec)
	}
	volume := func(name string, source, affinity object) object {
		out := made("v1", "PersistentVolume", name, "spec", object{
			"capacity": object{"storage": "1Gi"}, "accessModes": []any{"ReadWriteOnce"}, "storageClassName": "liqo", "persistentVolumeReclaimPolicy": "Retain",
			"nodeAffinity": object{"required": object{"nodeSelectorTerms": []any{object{"matchExpressions": []any{affinity}}}}},
		})
		maps.Copy(out["spec"].(object), source)
		out["metadata"].(object)["annotations"] = object{"pv.kubernetes.io/provisioned-by": "storage.liqo.io"}
		out["metadata"].(object)["finalizers"] = []any{"storage.liqo.io/remote"}
		return out
	}
	virtual := object{"key": "liqo.io/type", "operator": "In", "values": []any{"virtual-node"}}
	claims, volumes := core+"/namespaces/default/persistentvolumeclaims", core+"/persistentvolumes"
	local := object{"local": object{"path": "/liqo/mill/data"}}
	ok("its storage class", put(f.self, classes, object{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": object{"name": "liqo"}, "provisioner": "storage.liqo.io", "volumeBindingMode": "WaitForFirstConsumer"}))
	ok("a claim of the class", put(f.admin, claims, claim("data", nil)))
	ok("its note on a claim", patch(f.self, claims+"/data", `{"metadata":{"finalizers":["kubernetes.io/pvc-protection","storage.liqo.io/remote"],"annotations":{"storage.liqo.io/provider":"mill"}}}`))
	ok("and the end of it", patch(f.self, claims+"/data", `{"metadata":{"finalizers":["kubernetes.io/pvc-protection"],"annotations":{"storage.liqo.io/provider":null}}}`))
	ok("a volume on a virtual node", put(f.self, volumes, volume("liqo-data", local, virtual)))
	ok("and the end of its finalizer", patch(f.self, volumes+"/liqo-data", `{"metadata":{"finalizers":["kubernetes.io/pv-protection"]}}`))
	ok("a volume of others", put(f.admin, volumes, made("v1", "PersistentVolume", "others", "spec", object{
		"capacity": object{"storage": "1Gi"}, "accessModes": []any{"ReadWriteOnce"}, "hostPath": object{"path": "/data"}})))
	own := func(o object) object { return labelled(o, object{api.LabelOriginCluster: guest}) }
	// A claim at home, whose volume is handed over by the agent's own steps.
	uid := func(path string) string { return f.read(path)["metadata"].(object)["uid"].(string) }
	behind := func(name, of string, more object) object {
		out := labelled(claim(name, more), object{api.LabelManagedBy: api.ManagedByAgent})
		out["metadata"].(object)["ownerReferences"] = []any{object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "home", "uid": of}}
		return out
	}
	disk := func(name, claim, uid, policy string) object {
		out := made("v1", "PersistentVolume", name, "spec", object{
			"capacity": object{"storage": "1Gi"}, "accessModes": []any{"ReadWriteOnce"}, "storageClassName": "disk", "persistentVolumeReclaimPolicy": policy, "hostPath": object{"path": "/disk/" + name},
			"claimRef": object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": claim, "uid": uid},
		})
		out["metadata"].(object)["annotations"] = object{"pv.kubernetes.io/provisioned-by": "disks.example.com"}
		return out
	}
	ok("a claim at home", put(f.admin, claims, claim("home", nil)))
	atHome := uid(claims + "/home")
	ok("the claim behind it", put(f.self, claims, behind("liqo-"+atHome, atHome, object{"storageClassName": "disk"})))
	ok("its provisioner", put(f.admin, volumes, disk("pvc-home", "liqo-"+atHome, uid(claims+"/liqo-"+atHome), "Delete")))
	ok("its provisioner", put(f.admin, volumes, disk("pvc-fresh", "liqo-"+atHome, "a", "Delete")))
	ok("its provisioner", put(f.admin, volumes, disk("pvc-used", "home", atHome, "Delete")))
	const protect = `{"metadata":{"annotations":{"storage.liqo.io/reclaim-policy":"Delete","storage.liqo.io/claim":"home"}},"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`
	handOver := func(name, uid string) string {
		return `{"spec":{"claimRef":{"name":"` + name + `","uid":"` + uid + `"}}}`
	}
	ok("a volume that is protected", patch(f.self, volumes+"/pvc-home", protect))
	ok("the end of the claim behind", remove(f.self, claims+"/liqo-"+atHome))
	ok("the hand-over", patch(f.self, volumes+"/pvc-home", handOver("home", atHome)))
	const restore = `{"metadata":{"annotations":{"storage.liqo.io/reclaim-policy":null,"storage.liqo.io/claim":null}},"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`
	ok("the former policy", patch(f.self, volumes+"/pvc-home", restore))
	ok("a protected volume", patch(f.self, volumes+"/pvc-fresh", protect))
	ok("a claim at a provider", put(f.admin, claims, claim("grows", nil)))
	ok("the administrator", patch(f.admin, claims+"/grows", `{"spec":{"volumeName":"liqo-`+uid(claims+"/grows")+`"}}`))
	ok("the size of a claim at a provider", patch(f.self, claims+"/grows/status", `{"status":{"capacity":{"storage":"2Gi"}}}`))
	ok("a guest's claim", put(f.peer, core+"/namespaces/"+home+"/persistentvolumeclaims", own(claim("data", nil))))
	ok("a guest's Secret", put(f.peer, core+"/namespaces/"+home+"/secrets", made("v1", "Secret", "left", "type", "Opaque")))
	ok("and its end when the guest is gone", remove(f.self, core+"/namespaces/"+home+"/secrets/left"))
	ok("a guest's other Service", put(f.peer, core+"/namespaces/"+home+"/services", service("left", object{"ports": ports})))
	ok("and its end when the guest is gone", remove(f.self, core+"/namespaces/"+home+"/services/left"))

	attempts := []struct {
		what string
		do   func() error
	}{
		{"act as the controller manager", func() error { return f.as("system:kube-controller-manager").Get(ctx, core+"/secrets", nil) }},
		{"act as the administrator", func() error { return f.as("system:admin", "system:masters").Get(ctx, core+"/secrets", nil) }},
		{"act as a peer in group system:masters", func() error { return f.as(peerUser, "system:masters").Get(ctx, core+"/secrets", nil) }},
		{"act as a service account of kube-system", func() error { return f.as("system:serviceaccount:kube-system:root").Get(ctx, core+"/secrets", nil) }},
		{"act as a node", func() error { return f.as("system:node:box", "system:nodes").Get(ctx, core+"/secrets", nil) }},

		{"bind cluster-admin", func() error {
			return put(f.self, roles+"/clusterrolebindings", binding("ClusterRoleBinding", "eve", "ClusterRole", "cluster-admin", self))
		}},
		{"bind cluster-admin by the name of a peer's binding", func() error {
			return apply(roles+"/clusterrolebindings/liqo:peer:eve", binding("ClusterRoleBinding", "liqo:peer:eve", "ClusterRole", "cluster-admin", self))
		}},
		{"bind a peer's role to itself", func() error {
			return patch(f.self, roles+"/clusterrolebindings/liqo:peer:mill", `{"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"`+self+`"}]}`)
		}},
		{"give away its own rights to a name of its choice", func() error {
			return put(f.self, roles+"/clusterrolebindings", binding("ClusterRoleBinding", "eve", "ClusterRole", "liqo-agent", "eve"))
		}},
		{"write a role with all rights", func() error { return patch(f.self, roles+"/clusterroles/liqo:peer:mill", `{"rules":[`+everything+`]}`) }},
		{"write a role with rights of its own for a peer", func() error {
			return patch(f.self, roles+"/clusterroles/liqo:peer:mill", `{"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}`)
		}},
		{"have a role aggregated", func() error {
			return patch(f.self, roles+"/clusterroles/liqo:peer:mill", `{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}}`)
		}},
		{"widen its own role", func() error { return patch(f.self, roles+"/clusterroles/liqo-agent", `{"rules":[`+everything+`]}`) }},
		{"delete cluster-admin", func() error { return remove(f.self, roles+"/clusterroles/cluster-admin") }},
		{"a role in kube-system", func() error {
			return apply(roles+"/namespaces/kube-system/roles/liqo-consumer", role("Role", "liqo-consumer", rule("", "secrets", "", "get")))
		}},
		{"a role binding in kube-system", func() error {
			return apply(roles+"/namespaces/kube-system/rolebindings/liqo-consumer", binding("RoleBinding", "liqo-consumer", "Role", "liqo-consumer", peerUser))
		}},
		{"a role that lets a guest change its namespace", func() error {
			return patch(f.self, roles+"/namespaces/"+home+"/roles/liqo-consumer", `{"rules":[{"apiGroups":[""],"resources":["namespaces"],"verbs":["patch"]}]}`)
		}},
		{"a role that lets a guest say what pods use", func() error {
			return patch(f.self, roles+"/namespaces/"+home+"/roles/liqo-consumer", `{"rules":[{"apiGroups":["metrics.k8s.io"],"resources":["pods"],"verbs":["create"]}]}`)
		}},
		{"a guest's role for somebody else", func() error {
			return patch(f.self, roles+"/namespaces/"+home+"/rolebindings/liqo-consumer", `{"subjects":[{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"system:authenticated"}]}`)
		}},

		{"a volume with the node's disk", func() error {
			return put(f.self, volumes, volume("eve", object{"hostPath": object{"path": "/"}}, virtual))
		}},
		{"a volume on a node of its choice", func() error {
			return put(f.self, volumes, volume("eve", local, object{"key": "kubernetes.io/hostname", "operator": "Exists"}))
		}},
		{"a local volume with the node's disk", func() error {
			return put(f.self, volumes, volume("eve", object{"local": object{"path": "/"}}, virtual))
		}},
		{"delete a volume of others", func() error { return remove(f.self, volumes+"/others") }},
		{"take a volume of others", func() error {
			return patch(f.self, volumes+"/others", `{"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":"storage.liqo.io"}}}`)
		}},
		{"a storage class of another provisioner", func() error {
			return put(f.self, classes, object{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": object{"name": "eve"}, "provisioner": "eve.example.com/x"})
		}},
		{"protect a volume in use, for a hand-over", func() error { return patch(f.self, volumes+"/pvc-used", protect) }},
		{"hand over a volume in use", func() error { return patch(f.self, volumes+"/pvc-used", handOver("data", uid(claims+"/data"))) }},
		{"hand over a volume to another claim", func() error { return patch(f.self, volumes+"/pvc-fresh", handOver("data", uid(claims+"/data"))) }},
		{"hand over a volume to another name", func() error { return patch(f.self, volumes+"/pvc-fresh", handOver("data", atHome)) }},
		{"hand over a volume to another namespace", func() error {
			return patch(f.self, volumes+"/pvc-fresh", `{"spec":{"claimRef":{"name":"home","uid":"`+atHome+`","namespace":"kube-system"}}}`)
		}},
		{"hand over a volume, and have it deleted", func() error {
			return patch(f.self, volumes+"/pvc-fresh", `{"metadata":{"annotations":{"storage.liqo.io/reclaim-policy":null,"storage.liqo.io/claim":null}},"spec":{"persistentVolumeReclaimPolicy":"Delete","claimRef":{"name":"home","uid":"`+atHome+`"}}}`)
		}},
		{"a protected volume with another policy than before", func() error {
			return patch(f.self, volumes+"/pvc-fresh", `{"metadata":{"annotations":{"storage.liqo.io/reclaim-policy":null,"storage.liqo.io/claim":null}},"spec":{"persistentVolumeReclaimPolicy":"Recycle"}}`)
		}},
		{"another note of the former policy", func() error {
			return patch(f.self, volumes+"/pvc-fresh", `{"metadata":{"annotations":{"storage.liqo.io/reclaim-policy":"Recycle"}}}`)
		}},
		{"the data of a volume in use deleted with its claim", func() error {
			return patch(f.self, volumes+"/others", `{"spec":{"persistentVolumeReclaimPolicy":"Recycle"}}`)
		}},
		{"a hand-over that also changes the size", func() error {
			return patch(f.self, volumes+"/pvc-fresh", `{"spec":{"capacity":{"storage":"9Gi"},"claimRef":{"name":"home","uid":"`+atHome+`"}}}`)
		}},
		{"a hand-over that also changes the node", func() error {
			return patch(f.self, volumes+"/pvc-fresh", `{"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}},"claimRef":{"name":"home","uid":"`+atHome+`"}}}`)
		}},
		{"a hand-over that also changes the provisioner", func() error {
			return patch(f.self, volumes+"/pvc-fresh", `{"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":"storage.liqo.io"}},"spec":{"claimRef":{"name":"home","uid":"`+atHome+`"}}}`)
		}},
		{"delete a volume that is handed over", func() error { return remove(f.self, volumes+"/pvc-fresh") }},
		{"a volume with the node's disk for a claim behind", func() error {
			return put(f.self, volumes, disk("eve", "liqo-"+atHome, atHome, "Delete"))
		}},
		{"a claim of its own", func() error { return put(f.self, claims, claim("eve", object{"storageClassName": "disk"})) }},
		{"a claim behind nothing", func() error { return put(f.self, claims, behind("eve", atHome, nil)) }},
		{"a claim behind another than its name says", func() error {
			return put(f.self, claims, behind("liqo-"+uid(claims+"/data"), atHome, nil))
		}},
		{"a claim behind with a volume of its choice", func() error {
			return put(f.self, claims, behind("liqo-"+atHome, atHome, object{"volumeName": "others"}))
		}},
		{"a claim behind with the data of another", func() error {
			return put(f.self, claims, behind("liqo-"+atHome, atHome, object{"dataSource": object{"kind": "PersistentVolumeClaim", "name": "data"}}))
		}},
		{"a claim behind one of a guest", func() error {
			return put(f.self, core+"/namespaces/"+home+"/persistentvolumeclaims", behind("liqo-"+atHome, atHome, nil))
		}},
		{"the status of a claim that is at no provider", func() error {
			return patch(f.self, claims+"/home/status", `{"status":{"capacity":{"storage":"9Gi"}}}`)
		}},
		{"the phase of a claim at a provider", func() error { return patch(f.self, claims+"/grows/status", `{"status":{"phase":"Lost"}}`) }},
		{"the finalizers of a claim by its status", func() error {
			return patch(f.self, claims+"/grows/status", `{"metadata":{"finalizers":[]},"status":{"capacity":{"storage":"1Gi"}}}`)
		}},
		{"a claim in kube-system", func() error { return put(f.self, system+"/persistentvolumeclaims", claim("eve", nil)) }},
		{"delete a claim", func() error { return remove(f.self, claims+"/data") }},
		{"another volume for a claim", func() error { return patch(f.self, claims+"/data", `{"spec":{"volumeName":"others"}}`) }},
		{"take the finalizer of others from a claim", func() error { return patch(f.self, claims+"/data", `{"metadata":{"finalizers":[]}}`) }},
		{"a guest's claim with the data of another", func() error {
			return put(f.peer, core+"/namespaces/"+home+"/persistentvolumeclaims", own(claim("eve", object{"dataSource": object{"kind": "PersistentVolumeClaim", "name": "data"}})))
		}},
		{"a guest's claim of a volume of its choice", func() error {
			return put(f.peer, core+"/namespaces/"+home+"/persistentvolumeclaims", own(claim("eve", object{"volumeName": "others"})))
		}},
		{"a guest's claim without its label", func() error {
			return put(f.peer, core+"/namespaces/"+home+"/persistentvolumeclaims", claim("eve", nil))
		}},
		{"a pod in kube-system", func() error { return put(f.self, system+"/pods", pod("eve", object{"serviceAccountName": "root"})) }},
		{"a pod with the node's disk", func() error {
			return put(f.self, core+"/namespaces/default/pods", pod("eve", object{"volumes": []any{object{"name": "root", "hostPath": object{"path": "/"}}}}))
		}},
		{"another image for a pod of kube-system", func() error {
			return f.self.Patch(ctx, system+"/pods/victim", "", types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"a","image":"eve"}]}}`), nil)
		}},
		{"exec in a pod of kube-system", func() error { return f.self.Create(ctx, system+"/pods/victim/exec", nil, nil) }},
		{"exec by WebSocket", func() error { return f.self.Get(ctx, system+"/pods/victim/exec", nil) }},
		{"attach to it", func() error { return f.self.Create(ctx, system+"/pods/victim/attach", nil, nil) }},
		{"forward a port to it", func() error { return f.self.Create(ctx, system+"/pods/victim/portforward", nil, nil) }},
		{"an ephemeral container in it", func() error {
			return patch(f.self, system+"/pods/victim/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"e","image":"e"}]}}`)
		}},
		{"an ephemeral container in a guest's pod, as the agent", func() error {
			return patch(f.self, core+"/namespaces/"+home+"/pods/web/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"e","image":"e"},{"name":"f","image":"e"}]}}`)
		}},
		{"a privileged ephemeral container, as a guest", func() error {
			return patch(f.peer, core+"/namespaces/"+home+"/pods/web/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"e","image":"e"},{"name":"f","image":"e","securityContext":{"privileged":true}}]}}`)
		}},
		{"an ephemeral container in a pod of kube-system, as a guest", func() error {
			return patch(f.peer, system+"/pods/victim/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"e","image":"e"}]}}`)
		}},
		{"its own address for a pod of kube-system", func() error {
			return patch(f.self, system+"/pods/victim/status", `{"status":{"podIP":"10.42.0.66","podIPs":[{"ip":"10.42.0.66"}]}}`)
		}},
		{"the labels of a pod of kube-system, by its status", func() error {
			return patch(f.self, system+"/pods/victim/status", `{"metadata":{"labels":{"app":"other"}}}`)
		}},
		{"a finalizer for it, by its status", func() error {
			return patch(f.self, system+"/pods/victim/status", `{"metadata":{"finalizers":["example.com/eve"]}}`)
		}},
		{"a Deployment", func() error { return put(f.self, "/apis/apps/v1/namespaces/kube-system/deployments", object{}) }},
		{"a DaemonSet", func() error { return put(f.self, "/apis/apps/v1/namespaces/kube-system/daemonsets", object{}) }},
		{"a pod with the node's disk, as a guest", func() error {
			return put(f.peer, core+"/namespaces/"+home+"/pods", pod("eve", object{"volumes": []any{object{"name": "root", "hostPath": object{"path": "/"}}}}))
		}},
		{"a pod in kube-system, as a guest", func() error { return put(f.peer, system+"/pods", pod("eve", object{})) }},

		{"a Service in kube-system", func() error { return put(f.self, system+"/services", service("eve", object{"ports": ports})) }},
		{"take over the Service of the API server", func() error {
			return patch(f.self, core+"/namespaces/default/services/kubernetes", `{"spec":{"externalIPs":["192.0.2.66"]}}`)
		}},
		{"delete a Service", func() error { return remove(f.self, core+"/namespaces/default/services/kubernetes") }},
		{"endpoints in kube-system", func() error { return put(f.self, slices+"kube-system/endpointslices", slice("eve", "241.7.4.9")) }},
		{"other endpoints for the API server", func() error {
			return patch(f.self, slices+"default/endpointslices/kubernetes", `{"endpoints":[{"addresses":["192.0.2.66"]}]}`)
		}},
		{"make endpoints for a guest", func() error { return put(f.self, slices+home+"/endpointslices", slice("eve", "241.7.4.9")) }},
		{"have a guest's Service lead to the LAN", func() error {
			return patch(f.self, slices+home+"/endpointslices/web-liqo-4-0", `{"endpoints":[{"addresses":["192.168.1.1"]}]}`)
		}},
		{"have a guest's Service lead to the LAN, as the guest", func() error {
			return put(f.peer, slices+home+"/endpointslices", slice("eve", "192.168.1.1"))
		}},
		{"change the endpoints that Kubernetes found, as the guest", func() error {
			return patch(f.peer, slices+home+"/endpointslices/web-x7k2b", `{"endpoints":[]}`)
		}},
		{"delete them, as the guest", func() error { return remove(f.peer, slices+home+"/endpointslices/web-x7k2b") }},
		{"a Service by an address of its choice, as the guest", func() error {
			return put(f.peer, core+"/namespaces/"+home+"/services", service("eve", object{"ports": ports, "externalIPs": []any{"192.0.2.66"}}))
		}},
		{"a port on the nodes, as the guest", func() error {
			return put(f.peer, core+"/namespaces/"+home+"/services", service("eve", object{"type": "NodePort", "ports": ports}))
		}},
		{"an alias, as the guest", func() error {
			return put(f.peer, core+"/namespaces/"+home+"/services", service("eve", object{"type": "ExternalName", "externalName": "example.com"}))
		}},
		{"a Service in front of pods of others, as the guest", func() error {
			return put(f.peer, core+"/namespaces/"+home+"/services", service("eve", object{"ports": ports, "selector": object{"app": "web"}}))
		}},
		{"an operator's Service, as the guest", func() error {
			return patch(f.peer, core+"/namespaces/"+home+"/services/ours", `{"metadata":{"labels":{"`+api.LabelOriginCluster+`":"mill"}}}`)
		}},
		{"a Service in kube-system, as the guest", func() error { return put(f.peer, system+"/services", service("eve", object{"ports": ports})) }},

		{"the token of a service account", func() error { return put(f.self, system+"/serviceaccounts/root/token", token) }},
		{"a Secret that gets a token in kube-system", func() error {
			return put(f.self, system+"/secrets", object{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
				"metadata": object{"name": "liqo-peer-eve", "annotations": object{"kubernetes.io/service-account.name": "root"}}})
		}},
		{"a Secret that gets a token in its own namespace", func() error {
			return put(f.self, core+"/namespaces/liqo/secrets", object{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
				"metadata": object{"name": "liqo-peer-eve", "annotations": object{"kubernetes.io/service-account.name": "default"}}})
		}},
		{"overwrite a Secret of kube-system", func() error { return patch(f.self, system+"/secrets/treasure", `{"data":{"a":"YQ=="}}`) }},
		{"delete a Secret of kube-system", func() error { return remove(f.self, system+"/secrets/treasure") }},
		{"change a ConfigMap of kube-system", func() error { return patch(f.self, system+"/configmaps/coredns", `{"data":{"Corefile":"eve"}}`) }},

		{"make kube-system a guest's namespace", func() error {
			return apply(core+"/namespaces/kube-system", namespace("kube-system", "baseline"))
		}},
		{"opt kube-system in", func() error {
			return patch(f.self, core+"/namespaces/kube-system", `{"metadata":{"labels":{"liqo.io/enabled":"true"}}}`)
		}},
		{"a guest's namespace that holds pods to nothing", func() error { return put(f.self, core+"/namespaces", namespace("eve", "privileged")) }},
		{"hold a guest's pods to nothing", func() error {
			return patch(f.self, core+"/namespaces/"+home, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)
		}},
		{"no longer hold a guest's pods to anything", func() error {
			return patch(f.self, core+"/namespaces/"+home, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":null}}}`)
		}},
		{"an old version of Pod Security", func() error {
			return patch(f.self, core+"/namespaces/"+home, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce-version":"v1.0"}}}`)
		}},
		{"a namespace that is no guest's", func() error { return put(f.self, core+"/namespaces", made("v1", "Namespace", "eve", "spec", object{})) }},
		{"have a namespace collected as garbage", func() error {
			return patch(f.self, core+"/namespaces/default", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"x","uid":"x"}]}}`)
		}},
		{"delete a namespace of others", func() error { return remove(f.self, core+"/namespaces/kube-node-lease") }},

		{"a webhook for everything", func() error {
			return put(f.self, admission+"/mutatingwebhookconfigurations", webhook("MutatingWebhookConfiguration", "eve", beside, covers("*", "*"), object{}))
		}},
		{"the agent's webhook for everything", func() error {
			return f.replace(admission+"/mutatingwebhookconfigurations/"+vnode.OffloadingName, webhook("MutatingWebhookConfiguration", vnode.OffloadingName, beside, covers("*", "*"), enabled))
		}},
		{"the agent's webhook for all namespaces", func() error {
			return f.replace(admission+"/mutatingwebhookconfigurations/"+vnode.OffloadingName, webhook("MutatingWebhookConfiguration", vnode.OffloadingName, beside, covers("", "pods"), object{}))
		}},
		{"the agent's webhook somewhere else", func() error {
			return f.replace(admission+"/mutatingwebhookconfigurations/"+vnode.OffloadingName,
				webhook("MutatingWebhookConfiguration", vnode.OffloadingName, "https://127.0.0.1.example.com:443/x", covers("", "pods"), enabled))
		}},
		{"a webhook that sees all Secrets", func() error {
			return apply(admission+"/validatingwebhookconfigurations/liqo-agent", webhook("ValidatingWebhookConfiguration", "liqo-agent", beside, covers("", "secrets"), object{}))
		}},
		{"the webhook for PeeringRequests somewhere else", func() error {
			return apply(admission+"/validatingwebhookconfigurations/liqo-agent",
				webhook("ValidatingWebhookConfiguration", "liqo-agent", "https://192.0.2.66:443/x", covers(api.GroupVersion.Group, "peeringrequests"), object{}))
		}},
		{"a policy that changes pods", func() error {
			return put(f.self, admission+"/mutatingadmissionpolicies", f.read(admission+"/mutatingadmissionpolicies/"+vnode.OffloadingName))
		}},
		{"the agent's policy that changes pods", func() error {
			return patch(f.self, admission+"/mutatingadmissionpolicies/"+vnode.OffloadingName, `{"spec":{"failurePolicy":"Fail"}}`)
		}},
		{"delete the policy that confines it", func() error { return remove(f.self, admission+"/validatingadmissionpolicies/"+rbac.Name) }},
		{"change the policy that confines it", func() error {
			return patch(f.self, admission+"/validatingadmissionpolicies/"+rbac.Name, `{"spec":{"failurePolicy":"Ignore"}}`)
		}},
		{"delete the binding of that policy", func() error { return remove(f.self, admission+"/validatingadmissionpolicybindings/"+rbac.Name) }},
		{"a definition that is converted by a webhook", func() error {
			return apply("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foreignclusters.discovery.liqo.io",
				made("apiextensions.k8s.io/v1", "CustomResourceDefinition", "foreignclusters.discovery.liqo.io", "spec", object{
					"group": "discovery.liqo.io", "scope": "Cluster", "names": object{"kind": "ForeignCluster", "plural": "foreignclusters"},
					"versions":   []any{object{"name": "v1", "served": true, "storage": true, "schema": object{"openAPIV3Schema": object{"type": "object"}}}},
					"conversion": object{"strategy": "Webhook", "webhook": object{"clientConfig": object{"url": "https://192.0.2.66/"}, "conversionReviewVersions": []any{"v1"}}},
				}))
		}},

		{"the proxy of a node", func() error { return f.self.Get(ctx, core+"/nodes/box/proxy/pods", nil) }},
		{"exec by the proxy of a node", func() error { return f.self.Create(ctx, core+"/nodes/box/proxy/exec/kube-system/victim/a", nil, nil) }},
		{"the proxy of a pod", func() error { return f.self.Get(ctx, system+"/pods/victim/proxy", nil) }},
		{"label a node", func() error { return patch(f.self, core+"/nodes/box", `{"metadata":{"labels":{"a":"b"}}}`) }},
		{"the address of a node", func() error {
			return patch(f.self, core+"/nodes/box/status", `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.66"}]}}`)
		}},
		{"make a node a virtual one", func() error {
			return patch(f.self, core+"/nodes/box", `{"metadata":{"labels":{"liqo.io/type":"virtual-node"}}}`)
		}},
		{"delete a node", func() error { return remove(f.self, core+"/nodes/box") }},
		{"a node that attracts pods", func() error { return put(f.self, core+"/nodes", node("eve")) }},
		{"take the taint of a virtual node", func() error { return patch(f.self, core+"/nodes/mill", `{"spec":{"taints":null}}`) }},
		{"a node with a taint that only advises", func() error {
			return put(f.self, core+"/nodes", node("eve", object{"key": "virtual-node.liqo.io/not-allowed", "effect": "PreferNoSchedule"}))
		}},
		{"the addresses of pods for a virtual node", func() error {
			eve := node("eve", taint)
			eve["spec"].(object)["podCIDR"] = "10.42.0.10/32"
			eve["spec"].(object)["podCIDRs"] = []any{"10.42.0.10/32"}
			return put(f.self, core+"/nodes", eve)
		}},
		{"a lease of flannel for a virtual node", func() error {
			return patch(f.self, core+"/nodes/mill", `{"metadata":{"annotations":{"flannel.alpha.coreos.com/kube-subnet-manager":"true"}}}`)
		}},
		{"metrics of a virtual node from elsewhere", func() error {
			return patch(f.self, core+"/nodes/mill", `{"metadata":{"annotations":{"metrics.k8s.io/resource-metrics-path":"/exec/shop/web/main"}}}`)
		}},
		{"that by its status", func() error {
			return patch(f.self, core+"/nodes/mill/status", `{"metadata":{"annotations":{"flannel.alpha.coreos.com/public-ip":"192.0.2.66"}}}`)
		}},
		{"a virtual node as a control plane", func() error {
			return patch(f.self, core+"/nodes/mill", `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`)
		}},
		{"a node that is not virtual", func() error {
			return put(f.self, core+"/nodes", made("v1", "Node", "eve", "spec", object{"taints": []any{taint}}))
		}},
		{"a quota for kube-system", func() error {
			return apply(system+"/resourcequotas/liqo-offer", made("v1", "ResourceQuota", "liqo-offer", "spec", object{"hard": object{"pods": "0"}}))
		}},
		{"a network policy for kube-system", func() error {
			return apply("/apis/networking.k8s.io/v1/namespaces/kube-system/networkpolicies/liqo-guests",
				made("networking.k8s.io/v1", "NetworkPolicy", "liqo-guests", "spec", object{"podSelector": object{}}))
		}},

		{"a certificate for clients", func() error { return put(f.self, requests, csr(t, "eve", "kubernetes.io/kube-apiserver-client")) }},
		{"approve a certificate for clients", func() error {
			asked := f.read(requests + "/others")
			asked["status"] = object{"conditions": []any{object{"type": "Approved", "status": "True", "reason": "a", "message": "b"}}}
			return f.self.Update(ctx, requests+"/others/approval", asked, nil)
		}},
		{"sign a certificate", func() error { return patch(f.self, requests+"/others/status", `{"status":{"certificate":"YQ=="}}`) }},
	}
	for _, a := range attempts {
		attack.Attempt{What: a.what, As: "thief of the agent's token", Want: forbidden}.Saw(t, what(a.do()))
	}
	f.forTokens()
	// Should a guest's role be widened by whatever way, the policy holds all the same.
	ok("the administrator", patch(f.admin, roles+"/namespaces/"+home+"/roles/liqo-consumer", `{"rules":[`+everything+`]}`))
	bedtest.Within(f, "the guest has more rights", func() error { return f.peer.Get(ctx, core+"/namespaces/"+home, nil) })
	attack.Attempt{What: "hold a guest's pods to nothing, as a guest with rights to everything in its namespace", As: "thief of the agent's token", Want: forbidden}.Saw(t,
		what(patch(f.peer, core+"/namespaces/"+home, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)))

	// What remains is written in docs/security.md.
	for what, path := range map[string]string{"read a Secret of kube-system": system + "/secrets/treasure", "read what is in any namespace": system + "/pods"} {
		if err := f.self.Get(ctx, path, nil); err != nil {
			t.Errorf("%s: %v: say so in docs/security.md", what, err)
		}
	}
	ok("the administrator", remove(f.admin, admission+"/mutatingwebhookconfigurations/"+vnode.OffloadingName))
}

// serviceAccount makes the one that pods of a namespace need, as a controller does.
func (f *thief) serviceAccount(namespace string) {
	f.Helper()
	err := f.admin.Create(f.Context(), core+"/namespaces/"+namespace+"/serviceaccounts", made("v1", "ServiceAccount", "default", "secrets", []any{}), nil)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		f.Fatal(err)
	}
}

// replace replaces an object that is there.
func (f *thief) replace(path string, o object) error {
	f.Helper()
	o["metadata"].(object)["resourceVersion"] = f.read(path)["metadata"].(object)["resourceVersion"]
	return f.self.Update(f.Context(), path, o, nil)
}
