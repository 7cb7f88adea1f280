package allow

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
)

// decide is what serveGateway does before anything is sent.
func decide(id peer.ClusterID, method, target string, body []byte) (Request, *refusal.Refusal) {
	action, no := Find(id, method, target)
	if no != nil {
		return Request{}, no
	}
	if action.Takes == "" && len(body) > 0 {
		return Request{}, refusal.BadBody("a body")
	}
	return action.Request(id, body)
}

func TestAllowListPaths(t *testing.T) {
	for _, target := range []string{endpointtest.OwnRequest, endpointtest.OwnAdvert} {
		for _, method := range []string{"GET", "DELETE"} {
			out, no := decide("b", method, target, nil)
			if no != nil || "/kube"+out.Path != target || out.Method != method || out.Query != "" {
				t.Errorf("%s %s: %+v, %+v", method, target, out, no)
			}
		}
		for _, method := range []string{"POST", "PUT", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "WATCH", "LIST", ""} {
			if out, no := decide("b", method, target, nil); no == nil || no.Status != http.StatusMethodNotAllowed || no.Allow != "GET, PATCH, DELETE" {
				t.Errorf("%s %s: %+v, %+v", method, target, out, no)
			}
		}
	}
	base, _ := strings.CutSuffix(endpointtest.OwnRequest, "/b")
	for _, target := range []string{
		// others' objects and lists
		base + "/c", base + "/bb", base + "/B", base + "/", base, base + "/b/status", base + "/b/finalizers", base + "/*",
		strings.Replace(endpointtest.OwnRequest, "v1alpha1", "v1alpha1/watch", 1), strings.Replace(endpointtest.OwnRequest, "/apis/", "/apis/watch/", 1),
		strings.Replace(endpointtest.OwnRequest, "peeringrequests", "foreignclusters", 1), strings.Replace(endpointtest.OwnRequest, "peeringrequests", "advertisements", 1),
		strings.Replace(endpointtest.OwnRequest, "v1alpha1", "v1", 1), strings.Replace(endpointtest.OwnRequest, "v1alpha1", "v1alpha1/namespaces/default", 1),
		// queries
		endpointtest.OwnRequest + "?watch=true", endpointtest.OwnRequest + "?", endpointtest.OwnRequest + "?fieldManager=x&force=true", endpointtest.OwnRequest + "#x",
		endpointtest.OwnRequest + "?dryRun=All", endpointtest.OwnRequest + "?propagationPolicy=Orphan", endpointtest.OwnRequest + "?timeoutSeconds=0",
		// spellings
		base + "/%62", base + "%2fb", base + "/b%2f..%2fc", base + "/../peeringrequests/b", base + "/./b", base + "//b", base + "/b/", base + "/b/.", base + "/b/..",
		base + "/b/../c", base + "/%2e/b", base + "/%2e%2e/b", base + "/b;x=y", base + ";/b", base + "/b%00", base + "/b%20", base + "/b ", base + "\\b", base + "/b\\..",
		base + "/b%3fwatch=true", base + "/b%23", strings.ToUpper(endpointtest.OwnRequest), strings.Replace(endpointtest.OwnRequest, "apis", "Apis", 1), "/Kube" + endpointtest.OwnRequest[5:],
		"/kube/" + endpointtest.OwnRequest[5:], "//kube" + endpointtest.OwnRequest[5:], "/kube/." + endpointtest.OwnRequest[5:], "/kube%2f" + endpointtest.OwnRequest[6:], endpointtest.OwnRequest[5:], "kube" + endpointtest.OwnRequest[5:],
		"https://x" + endpointtest.OwnRequest, "http://127.0.0.1:6443" + endpointtest.OwnRequest[5:], "/kube/https://127.0.0.1:6443" + endpointtest.OwnRequest[5:],
		base + "/ｂ", base + "/b\x00", base + "/b\r\nX: y", base + "/b\t",
		// everything else
		"/kube/", "/kube", "/kube/api", "/kube/apis", "/kube/version", "/kube/metrics", "/kube/healthz", "/kube/livez?verbose", "/kube/openapi/v2", "/kube/logs/",
		"/kube/api/v1/secrets", "/kube/api/v1/namespaces/liqo/secrets/liqo-peer-b", "/kube/api/v1/nodes", "/kube/api/v1/nodes/x/proxy/", "/kube/api/v1/pods",
		"/kube/api/v1/namespaces/default/pods/x/exec?command=sh", "/kube/api/v1/namespaces/kube-system/serviceaccounts/default/token",
		"/kube/apis/rbac.authorization.k8s.io/v1/clusterroles/liqo:peer:b", "/kube/apis/authentication.k8s.io/v1/tokenreviews",
		"/kube/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/kube/apis/discovery.liqo.io/v1alpha1/foreignclusters/b", "",
	} {
		for _, method := range []string{"GET", "PATCH", "DELETE", "POST", "PUT"} {
			if out, no := decide("b", method, target, nil); no == nil || no.Status != http.StatusForbidden || no.Reason != wire.ReasonNotPermitted || no.Counted != refusal.Gateway {
				t.Errorf("%s %q: %+v, %+v", method, target, out, no)
			}
		}
	}
}

