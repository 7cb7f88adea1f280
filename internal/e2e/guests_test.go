//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/host"
	"liqo.io/agent/sharing/workload"
	"liqo.io/agent/trust"
)

// attempt is a call that a malicious consumer makes.
type attempt struct {
	method, path string
	header       http.Header
	body         []byte
}

var (
	jsonHeader  = http.Header{"Content-Type": {"application/json"}}
	applyHeader = http.Header{"Content-Type": {"application/apply-patch+yaml"}}
	patchHeader = http.Header{"Content-Type": {"application/strategic-merge-patch+json"}}
	spdyHeader  = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"}}
)

// must sends a call that is not about limits, so that one that comes too early is
// made again.
func (c *caller) must(a attempt) (status int, body string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), soon)
	defer cancel()
	_ = bed.Poll(ctx, func() error { // who gives up returns what it got last
		status, body = c.call(a.method, a.path, a.header, a.body)
		if status == http.StatusTooManyRequests || status == 0 || status >= 500 && strings.Contains(body, wire.ReasonNoAPIServer) {
			return errors.New(body)
		}
		return nil
	})
	return status, body
}

// works makes calls that have to succeed, and again what comes before the agent is ready, as after it lost its API server. What was
// carried out although the answer came too late is there when it is made again.
func (c *caller) works(attempts ...attempt) {
	c.t.Helper()
	for _, a := range attempts {
		var status int
		var body string
		ctx, cancel := context.WithTimeout(c.t.Context(), soon)
		_ = bed.Poll(ctx, func() error {
			if status, body = c.must(a); status == http.StatusServiceUnavailable && strings.Contains(body, `"reason":"NotReady"`) {
				return errors.New(body)
			}
			return nil
		})
		cancel()
		if status/100 != 2 && (status != http.StatusConflict || !strings.Contains(body, "AlreadyExists")) {
			c.t.Fatalf("%s %s, as it has to be: %d %s", a.method, a.path, status, body)
		}
	}
}

// refused makes calls and fails the test for each that gets anything but a no of the
// endpoint's. What the API server does not have, or has already, is none.
func (c *caller) refused(who string, attempts []attempt) {
	c.t.Helper()
	for _, a := range attempts {
		status, body := c.must(a)
		switch {
		case status == http.StatusNotFound && strings.Contains(body, "NoSuchPath"):
		case status == http.StatusServiceUnavailable && strings.Contains(body, `"reason":"NotReady"`):
			// Nobody has spoken of the caller: that may change, and it has nothing until then.
		case status < 400, status >= 500, status == http.StatusNotFound, status == http.StatusConflict, status == http.StatusTooManyRequests:
			c.t.Errorf("%s: %s %s %.300s: %d %.300s", who, a.method, a.path, a.body, status, body)
		}
	}
}

// guestPod is the document of a pod as agents send it, with more in its metadata
// and its spec.
func guestPod(name, metadata, spec string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"annotations":{%q:"0b54b8c4-0000-4000-8000-000000000001"}%s},
		"spec":{"containers":[{"name":"web","image":"web:1","resources":{"requests":{"cpu":"10m"}}}]%s}}`,
		name, workload.AnnotationOriginUID, metadata, spec)
}

// guestObject is the body of an apply of a ConfigMap or Secret.
func guestObject(kind, name, metadata, more string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":%q,"metadata":{"name":%q,"annotations":{%q:"0b54b8c4-0000-4000-8000-000000000001"}%s}%s}`,
		kind, name, workload.AnnotationOriginUID, metadata, more)
}

// debugger is the patch by which agents add an ephemeral container, with more in it.
func debugger(image, more string) []byte {
	return fmt.Appendf(nil, `{"spec":{"ephemeralContainers":[{"name":"debugger","image":%q%s}]}}`, image, more)
}

// inside are calls about a namespace and the pod "web" in it.
func inside(namespace string) []attempt {
	in := "/kube/api/v1/namespaces/" + namespace
	return []attempt{
		{"GET", in + "/pods", nil, nil},
		{"GET", in + "/pods?watch=true", nil, nil},
		{"POST", in + "/pods", jsonHeader, guestPod("evil", "", "")},
		{"GET", in + "/pods/web", nil, nil},
		{"PATCH", in + "/pods/web", patchHeader, []byte(`{"spec":{"containers":[{"name":"web","image":"evil"}]}}`)},
		{"PATCH", in + "/pods/web/ephemeralcontainers", patchHeader, debugger("web:1", "")},
		{"DELETE", in + "/pods/web", nil, nil},
		{"GET", in + "/pods/web/log", nil, nil},
		{"GET", in + "/pods/web/log?follow=true", nil, nil},
		{"POST", in + "/pods/web/exec?command=sh&stdin=true", spdyHeader, nil},
		{"POST", in + "/pods/web/attach?stdin=true", spdyHeader, nil},
		{"POST", in + "/pods/web/portforward?ports=80", spdyHeader, nil},
		{"GET", in + "/secrets", nil, nil},
		{"GET", in + "/secrets?watch=true", nil, nil},
		{"GET", in + "/secrets/treasure", nil, nil},
		{"PATCH", in + "/secrets/treasure", applyHeader, guestObject("Secret", "treasure", "", `,"data":{"x":""}`)},
		{"DELETE", in + "/secrets/treasure", nil, nil},
		{"GET", in + "/configmaps", nil, nil},
		{"PATCH", in + "/configmaps/kube-root-ca.crt", applyHeader, guestObject("ConfigMap", "kube-root-ca.crt", "", `,"data":{"ca.crt":"evil"}`)},
		{"GET", in + "/events", nil, nil},
	}
}

