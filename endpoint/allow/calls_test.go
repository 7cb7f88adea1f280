package allow

import (
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// allMethods are those that anybody may try.
var allMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "get", "", "WATCH"}

func TestGuestRoutes(t *testing.T) {
	const in = "/kube/api/v1/namespaces/b-shop/"
	for _, tc := range []struct {
		method, target, path, query string
		answer                      AnswerKind
	}{
		{"GET", "pods", "pods", "", ListAnswer},
		{"GET", "pods?", "pods", "", ListAnswer},
		{"GET", "pods?watch=1&allowWatchBookmarks=1", "pods", "allowWatchBookmarks=true&watch=true", Watching},
		{"GET", "pods?watch=0", "pods", "watch=false", ListAnswer},
		{"GET", "pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=0580&resourceVersion=12",
			"pods", "allowWatchBookmarks=true&resourceVersion=12&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=580&watch=true", Watching},
		{"GET", "secrets?limit=500&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ%3D%3D", "secrets", "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ%3D%3D&limit=500", ListAnswer},
		{"GET", "configmaps?fieldSelector=metadata.name%3Da.b-c", "configmaps", "fieldSelector=metadata.name%3Da.b-c", ListAnswer},
		{"GET", "events?watch=true", "events", "watch=true", Watching},
		{"POST", "pods?fieldManager=me", "pods", "", OneAnswer},
		{"GET", "pods/web-0.x", "pods/web-0.x", "", OneAnswer},
		{"PATCH", "pods/web", "pods/web", "", OneAnswer},
		{"PATCH", "pods/web/ephemeralcontainers?fieldManager=me", "pods/web/ephemeralcontainers", "", OneAnswer},
		{"PATCH", "secrets/web?fieldManager=me&force=true", "secrets/web", "", OneAnswer},
		{"DELETE", "configmaps/web", "configmaps/web", "", OneAnswer},
		{"GET", "services", "services", "", ListAnswer},
		{"PATCH", "services/web?fieldManager=me&force=true", "services/web", "", OneAnswer},
		{"DELETE", "services/web", "services/web", "", OneAnswer},
		{"GET", "pods/web/log", "pods/web/log", "", TextAnswer},
		{"GET", "pods/web/log?follow=true&container=c&tailLines=0&timestamps=true&previous=false&sinceSeconds=5&limitBytes=10", "pods/web/log",
			"container=c&follow=true&limitBytes=10&previous=false&sinceSeconds=5&tailLines=0&timestamps=true", Following},
		{"GET", "pods/web/log?sinceTime=2026-11-22T01%3A02%3A03.5%2B01%3A00", "pods/web/log", "sinceTime=2026-11-22T00%3A02%3A03.5Z", TextAnswer},
		{"POST", "pods/web/exec?command=sh&command=-c&command=echo+%22%26%3D%3F%22&command=&stdin=1&tty=true&container=c", "pods/web/exec",
			"command=sh&command=-c&command=echo+%22%26%3D%3F%22&command=&container=c&stdin=true&tty=true", Upgrading},
		{"GET", "pods/web/attach?stdout=true&stderr=true", "pods/web/attach", "stderr=true&stdout=true", Upgrading},
		{"GET", "pods/web/portforward?ports=80&ports=443", "pods/web/portforward", "ports=80&ports=443", Upgrading},
		{"POST", "pods/web/portforward", "pods/web/portforward", "", Upgrading},
	} {
		call, no := ParseCall(tc.method, in+tc.target)
		if no != nil || call.Path() != "/api/v1/namespaces/b-shop/"+tc.path || call.Query != tc.query || call.Answer != tc.answer || call.Namespace != "b-shop" {
			t.Errorf("%s %s: %+v, %+v", tc.method, tc.target, call, no)
		}
	}
}

// An answer that ends is bounded by what it is.
func TestLimit(t *testing.T) {
	for kind, want := range map[AnswerKind]int64{
		OneAnswer: 4 << 20, ListAnswer: 64 << 20, TextAnswer: 64 << 20, Watching: math.MaxInt64, Following: math.MaxInt64, Upgrading: math.MaxInt64,
	} {
		if got := (Call{Answer: kind}).Limit(); got != want {
			t.Errorf("answers of kind %d: %d bytes, want %d", kind, got, want)
		}
	}
}