func TestAllowListBodies(t *testing.T) {
	// Harmless differences in the text are gone in what is sent.
	spaced := strings.NewReplacer(`{`, "{\n\t ", `:"b"`, `: "\u0062"`, `/`, `\/`).Replace(endpointtest.RequestBody)
	for name, tc := range map[string]struct{ target, body, want string }{
		"request":      {endpointtest.OwnRequest, endpointtest.RequestBody, endpointtest.RequestBody},
		"other spaces": {endpointtest.OwnRequest, spaced, endpointtest.RequestBody},
		"advert":       {endpointtest.OwnAdvert, endpointtest.AdvertBody, `{"apiVersion":"sharing.liqo.io/v1alpha1","kind":"Advertisement","metadata":{"name":"b"},"spec":{"clusterId":"b","images":[{"names":["x"],"sizeBytes":12345678901234567}],"resourceQuota":{"hard":{"cpu":"3500m"}},"timeToLive":"2026-11-21T06:00:00Z","timestamp":"2026-11-21T00:00:00Z"}}`},
		"text":         {endpointtest.OwnRequest, strings.Replace(endpointtest.RequestBody, "mill", "Mühle <3 & 🌾 \\\" : - # {", 1), strings.Replace(endpointtest.RequestBody, "mill", "Mühle <3 & 🌾 \\\" : - # {", 1)},
	} {
		out, no := decide("b", "PATCH", tc.target, []byte(tc.body))
		if no != nil || string(out.Body) != tc.want || out.ContentType != "application/apply-patch+yaml" || out.Query != "fieldManager=liqo-peer&force=true" {
			t.Errorf("%s: %s\n%+v %+v", name, out.Body, out, no)
		}
	}

	change := func(old, new string) string {
		changed := strings.Replace(endpointtest.RequestBody, old, new, 1)
		if changed == endpointtest.RequestBody {
			t.Fatalf("%q is not in the body", old)
		}
		return changed
	}
	for name, body := range map[string]string{
		"finalizers":          change(`"name":"b"`, `"name":"b","finalizers":["x/y"]`),
		"owner references":    change(`"name":"b"`, `"name":"b","ownerReferences":[]`),
		"labels":              change(`"name":"b"`, `"name":"b","labels":{}`),
		"annotations":         change(`"name":"b"`, `"name":"b","annotations":null`),
		"managed fields":      change(`"name":"b"`, `"name":"b","managedFields":[]`),
		"generate name":       change(`"name":"b"`, `"generateName":"b"`),
		"namespace":           change(`"name":"b"`, `"name":"b","namespace":"liqo"`),
		"uid":                 change(`"name":"b"`, `"name":"b","uid":"1"`),
		"status":              change(`"spec":`, `"status":{"phase":"Accepted"},"spec":`),
		"null status":         change(`"spec":`, `"status":null,"spec":`),
		"status as spec":      change(`"spec":`, `"status":`),
		"other name":          change(`"name":"b"`, `"name":"c"`),
		"no name":             change(`"name":"b"`, ``),
		"name and more":       change(`"name":"b"`, `"name":["b"]`),
		"null metadata":       change(`{"name":"b"}`, `null`),
		"metadata in a list":  change(`{"name":"b"}`, `[{"name":"b"}]`),
		"no metadata":         change(`"metadata":{"name":"b"},`, ``),
		"other kind":          change(`PeeringRequest"`, `Advertisement"`),
		"a list":              change(`PeeringRequest"`, `PeeringRequestList"`),
		"v1 list":             `{"apiVersion":"v1","kind":"List","items":[` + endpointtest.RequestBody + `]}`,
		"a secret":            `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"},"spec":{}}`,
		"other group":         change(`discovery.liqo.io/`, `sharing.liqo.io/`),
		"other version":       change(`v1alpha1`, `v1`),
		"kind in other case":  change(`"kind"`, `"Kind"`),
		"kind as a number":    change(`"PeeringRequest"`, `1`),
		"kind twice":          change(`"kind"`, `"kind":"Advertisement","kind"`),
		"metadata twice":      change(`"metadata"`, `"metadata":{"name":"c"},"metadata"`),
		"name twice":          change(`"name":"b"`, `"name":"c","name":"b"`),
		"spec twice":          change(`"spec"`, `"spec":{},"spec"`),
		"twice deep":          change(`"clusterName"`, `"clusterName":"x","clusterName"`),
		"twice with escapes":  change(`"clusterName"`, `"cluster\u004eame":"x","clusterName"`),
		"spec of another":     change(`"clusterID":"b"`, `"clusterID":"c"`),
		"spec of nobody":      change(`"clusterID":"b",`, ``),
		"no identity":         change(`"clusterIdentity":{"clusterID":"b","clusterName":"mill"},`, ``),
		"identity is a text":  change(`{"clusterID":"b","clusterName":"mill"}`, `"b"`),
		"null spec":           `{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"PeeringRequest","metadata":{"name":"b"},"spec":null}`,
		"no spec":             `{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"PeeringRequest","metadata":{"name":"b"}}`,
		"YAML":                "apiVersion: discovery.liqo.io/v1alpha1\nkind: PeeringRequest\nmetadata: {name: b}\nspec: {}\n",
		"JSON and YAML":       endpointtest.RequestBody + "\n---\nkind: Secret\n",
		"a comment":           endpointtest.RequestBody + " # x",
		"two values":          endpointtest.RequestBody + endpointtest.RequestBody,
		"JSON patch":          `[{"op":"add","path":"/metadata/finalizers","value":["x"]}]`,
		"nothing":             ``,
		"null":                `null`,
		"a text":              `"x"`,
		"no UTF-8":            change(`mill`, "\xff"),
		"a byte order mark":   "\ufeff" + endpointtest.RequestBody,
		"mark in a text":      change(`mill`, "\ufeff"),
		"colour":              change(`mill`, `\u001b[31mmill`),
		"a line break":        change(`mill`, `a\nb`),
		"YAML's line break":   change(`mill`, "a\u0085b"),
		"another":             change(`mill`, `a\u2028b`),
		"colour in a name":    change(`"namespace"`, `"x\u001b":1,"namespace"`),
		"a merge key's owner": change(`"clusterID":"b",`, `"<<":{"clusterID":"b"},`),
		"deep":                change(`"liqo"`, strings.Repeat("[", 200)+strings.Repeat("]", 200)),
		"very deep":           change(`"liqo"`, strings.Repeat("[", 20000)+strings.Repeat("]", 20000)),
		"unfinished and deep": strings.Repeat(`{"a":`, 60000),
	} {
		if out, no := decide("b", "PATCH", endpointtest.OwnRequest, []byte(body)); no == nil || no.Status != http.StatusForbidden || no.Counted != refusal.Gateway || len(no.Text) > 1000 {
			t.Errorf("%s: %s %+v", name, out.Body, no)
		}
	}
	if _, no := decide("b", "PATCH", endpointtest.OwnAdvert, []byte(endpointtest.RequestBody)); no == nil {
		t.Error("a request at the path of an advertisement")
	}
	out, no := decide("b", "DELETE", endpointtest.OwnRequest, nil)
	if no != nil || string(out.Body) != `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}` || out.ContentType != "application/json" {
		t.Errorf("%s, %+v", out.Body, no)
	}
}