// ofOperators is what a consumer may not do with what operators have in its namespace.
func ofOperators(home string) []attempt {
	secret, pod := "/kube/api/v1/namespaces/"+home+"/secrets/regcred", "/kube/api/v1/namespaces/"+home+"/pods/desk"
	return []attempt{
		{"GET", secret, nil, nil},
		{"PATCH", secret, applyHeader, guestObject("Secret", "regcred", "", "")},
		{"DELETE", secret, nil, nil},
		{"GET", pod, nil, nil},
		{"GET", pod + "/log", nil, nil},
		{"PATCH", pod, patchHeader, []byte(`{"metadata":{"labels":{"a":"b"}}}`)},
		{"PATCH", pod + "/ephemeralcontainers", patchHeader, debugger("web:1", "")},
		{"DELETE", pod, nil, nil},
		{"POST", pod + "/exec?command=sh", spdyHeader, nil},
		{"GET", pod + "/portforward?ports=80", spdyHeader, nil},
	}
}

// beyond are calls that nobody may make in a namespace, not even in its own.
func beyond(namespace, other string) []attempt {
	in, foreign := "/kube/api/v1/namespaces/"+namespace, "/kube/api/v1/namespaces/"+other
	subject := []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`)
	all := []attempt{
		{"GET", "/kube/api/v1/pods", nil, nil},
		{"GET", "/kube/api/v1/secrets", nil, nil},
		{"GET", "/kube/api/v1/nodes", nil, nil},
		{"GET", "/kube/api/v1/nodes/birch/proxy/", nil, nil},
		{"GET", "/kube/api/v1/namespaces", nil, nil},
		{"POST", "/kube/api/v1/namespaces", jsonHeader, []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"evil"}}`)},
		{"GET", in, nil, nil},
		{"PATCH", in, http.Header{"Content-Type": {"application/merge-patch+json"}}, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)},
		{"DELETE", in, nil, nil},
		{"PUT", in + "/finalize", jsonHeader, []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"evil"}}`)},
		{"POST", in + "/serviceaccounts/default/token", jsonHeader, subject},
		{"GET", in + "/serviceaccounts", nil, nil},
		{"GET", in + "/resourcequotas", nil, nil},
		{"PATCH", in + "/resourcequotas/liqo-offer", applyHeader, []byte(`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"liqo-offer"},"spec":{"hard":{"pods":"9999"}}}`)},
		{"DELETE", in + "/resourcequotas/liqo-offer", nil, nil},
		{"POST", in + "/services", jsonHeader, []byte(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"evil"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`)},
		{"POST", in + "/persistentvolumeclaims", jsonHeader, []byte(`{}`)},
		{"POST", in + "/configmaps", jsonHeader, guestObject("ConfigMap", "evil", "", "")},
		{"POST", in + "/secrets", jsonHeader, guestObject("Secret", "evil", "", "")},
		{"POST", in + "/events", jsonHeader, []byte(`{}`)},
		{"POST", in + "/bindings", jsonHeader, []byte(`{"apiVersion":"v1","kind":"Binding","metadata":{"name":"web"},"target":{"kind":"Node","name":"birch"}}`)},
		{"GET", "/kube/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/roles", nil, nil},
		{"PATCH", "/kube/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/roles/liqo-consumer", applyHeader, []byte(`{}`)},
		{"GET", "/kube/apis/apps/v1/namespaces/" + namespace + "/deployments", nil, nil},
		{"DELETE", in + "/pods", nil, nil},
		{"PUT", in + "/pods/web", jsonHeader, guestPod("web", "", "")},
		{"HEAD", in + "/pods/web", nil, nil},
		{"CONNECT", in + "/pods/web/proxy", nil, nil},
		// One spelling of each path.
		{"GET", in + "/pods/", nil, nil},
		{"GET", in + "//pods", nil, nil},
		{"GET", in + "/Pods", nil, nil},
		{"GET", "/kube//api/v1/namespaces/" + namespace + "/pods", nil, nil},
		{"GET", "/kube/API/v1/namespaces/" + namespace + "/pods", nil, nil},
		{"GET", "/KUBE/api/v1/namespaces/" + namespace + "/pods", nil, nil},
		{"GET", "/api/v1/namespaces/" + namespace + "/pods", nil, nil},
		{"GET", in + "/../" + other + "/secrets", nil, nil},
		{"GET", in + "/%2e%2e/" + other + "/secrets", nil, nil},
		{"GET", in + "/pods/..%2f..%2f" + other + "%2fsecrets", nil, nil},
		{"GET", in + "/pods/%77eb", nil, nil},
		{"GET", in + "/./pods", nil, nil},
		{"GET", in + ";/pods", nil, nil},
		{"GET", in + "/pods/web/log/../../../../" + other + "/secrets/treasure", nil, nil},
		{"GET", strings.ToUpper(in) + "/pods", nil, nil},
		{"GET", foreign + "%00/pods", nil, nil},
		// Queries that mean something else.
		{"GET", in + "/pods?labelSelector=app%3Dweb", nil, nil},
		{"GET", in + "/pods?fieldSelector=spec.nodeName%3Dbirch", nil, nil},
		{"GET", in + "/pods?fieldSelector=metadata.namespace%21%3D" + namespace, nil, nil},
		{"GET", in + "/pods?watch=true&watch=true", nil, nil},
		{"GET", in + "/pods?pretty=true", nil, nil},
		{"GET", in + "/pods?resourceVersion=-1", nil, nil},
		{"GET", in + "/pods/web?watch=true", nil, nil},
		{"POST", in + "/pods?dryRun=All", jsonHeader, guestPod("evil", "", "")},
		{"POST", in + "/pods?fieldValidation=Ignore", jsonHeader, guestPod("evil", "", "")},
		{"PATCH", in + "/secrets/web?dryRun=All", applyHeader, guestObject("Secret", "web", "", "")},
		{"DELETE", in + "/pods/web?propagationPolicy=Orphan", nil, nil},
		{"GET", in + "/pods/web/log?insecureSkipTLSVerifyBackend=true", nil, nil},
		{"GET", in + "/pods", spdyHeader, nil},
		{"GET", in + "/pods", nil, []byte("{}")},
		// Namespaces are asked for by names.
		{"GET", wire.PathNamespaces, nil, nil},
		{"DELETE", wire.PathNamespaces, nil, nil},
	}
	for _, name := range []string{"", ".", "..", "../kube-system", "Shop", "a/b", strings.Repeat("x", 64), "a\u0000b"} {
		body, _ := json.Marshal(wire.NamespaceCall{Name: name})
		all = append(all, attempt{"POST", wire.PathNamespaces, jsonHeader, body})
	}
	for _, within := range []string{"eviction", "binding", "ephemeralcontainers", "status", "resize", "proxy", "proxy/", ""} {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH"} {
			all = append(all, attempt{method, in + "/pods/web/" + within, jsonHeader, []byte("{}")})
		}
	}
	return all
}