// What pods use is in a group of its own, can be listed only, and leads to the pods of the
// caller.
func TestMetricsRoutes(t *testing.T) {
	const in = "apis/metrics.k8s.io/v1beta1/namespaces/b-shop/pods"
	call, no := ParseCall("GET", "/kube/"+in)
	if no != nil || call.Path() != "/"+in || call.Answer != ListAnswer || call.Selected("b") != "labelSelector=liqo.io%2Forigin-cluster-id%3Db" || !IsGuestPath("/kube/"+in) {
		t.Errorf("%+v, %+v", call, no)
	}
	for _, method := range allMethods {
		for _, target := range []string{
			in, in + "/web", in + "?watch=true", in + "?labelSelector=x", in + "/", "apis/metrics.k8s.io/v1beta1/nodes", "apis/metrics.k8s.io/v1beta1/pods",
			"apis/metrics.k8s.io/v1beta1/namespaces/b-shop/pods.metrics.k8s.io", "apis/metrics.k8s.io/v1beta1/namespaces/b-shop/secrets",
			"apis/metrics.k8s.io/v1/namespaces/b-shop/pods", "api/v1/namespaces/b-shop/pods.metrics.k8s.io", "apis/metrics.k8s.io/v1beta1/namespaces//pods",
		} {
			if call, no := ParseCall(method, "/kube/"+target); no == nil && (method != "GET" || target != in) {
				t.Errorf("%s %s goes to %s", method, target, call.Path())
			}
		}
	}
}

// EndpointSlices are in a group of their own, where there is nothing else.
func TestSliceRoutes(t *testing.T) {
	const in = "apis/discovery.k8s.io/v1/namespaces/b-shop/endpointslices"
	for _, c := range []struct{ method, end string }{{"GET", ""}, {"GET", "?watch=true"}, {"GET", "/web-liqo-4-0"}, {"PATCH", "/web-liqo-4-0?fieldManager=me"}, {"DELETE", "/web-liqo-4-0"}} {
		path, _, _ := strings.Cut(c.end, "?")
		call, no := ParseCall(c.method, "/kube/"+in+c.end)
		if no != nil || call.Path() != "/"+in+path || !IsGuestPath("/kube/"+in+c.end) {
			t.Errorf("%s %s: %+v, %+v", c.method, c.end, call, no)
		}
		const mine = "labelSelector=liqo.io%2Forigin-cluster-id%3Db%2Cendpointslice.kubernetes.io%2Fmanaged-by%3Dliqo-agent"
		if listed := call.Name == ""; listed != strings.Contains(call.Selected("b"), mine) {
			t.Errorf("%s %s: asks for %s", c.method, c.end, call.Selected("b"))
		}
	}
	for _, target := range []string{
		"/kube/apis/discovery.k8s.io/v1/namespaces/b-shop/pods", "/kube/apis/discovery.k8s.io/v1/namespaces/b-shop/services/web", "/kube/apis/discovery.k8s.io/v1/endpointslices",
		"/kube/apis/discovery.k8s.io/v1beta1/namespaces/b-shop/endpointslices", "/kube/api/v1/namespaces/b-shop/endpointslices/web", "/kube/" + in + "/web/status", "/kube/" + in + "/",
	} {
		if call, no := ParseCall("GET", target); no == nil {
			t.Errorf("%s goes to %s", target, call.Path())
		}
	}
	if call, no := ParseCall("POST", "/kube/"+in); no == nil {
		t.Errorf("POST goes to %s", call.Path())
	}
}

// TestReplacing: what an object has takes the place of what it had.
func TestReplacing(t *testing.T) {
	for object, want := range map[string]string{
		`{"kind":"Service","spec":{"selector":{"app":"web"},"ports":[{"port":80}],"sessionAffinityConfig":null}}`: `{"kind":"Service","spec":{"ports":[{"$patch":"replace"},{"port":80}],"selector":{"$patch":"replace","app":"web"},"sessionAffinityConfig":null}}`,
		`{"kind":"Service","spec":{"selector":null,"ports":null}}`:                                                `{"kind":"Service","spec":{"ports":[{"$patch":"replace"}],"selector":null}}`,
		`{"kind":"EndpointSlice","endpoints":[]}`:                                                                 `{"kind":"EndpointSlice","endpoints":[]}`,
	} {
		if got, err := Replacing([]byte(object)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", object, got, err)
		}
	}
	for _, bad := range []string{``, `[]`, `{"spec":[]}`} {
		if got, err := Replacing([]byte(bad)); err == nil {
			t.Errorf("%s: %s", bad, got)
		}
	}
}