// Whatever is sent, only what is on the allow-list goes on, and it names nobody
// but the caller.
func FuzzGateway(f *testing.F) {
	for _, id := range []string{"b", "0558de48-097b-4b7d-ba04-6bd2a0f9d24f", "peeringrequests", "status", "apis"} {
		named := func(s string) string {
			return strings.NewReplacer(`/b`, "/"+id, `"b"`, `"`+id+`"`).Replace(s)
		}
		f.Add(id, "GET", named(endpointtest.OwnRequest), "")
		f.Add(id, "DELETE", named(endpointtest.OwnAdvert), "")
		f.Add(id, "PATCH", named(endpointtest.OwnRequest), named(endpointtest.RequestBody))
		f.Add(id, "PATCH", named(endpointtest.OwnAdvert), named(endpointtest.AdvertBody))
		f.Add(id, "PATCH", named(endpointtest.OwnRequest)+"?x", named(endpointtest.RequestBody)+"\n---\n{}")
		f.Add(id, "PATCH", named(endpointtest.OwnRequest)+"/../x", strings.Replace(named(endpointtest.RequestBody), `"name"`, `"name":"x","Name"`, 1))
	}
	f.Fuzz(func(t *testing.T, caller, method, target, body string) {
		id, err := peer.ParseClusterID(caller)
		if err != nil {
			return // nobody is let in with it
		}
		out, no := decide(id, method, target, []byte(body))
		if no != nil {
			if no.Status < 400 || no.Status > 499 || no.Reason == "" || no.Counted == "" || no.Text == "" {
				t.Errorf("%+v", no)
			}
			return
		}
		kinds := map[string][3]string{
			"/apis/discovery.liqo.io/v1alpha1/peeringrequests/" + caller: {"peeringrequests", "discovery.liqo.io/v1alpha1", "PeeringRequest"},
			"/apis/sharing.liqo.io/v1alpha1/advertisements/" + caller:    {"advertisements", "sharing.liqo.io/v1alpha1", "Advertisement"},
		}
		kind, ok := kinds[out.Path]
		if !ok || out.Resource != kind[0] || out.Method != method {
			t.Fatalf("%s %s as %q", out.Method, out.Path, out.Resource)
		}
		switch method {
		case "GET":
			if out.Body != nil || out.Query != "" || out.ContentType != "" {
				t.Errorf("GET with %+v", out)
			}
		case "DELETE":
			if out.Query != "" || string(out.Body) != `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}` {
				t.Errorf("DELETE with %+v", out)
			}
		case "PATCH":
			if out.Query != "fieldManager=liqo-peer&force=true" || out.ContentType != "application/apply-patch+yaml" {
				t.Errorf("PATCH with %+v", out)
			}
			var object map[string]json.RawMessage
			if err := json.Unmarshal(out.Body, &object); err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]string{
				"apiVersion": fmt.Sprintf("%q", kind[1]), "kind": fmt.Sprintf("%q", kind[2]), "metadata": fmt.Sprintf(`{"name":%q}`, caller),
			} {
				if string(object[name]) != want {
					t.Errorf("%s is %s", name, object[name])
				}
			}
			if len(object) != 4 {
				t.Errorf("it has %d members", len(object))
			}
			var members map[string]any
			if err := json.Unmarshal(object["spec"], &members); err != nil {
				t.Fatal(err)
			}
			owner := members["clusterId"]
			if kind[2] == "PeeringRequest" {
				identity, _ := members["clusterIdentity"].(map[string]any)
				owner = identity["clusterID"]
			}
			if owner != caller {
				t.Errorf("the owner is %v in %s", owner, out.Body)
			}
			for _, c := range string(out.Body) {
				if c < ' ' || c == 0x7f || c == 0x85 || c == 0xfeff {
					t.Errorf("%U in %q", c, out.Body)
				}
			}
			again, no := decide(id, method, target, out.Body)
			if no != nil || string(again.Body) != string(out.Body) {
				t.Errorf("%s is not stable: %s, %+v", out.Body, again.Body, no)
			}
		default:
			t.Errorf("method %q", method)
		}
	})
}