// documents are bodies that are refused in one's own namespace.
func documents(namespace, other string) []attempt {
	in := "/kube/api/v1/namespaces/" + namespace
	var all []attempt
	pod := func(body []byte) { all = append(all, attempt{"POST", in + "/pods", jsonHeader, body}) }
	for _, spec := range []string{
		`"hostNetwork":true`, `"hostPID":true`, `"hostIPC":true`, `"nodeName":"birch"`, `"nodeSelector":{"a":"b"}`,
		`"serviceAccountName":"admin"`, `"serviceAccount":"admin"`, `"automountServiceAccountToken":true`,
		`"tolerations":[{"operator":"Exists"}]`, `"priorityClassName":"system-node-critical"`, `"priority":2000001000`,
		`"runtimeClassName":"evil"`, `"schedulerName":"evil"`, `"affinity":{"nodeAffinity":{}}`,
		`"ephemeralContainers":[{"name":"x","image":"x"}]`, `"securityContext":{"sysctls":[{"name":"kernel.msgmax","value":"1"}]}`,
		`"securityContext":{"seccompProfile":{"type":"Unconfined"}}`, `"resourceClaims":[{"name":"x"}]`,
		`"initContainers":[{"name":"x","image":"x","securityContext":{"privileged":true}}]`,
		`"initContainers":[{"name":"x","image":"x","securityContext":{"capabilities":{"add":["SYS_ADMIN"]}}}]`,
		`"initContainers":[{"name":"x","image":"x","ports":[{"containerPort":80,"hostPort":80}]}]`,
		`"initContainers":[{"name":"x","image":"x","resources":{"requests":{"cpu":"1000"}}}]`,
		`"initContainers":[{"name":"x","image":"x","resources":{"requests":{"cpu":"-5"}}}]`,
		`"initContainers":[{"name":"x","image":"x","resources":{"requests":{"example.com/gpu":"1"},"limits":{"example.com/gpu":"1"}}}]`,
		`"volumes":[{"name":"x","hostPath":{"path":"/"}}]`, `"volumes":[{"name":"x","nfs":{"server":"x","path":"/"}}]`,
		`"volumes":[{"name":"x","persistentVolumeClaim":{"claimName":"x"}}]`, `"volumes":[{"name":"x","csi":{"driver":"x"}}]`,
		`"volumes":[{"name":"x","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}]`,
		`"hostNetwork":false,"hostNetwork":true`,
	} {
		pod(guestPod("evil", "", ","+spec))
	}
	for _, metadata := range []string{
		`"namespace":"` + other + `"`, `"namespace":"kube-system"`, `"generateName":"evil-"`, `"finalizers":["example.com/stay"]`,
		`"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"birch","uid":"x"}]`,
		`"labels":{"` + workload.LabelOriginCluster + `":"5f4dcc3b-0000-4000-8000-000000000001"}`, `"labels":{"liqo.io/enabled":"true"}`,
		`"annotations":{"kubernetes.io/config.mirror":"x"}`,
	} {
		pod(guestPod("evil", ","+metadata, ""))
	}
	for _, body := range []string{
		"", "null", "[]", "{", "kind: Pod", "{}", `{"apiVersion":"v1","kind":"Pod"}`, strings.Repeat("[", 10_000), "\xff\xfe",
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"evil"}}`, `{"apiVersion":"v1","kind":"List","items":[]}`,
	} {
		pod([]byte(body))
	}
	pod(guestPod("evil", "", `,"hostname":"`+strings.Repeat("x", 300<<10)+`"`))
	for _, body := range []string{
		`{"spec":{"hostNetwork":true}}`, `{"spec":{"nodeName":"birch"}}`, `{"spec":{"tolerations":[{"operator":"Exists"}]}}`,
		`{"metadata":{"finalizers":["example.com/stay"]}}`, `{"metadata":{"labels":{"` + workload.LabelOriginCluster + `":"x"}}}`,
		`{"metadata":{"labels":{"` + workload.LabelOriginCluster + `":null}}}`, `{"metadata":{"ownerReferences":[]}}`, `{"status":{"phase":"Running"}}`,
		`{"spec":{"containers":[{"name":"web","securityContext":{"privileged":true}}]}}`, `{"spec":{"containers":[{"name":"web","$patch":"delete"}]}}`,
		`{"$patch":"replace"}`, `[{"op":"add","path":"/spec/hostNetwork","value":true}]`,
	} {
		all = append(all, attempt{"PATCH", in + "/pods/web", patchHeader, []byte(body)})
	}
	for _, body := range [][]byte{
		debugger("registry.example.net/web:1", ""), debugger("web:1", `,"securityContext":{"privileged":true}`),
		debugger("web:1", `,"securityContext":{"capabilities":{"add":["SYS_PTRACE"]}}`), debugger("web:1", `,"resources":{"requests":{"cpu":"1"}}`),
		debugger("web:1", `,"ports":[{"containerPort":80,"hostPort":80}]`), debugger("web:1", `,"livenessProbe":{"tcpSocket":{"port":80}}`),
		debugger("web:1", `,"envFrom":[{"secretRef":{"name":"regcred"}}]`), debugger("web:1", `,"volumeMounts":[{"name":"x","mountPath":"/x"}]`),
		debugger("web:1", `},{"name":"second","image":"web:1"`), debugger("web:1", `,"command":["`+strings.Repeat("x", 64<<10)+`"]`), []byte(`{"spec":{"hostNetwork":true}}`),
	} {
		all = append(all, attempt{"PATCH", in + "/pods/web/ephemeralcontainers", patchHeader, body})
	}
	for _, kind := range []string{"application/json-patch+json", "application/apply-patch+yaml", "application/json"} {
		all = append(all, attempt{"PATCH", in + "/pods/web", http.Header{"Content-Type": {kind}}, []byte(`{"metadata":{"labels":{"a":"b"}}}`)})
	}
	object := func(resource, name string, body []byte) {
		all = append(all, attempt{"PATCH", in + "/" + resource + "/" + name, applyHeader, body})
	}
	object("configmaps", "kube-root-ca.crt", guestObject("ConfigMap", "kube-root-ca.crt", "", `,"data":{"ca.crt":"evil"}`))
	object("configmaps", "evil", guestObject("ConfigMap", "other", "", ""))
	object("configmaps", "evil", guestObject("Secret", "evil", "", ""))
	object("configmaps", "evil", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: evil}\n"))
	for _, more := range []string{
		`"type":"kubernetes.io/service-account-token"`, `"type":"bootstrap.kubernetes.io/token"`, `"data":{"x":"` + strings.Repeat("QUFB", 400<<10) + `"}`,
	} {
		object("secrets", "evil", guestObject("Secret", "evil", "", ","+more))
	}
	for _, metadata := range []string{
		`"namespace":"` + other + `"`, `"finalizers":["example.com/stay"]`, `"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"birch","uid":"x"}]`,
		`"annotations":{"kubernetes.io/service-account.name":"default"}`, `"labels":{"app":"evil"}`,
	} {
		object("secrets", "evil", guestObject("Secret", "evil", ","+metadata, ""))
	}
	return all
}