func TestGuestRoutesRefused(t *testing.T) {
	refused := func(method, target string) {
		t.Helper()
		if call, no := ParseCall(method, target); no == nil {
			t.Errorf("%s %q goes to %s?%s", method, target, call.Path(), call.Query)
		} else if no.Status != 400 && no.Status != 403 && no.Status != 405 || no.Text == "" {
			t.Errorf("%s %q: %+v", method, target, no)
		}
	}
	const in = "/kube/api/v1/namespaces/b-shop/"
	good := []string{in + "pods", in + "pods/web", in + "pods/web/log", in + "pods/web/exec", in + "configmaps/c", in + "secrets/s", in + "events"}
	// Every other spelling of a good path is another path.
	for _, path := range good {
		segments := strings.Split(path, "/")
		for i := 4; i < len(segments); i++ {
			for _, twist := range []func(string) string{
				func(s string) string { return s + "/" },
				func(s string) string { return "/" + s },
				func(s string) string { return "./" + s },
				func(s string) string { return s + "/.." },
				func(s string) string { return "../" + s },
				func(s string) string { return s + "/../" + s },
				func(s string) string { return "%" + s },
				func(s string) string { return s + "%2f" },
				func(s string) string { return s + "%2F.." },
				func(s string) string { return "%2e%2e/" + s },
				func(s string) string { return "%" + strings.ToUpper(url.QueryEscape(s[:1])) + s },
				func(s string) string { return s[:1] + "%00" + s[1:] },
				func(s string) string { return s + "\x00" },
				func(s string) string { return s + " " },
				func(s string) string { return s + ";a=b" },
				func(s string) string { return s + "\\" },
				func(s string) string { return s + "#" },
				func(s string) string { return strings.ToUpper(s) },
				func(s string) string { return s + "é" },
				func(s string) string { return "-" + s },
				func(s string) string { return s + "-" },
				func(s string) string { return "." + s },
				func(s string) string { return s + "." },
				func(s string) string { return s + "..x" },
				func(s string) string { return s + ":" },
				func(s string) string { return s + "*" },
				func(string) string { return "" },
				func(string) string { return "." },
				func(string) string { return ".." },
				func(string) string { return "{name}" },
			} {
				twisted := slices.Clone(segments)
				twisted[i] = twist(twisted[i])
				refused("GET", strings.Join(twisted, "/"))
			}
		}
	}
	// Nothing else of the API server can be named.
	for _, path := range []string{
		"", "namespaces", "namespaces/b-shop", "namespaces/b-shop/", "nodes", "nodes/x/proxy", "pods", "secrets", "events", "persistentvolumes", "componentstatuses",
		"namespaces/b-shop/services/web/status", "namespaces/b-shop/services/web/proxy", "namespaces/b-shop/endpointslices", "namespaces/b-shop/serviceaccounts", "namespaces/b-shop/serviceaccounts/default/token", "namespaces/b-shop/resourcequotas",
		"namespaces/b-shop/limitranges", "namespaces/b-shop/endpoints", "namespaces/b-shop/persistentvolumeclaims/c/status", "namespaces/b-shop/replicationcontrollers",
		"namespaces/b-shop/bindings", "namespaces/b-shop/podtemplates", "namespaces/b-shop/status", "namespaces/b-shop/finalize",
		"namespaces/b-shop/pods/web/status", "namespaces/b-shop/pods/web/eviction", "namespaces/b-shop/pods/web/binding",
		"namespaces/b-shop/pods/web/proxy", "namespaces/b-shop/pods/web/proxy/x", "namespaces/b-shop/pods/web/resize", "namespaces/b-shop/pods/web/log/x",
		"namespaces/b-shop/events/e", "namespaces/b-shop/configmaps/c/status", "namespaces/b-shop/secrets/s/log", "namespaces/b-shop/secrets/s/exec",
		"watch/namespaces/b-shop/pods", "proxy/namespaces/b-shop/pods/web", "namespaces/b.shop/pods", "namespaces/" + strings.Repeat("a", 64) + "/pods",
		"namespaces/b-shop/pods/" + strings.Repeat("a", 254), "namespaces/b-shop/pods/{name}", "namespaces/b-shop/pods/web/{name}", "namespaces/b-shop/pods/web/",
	} {
		for _, method := range allMethods {
			refused(method, "/kube/api/v1/"+path)
		}
	}
	// Each path has its methods and no others.
	for _, path := range good {
		for _, method := range allMethods {
			allowed := slices.ContainsFunc(guestRoutes, func(r guestRoute) bool {
				call, no := ParseCall(method, path)
				return no == nil && r.method == method && r.resource == call.Resource
			})
			if _, no := ParseCall(method, path); (no == nil) != allowed {
				t.Errorf("%s %s: %v", method, path, no)
			}
		}
	}
	for _, method := range []string{"HEAD", "PUT", "OPTIONS", "DELETE"} {
		refused(method, in+"pods") // above all not a deletion of all of them
	}
	// Queries.
	for _, query := range []string{
		"labelSelector=a", "pretty=true", "dryRun=All", "watch=yes", "watch=TRUE", "watch=true&watch=true", "watch=true;limit=1", "%zz=1", "watch=%zz", "Watch=true",
		"limit=-1", "limit=1.5", "limit=1e3", "limit=10001", "limit=99999999999999999999", "limit=0x10", "limit=+1", "limit= 1", "limit=1&limit=2",
		"resourceVersion=abc", "resourceVersion=-1", "resourceVersion=12%26watch", "resourceVersionMatch=exact", "resourceVersionMatch=Exact%00",
		"continue=a%20b", "continue=%0a", "continue=" + strings.Repeat("a", maxContinue+1), "timeoutSeconds=86401", "sendInitialEvents=maybe",
		"fieldSelector=spec.nodeName%3Dx", "fieldSelector=metadata.name%3Da%2Cmetadata.namespace%3Dkube-system", "fieldSelector=metadata.name%3D%3Da",
		"fieldSelector=metadata.name!%3Da", "fieldSelector=metadata.name%3D", "fieldSelector=metadata.name%3DA", "fieldSelector=metadata.namespace%3Dx", "as=admin", "=", "=x", "&=",
	} {
		refused("GET", in+"pods?"+query)
	}
	for _, query := range []string{
		"watch=true", "container=A", "container=a.b", "container=../x", "tailLines=-1", "limitBytes=0", "sinceSeconds=0", "sinceTime=yesterday", "sinceTime=2026-11-22",
		"sinceTime=0000-01-01T00:00:00Z", "insecureSkipTLSVerifyBackend=true", "follow=2", "stream=Stdout", "command=x",
	} {
		refused("GET", in+"pods/web/log?"+query)
	}
	for _, query := range []string{
		"command=%00", "command=%ff", "stdin=2", "stdin=true&stdin=true", "ports=80", "follow=true", "container=-a", "command=" + strings.Repeat("&command=", maxCommand),
	} {
		refused("POST", in+"pods/web/exec?"+query)
	}
	for _, query := range []string{"ports=0", "ports=65536", "ports=80,443", "ports=a", "command=x", "stdin=true", strings.Repeat("ports=1&", maxPorts+1)} {
		refused("POST", in+"pods/web/portforward?"+query)
	}
	refused("GET", in+"pods/web?watch=true")
	refused("GET", in+"pods/web?pretty=true")
	refused("DELETE", in+"pods/web?gracePeriodSeconds=0")
	refused("POST", in+"pods?dryRun=All")
	refused("PATCH", in+"pods/web?fieldValidation=Ignore")
}