// everything is what a box's API server has of the kinds that matter, and which
// version of each.
func (x *box) everything() map[string]string {
	x.t.Helper()
	out := make(map[string]string)
	for _, path := range []string{
		"/api/v1/namespaces", "/api/v1/pods", "/api/v1/secrets", "/api/v1/configmaps", "/api/v1/serviceaccounts", "/api/v1/services",
		"/api/v1/resourcequotas", "/api/v1/persistentvolumeclaims", "/api/v1/limitranges",
		"/apis/rbac.authorization.k8s.io/v1/roles", "/apis/rbac.authorization.k8s.io/v1/rolebindings",
		rolePath, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "/apis/apps/v1/deployments",
	} {
		items, err := list[metav1.PartialObjectMetadata](x, path)
		if err != nil {
			x.t.Fatal(err)
		}
		for _, o := range items {
			out[path+" "+o.Namespace+"/"+o.Name] = string(o.UID) + " " + o.ResourceVersion
		}
	}
	return out
}

// A consumer that turns bad has its key, and all that its own agent has. It stays in
// the namespaces that stand for its own, within its offer, and out when it is told to
// go. Others get nowhere.
func TestGuestsStayAtHome(t *testing.T) {
	t.Parallel()
	bd := bed.New(t)
	boxes := newClusters(t, bd, "alder", "birch", "cedar")
	a, b, neighbour := boxes[0], boxes[1], boxes[2]
	for _, x := range boxes {
		x.start()
	}
	staff(t, a, b)
	p := &pair{bed: bd, a: a, b: b, aID: a.id(), bID: b.id()}
	home := workload.Namespace("liqo", peer.ClusterID(p.aID), "shop")
	// What there is to steal: Secrets and pods, those of another consumer among them.
	other := p.neighbour(neighbour)
	for _, namespace := range []string{"default", "kube-system", "liqo"} {
		b.eventually("the namespace has its service account", func() error {
			_, err := b.kube.Request(t.Context(), "GET", "/api/v1/namespaces/"+namespace+"/serviceaccounts/default", "", nil)
			return err
		})
		b.apply(strings.ReplaceAll(`apiVersion: v1
kind: Secret
metadata: {name: treasure, namespace: NS}
stringData: {x: gold}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: NS}
spec: {containers: [{name: web, image: "web:1"}]}
`, "NS", namespace))
	}
	p.a.awaitFC("appears", p.bID, reachable)
	p.b.awaitFC("appears", p.aID, reachable)
	key := keyOf(t, a)
	c := newCaller(t, a.host, key, p.aID, b.addr)
	c.client.Transport.(*http.Transport).DisableKeepAlives = false
	c.client.Transport.(*http.Transport).MaxConnsPerHost = 8
	const strangerID = "5f4dcc3b-0000-4000-8000-000000000001"
	own, err := trust.LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	outside := func(who string, c *caller, namespaces ...string) {
		t.Helper()
		for _, namespace := range namespaces {
			c.refused(who, inside(namespace))
		}
		for _, path := range []string{wire.PathNamespaces, wire.PathRelease} {
			c.refused(who, []attempt{{"POST", path, jsonHeader, []byte(`{"name":"shop"}`)}})
		}
	}

	p.trust()
	outside("trusted, and not let in", c, home, "default")
	alone := b.quota(other).Spec.Hard
	p.join()
	a.awaitNode(p.b.asNode(), true)
	a.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {liqo.io/enabled: \"true\"}}\n")
	a.tolerates()
	a.apply(deployment("web", 1, p.b.asNode(), ""))
	p.settled(1)
	// From here on A's key is in the hands of somebody else.
	if err := a.agent.Kill(); err != nil {
		t.Fatal(err)
	}

	// What it may do, it can: otherwise the refusals show nothing.
	c.works(
		attempt{"POST", "/kube/api/v1/namespaces/" + home + "/pods", jsonHeader, guestPod("web", "", "")},
		attempt{"PATCH", "/kube/api/v1/namespaces/" + home + "/pods/web/ephemeralcontainers", patchHeader, bytes.Replace(debugger("web:1", ""), []byte("debugger"), []byte("first"), 1)},
		attempt{"PATCH", "/kube/api/v1/namespaces/" + home + "/secrets/web", applyHeader, guestObject("Secret", "web", "", "")},
	)
	// The API server does not know this word, and would drop it.
	status, body := c.must(attempt{"POST", "/kube/api/v1/namespaces/" + home + "/pods", jsonHeader, guestPod("words", "", `,"hostnetwork":true,"unheardOf":1`)})
	if status == http.StatusCreated && strings.Contains(strings.ToLower(body), "hostnetwork") {
		t.Errorf("a pod with words of its own: %d %s", status, body)
	}
	// Operators have things of their own in its namespace, too.
	b.apply(strings.ReplaceAll(`apiVersion: v1
kind: Secret
metadata: {name: regcred, namespace: NS}
stringData: {x: gold}
---
apiVersion: v1
kind: Pod
metadata: {name: desk, namespace: NS}
spec: {containers: [{name: desk, image: "desk:1", resources: {requests: {cpu: "0", memory: "0", ephemeral-storage: "0"}}}]}
`, "NS", home))
	b.eventually("all pods run", func() error {
		pods, err := list[corev1.Pod](b, "/api/v1/pods")
		for _, pod := range pods {
			if !podReady(pod) {
				return fmt.Errorf("%s/%s is %s", pod.Namespace, pod.Name, pod.Status.Phase)
			}
		}
		return err
	})
	// One consumer more halves what the other is offered, a moment later.
	b.eventually("the offer is divided, and what is used of it is counted", func() error {
		if equality.Semantic.DeepEqual(b.quota(other).Spec.Hard, alone) {
			return errors.New("the other consumer still has all of it")
		}
		for _, namespace := range []string{home, other} {
			pods, err := list[corev1.Pod](b, "/api/v1/namespaces/"+namespace+"/pods")
			q := b.quota(namespace)
			if used := q.Status.Used.Pods().Value(); err != nil || used != int64(len(pods)) || !equality.Semantic.DeepEqual(q.Spec.Hard, q.Status.Hard) {
				return fmt.Errorf("%s: %d of %d pods are counted in %v, %v", namespace, used, len(pods), q.Status.Hard, err)
			}
		}
		return nil
	})
	var before map[string]string
	b.eventually("it is quiet", func() error {
		now := b.everything()
		for _, namespace := range []string{home, other} {
			if last := "/api/v1/configmaps " + namespace + "/kube-root-ca.crt"; now[last] == "" {
				return errors.New("there is no " + last)
			}
		}
		if !maps.Equal(before, now) {
			before = now
			return errors.New("something changes")
		}
		return nil
	})

	// Strangers may call a few times in a row only.
	some := []attempt{
		{"GET", "/kube/api/v1/namespaces/" + home + "/secrets?watch=true", nil, nil},
		{"POST", "/kube/api/v1/namespaces/" + home + "/pods", jsonHeader, guestPod("evil", "", "")},
		{"POST", "/kube/api/v1/namespaces/" + home + "/pods/web/exec?command=sh", spdyHeader, nil},
		{"POST", wire.PathNamespaces, jsonHeader, []byte(`{"name":"shop"}`)},
	}
	newCaller(t, a.host, nil, "", b.addr).refused("nobody", some)
	newCaller(t, a.host, own, strangerID, b.addr).refused("a stranger", some)
	newCaller(t, a.host, own, p.aID, b.addr).refused("a thief of the ID with his own key", some)
	for _, namespace := range []string{"default", "kube-system", "liqo", other, "not-there"} {
		c.refused("the consumer", inside(namespace))
	}
	c.refused("the consumer", beyond(home, other))
	c.refused("the consumer", ofOperators(home))
	for _, resource := range []string{"pods", "secrets", "configmaps", "events"} {
		status, body := c.must(attempt{"GET", "/kube/api/v1/namespaces/" + home + "/" + resource, nil, nil})
		if status != http.StatusOK || strings.Contains(body, "regcred") || strings.Contains(body, "desk") || strings.Contains(body, "kube-root-ca") {
			t.Errorf("%s: %d %s", resource, status, body)
		}
	}
	c.refused("the consumer", documents(home, other))
	for _, header := range []http.Header{
		{"Impersonate-User": {"system:admin"}, "Impersonate-Group": {"system:masters"}}, {"X-Remote-User": {"system:admin"}}, {"Authorization": {"Bearer x"}},
	} {
		c.refused("the consumer", []attempt{{"GET", "/kube/api/v1/namespaces/" + other + "/secrets", header, nil}})
	}
	b.mayNot(p.aID, home, other)
	after := b.everything()
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] {
			t.Errorf("%s is other than it was, or new", name)
		}
	}
	if len(after) < len(before) {
		t.Errorf("%d objects, there were %d", len(after), len(before))
	}

	p.storm(c, "shop", "farm")

	// Thrown out, it loses what it has open and all that it has.
	watch := c.open("/kube/api/v1/namespaces/" + home + "/pods?watch=true")
	b.mustCLI("peers", "block", p.aID)
	select {
	case <-watch:
	case <-time.After(soon):
		t.Error("its watch goes on after it was blocked")
	}
	outside("blocked", c, home)
	b.eventually("everything of it is gone", func() error {
		spaces, err := list[corev1.Namespace](b, "/api/v1/namespaces?labelSelector="+workload.LabelOriginCluster+"%3D"+p.aID)
		pods, err2 := b.guests(p.aID)
		if len(spaces)+len(pods) > 0 {
			return fmt.Errorf("%d namespaces and %d pods are left", len(spaces), len(pods))
		}
		return errors.Join(err, err2)
	})
	// That of the other consumer is nobody's business.
	if _, err := b.kube.Request(t.Context(), "GET", "/api/v1/namespaces/"+other+"/pods/web", "", nil); err != nil {
		t.Error(err)
	}
}

// tolerates waits until pods that are made in namespace shop, and in others, are let on virtual nodes:
// an API server takes a moment to do what a new policy, or a new label, says.
func (x *box) tolerates(others ...string) {
	x.t.Helper()
	for _, namespace := range append([]string{"shop"}, others...) {
		x.eventually("pods of "+namespace+" tolerate virtual nodes", func() error {
			text, err := x.kube.Request(x.t.Context(), "POST", "/api/v1/namespaces/"+namespace+"/pods?dryRun=All", "application/json", guestPod("probe", "", ""))
			if err == nil && !strings.Contains(string(text), "virtual-node.liqo.io/not-allowed") {
				err = errors.New("not yet")
			}
			return err
		})
	}
}

// quota is the ResourceQuota of a consumer's namespace.
func (x *box) quota(namespace string) corev1.ResourceQuota {
	x.t.Helper()
	q, found, err := get[corev1.ResourceQuota](x, "/api/v1/namespaces/"+namespace+"/resourcequotas/"+host.QuotaName)
	if err != nil || !found {
		x.t.Fatalf("the quota of %s: %t, %v", namespace, found, err)
	}
	return q
}

// neighbour makes a box another consumer of the provider, with a pod and a Secret
// there, and returns its namespace.
func (p *pair) neighbour(x *box) string {
	t := p.a.t
	t.Helper()
	q := &pair{bed: p.bed, a: x, b: p.b, aID: x.id(), bID: p.bID}
	x.awaitFC("appears", q.bID, reachable)
	p.b.awaitFC("appears", q.aID, reachable)
	q.join()
	x.awaitNode(q.b.asNode(), true)
	// Its agent would take away what there is none of at home.
	if err := x.agent.Kill(); err != nil {
		t.Fatal(err)
	}
	c := newCaller(t, x.host, keyOf(t, x), q.aID, p.b.addr)
	name := c.namespace("shop")
	in := "/kube/api/v1/namespaces/" + name
	c.works(
		attempt{"POST", in + "/pods", jsonHeader, guestPod("web", "", "")},
		attempt{"PATCH", in + "/secrets/treasure", applyHeader, guestObject("Secret", "treasure", "", `,"stringData":{"x":"gold"}`)},
	)
	return name
}