// FuzzGatewayRoute: whatever is let through has one spelling, is what the table
// says, and reads the same to a reader with other rules.
func FuzzGatewayRoute(f *testing.F) {
	for _, seed := range []string{"pods", "pods?watch=true", "pods/web/exec?command=a&command=b&stdin=1", "pods/../secrets", "pods/%2e%2e", "pods/web/log?sinceTime=2026-11-22T00:00:00Z",
		"events?fieldSelector=metadata.name%3Dx", "secrets/s", "pods//web", "pods/web?", "configmaps/c?force=1"} {
		f.Add("GET", "/kube/api/v1/namespaces/b-shop/"+seed)
		f.Add("POST", "/kube/api/v1/namespaces/b-shop/"+seed)
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		if !IsGuestPath(target) {
			return
		}
		call, no := ParseCall(method, target)
		if no != nil {
			return
		}
		path, _, _ := strings.Cut(target, "?")
		if "/kube"+call.Path() != path {
			t.Fatalf("%q goes to %q", target, call.Path())
		}
		u, err := url.Parse("https://x" + call.Path() + "?" + call.Query)
		if err != nil || u.Path != call.Path() || u.RawPath != "" || u.JoinPath().Path != call.Path() || u.Fragment != "" {
			t.Fatalf("%q: %v %v", target, u, err)
		}
		if strings.Trim(call.Path(), "abcdefghijklmnopqrstuvwxyz0123456789-./") != "" || strings.Contains(path, "..") || strings.Contains(path, "//") {
			t.Fatalf("%q goes to %q", target, call.Path())
		}
		if !slices.ContainsFunc(guestRoutes, func(r guestRoute) bool { return r.method == method && r.resource == call.Resource }) {
			t.Fatalf("%s %q", method, target)
		}
		if call.Method == http.MethodDelete && call.Name == "" {
			t.Fatalf("%q deletes a collection", target)
		}
		// It is its own canonical form.
		again, no := ParseCall(method, "/kube"+call.Path()+"?"+call.Query)
		if no != nil || again != call {
			t.Fatalf("%q: %+v and then %+v, %v", target, call, again, no)
		}
		values, err := url.ParseQuery(call.Query)
		if err != nil {
			t.Fatalf("%q: %v", target, err)
		}
		for name, all := range values {
			if len(all) > 1 && name != "command" && name != "ports" {
				t.Fatalf("%q: %q", target, call.Query)
			}
		}
	})
}