// namespace asks for the namespace that stands for one of the caller's.
func (c *caller) namespace(origin string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), soon)
	defer cancel()
	var answer wire.NamespaceAnswer
	if err := bed.Poll(ctx, func() error { // its quota and service account may take longer than the endpoint waits
		status, body := c.must(attempt{"POST", wire.PathNamespaces, jsonHeader, fmt.Appendf(nil, `{"name":%q}`, origin)})
		err := json.Unmarshal([]byte(body), &answer)
		switch {
		case status == http.StatusServiceUnavailable:
			return errors.New(body)
		case err != nil || status != http.StatusOK:
			c.t.Fatalf("a namespace for %s: %d %s", origin, status, body)
		}
		return nil
	}); err != nil {
		c.t.Fatalf("a namespace for %s: %v", origin, err)
	}
	return answer.Namespace
}

// mayNot asks RBAC alone, without the gateway, what a consumer may do.
func (x *box) mayNot(id, home, other string) {
	x.t.Helper()
	ask := func(verb, group, resource, within, namespace string) bool {
		x.t.Helper()
		review, err := json.Marshal(map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": map[string]any{
			"user": api.PeerUsers{Namespace: "liqo"}.Name(id), "groups": []string{"liqo:peers", "system:authenticated"},
			"resourceAttributes": map[string]string{"verb": verb, "group": group, "resource": resource, "subresource": within, "namespace": namespace},
		}})
		if err != nil {
			x.t.Fatal(err)
		}
		text, err := x.kube.Request(x.t.Context(), "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", "application/json", review)
		var answer struct{ Status struct{ Allowed bool } }
		if err := errors.Join(err, json.Unmarshal(text, &answer)); err != nil {
			x.t.Fatal(err)
		}
		return answer.Status.Allowed
	}
	if !ask("create", "", "pods", "", home) || !ask("patch", "", "pods", "ephemeralcontainers", home) {
		x.t.Error("RBAC: it may not create and debug pods in its own namespace")
	}
	for _, namespace := range []string{"default", "kube-system", "liqo", other, ""} {
		for _, resource := range []string{"pods", "secrets", "configmaps", "events", "nodes", "namespaces"} {
			for _, verb := range []string{"get", "list", "watch", "create", "patch", "delete"} {
				if ask(verb, "", resource, "", namespace) {
					x.t.Errorf("RBAC: it may %s %s in %q", verb, resource, namespace)
				}
			}
		}
	}
	for _, q := range [][4]string{
		{"create", "", "serviceaccounts", "token"}, {"create", "", "pods", "eviction"}, {"create", "", "pods", "binding"}, {"update", "", "pods", "status"},
		{"update", "", "pods", "ephemeralcontainers"}, {"update", "", "pods", ""}, {"deletecollection", "", "pods", ""}, {"update", "", "services", ""}, {"create", "", "services", "proxy"}, {"create", "", "endpoints", ""},
		{"patch", "", "resourcequotas", ""}, {"create", "rbac.authorization.k8s.io", "rolebindings", ""}, {"patch", "rbac.authorization.k8s.io", "roles", ""},
		{"create", "apps", "deployments", ""}, {"create", "batch", "jobs", ""}, {"patch", "", "namespaces", ""},
	} {
		if ask(q[0], q[1], q[2], q[3], home) {
			x.t.Errorf("RBAC: in its own namespace it may %s %s/%s", q[0], q[2], q[3])
		}
	}
}

// storm throws 300 pods at the provider at once, in two namespaces: as many are
// let in as fit into the offer, at any time.
func (p *pair) storm(c *caller, origins ...string) {
	t := p.a.t
	t.Helper()
	offer, found, err := get[api.Advertisement](p.a, advPath+"/"+p.bID)
	if err != nil || !found {
		t.Fatal("no offer", err)
	}
	hard := resource.MustParse(offer.Spec.ResourceQuota.Hard["cpu"])
	var namespaces []string
	for _, origin := range origins {
		namespaces = append(namespaces, c.namespace(origin))
	}
	sum := func() (cpu resource.Quantity) {
		pods, err := p.b.guests(p.aID)
		if err != nil {
			t.Error(err)
		}
		for _, pod := range pods {
			cpu.Add(*pod.Spec.Containers[0].Resources.Requests.Cpu())
		}
		if cpu.Cmp(hard) > 0 {
			t.Errorf("%s of CPU are used, offered are %s", cpu.String(), hard.String())
		}
		return cpu
	}
	each := hard.MilliValue() / 20 // fewer than the pods that are offered
	answers := make(map[int]int)
	var mu sync.Mutex
	var thrown sync.WaitGroup
	for i := range 300 {
		thrown.Go(func() {
			body := strings.Replace(string(guestPod(fmt.Sprintf("storm-%d", i), "", "")), `"10m"`, fmt.Sprintf(`"%dm"`, each), 1)
			status, text := c.must(attempt{"POST", "/kube/api/v1/namespaces/" + namespaces[i%len(namespaces)] + "/pods", jsonHeader, []byte(body)})
			mu.Lock()
			defer mu.Unlock()
			if status == http.StatusConflict { // it was made, and the answer was late
				status = http.StatusCreated
			}
			if answers[status]++; status != http.StatusCreated && (status != http.StatusForbidden || !strings.Contains(text, "used up")) {
				t.Errorf("pod %d: %d %s", i, status, text)
			}
		})
	}
	done := make(chan struct{})
	go func() { thrown.Wait(); close(done) }()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		case <-time.After(100 * time.Millisecond):
		}
		sum()
	}
	if total := sum(); total.MilliValue() < hard.MilliValue()*9/10 || answers[http.StatusForbidden] < 280 {
		t.Errorf("%s of %s CPU are used, answers %v", total.String(), hard.String(), answers)
	}
}

// open begins a watch, and returns a channel that is closed when it ends.
func (c *caller) open(path string) <-chan struct{} {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	c.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+netip.AddrPortFrom(c.at, 6447).String()+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	client := *c.client
	client.Timeout = 0
	resp, err := client.Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		c.t.Fatal(resp, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
	}()
	return ended
}
