package kubelet

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		method, path, query string
		want                string // subresource and query at the provider, or of a refusal status
		status              int
	}{
		{"GET", "/containerLogs/shop/web/main", "", "log?container=main", 0},
		{"GET", "/containerLogs/shop/web-0.a/main", "follow=true&stream=All&tailLines=0&limitBytes=7&sinceSeconds=9&timestamps=1&previous=false",
			"log?container=main&follow=true&limitBytes=7&sinceSeconds=9&tailLines=0&timestamps=true", 0},
		{"GET", "/containerLogs/shop/web/main", "sinceTime=2026-11-22T04:00:00Z&stream=Stderr&unknown=1",
			"log?container=main&sinceTime=2026-11-22T04%3A00%3A00Z&stream=Stderr", 0},
		{"GET", "/containerLogs/shop/web/main", "tail=5&previous=", "log?container=main&previous=true&tailLines=5", 0},
		{"GET", "/containerLogs/shop/web/main", "tail=all&tailLines=5", "log?container=main", 0},
		{"GET", "/containerLogs/shop/web/main", "container=other", "log?container=main", 0},
		{"GET", "/containerLogs/shop/web/main", "tailLines=-1", "", http.StatusBadRequest},
		{"GET", "/containerLogs/shop/web/main", "limitBytes=0", "", http.StatusBadRequest},
		{"GET", "/containerLogs/shop/web/main", "sinceTime=yesterday", "", http.StatusBadRequest},
		{"GET", "/containerLogs/shop/web/main", "stream=Both", "", http.StatusBadRequest},
		{"GET", "/containerLogs/shop/web/main", "follow=%zz", "", http.StatusBadRequest},
		{"POST", "/containerLogs/shop/web/main", "", "", http.StatusMethodNotAllowed},
		{"GET", "/containerLogs/shop/web", "", "", http.StatusNotFound},
		{"GET", "/containerLogs/shop/web/main/", "", "", http.StatusNotFound},
		{"GET", "/containerLogs/shop/../main", "", "", http.StatusBadRequest},
		{"GET", "/containerLogs/shop/w%2feb/main", "", "", http.StatusBadRequest},
		{"GET", "/containerLogs/Shop/web/main", "", "", http.StatusBadRequest},
		{"GET", "/containerLogs/shop/web/ma.in", "", "", http.StatusBadRequest},
		{"GET", "//containerLogs/shop/web/main", "", "", http.StatusNotFound},
		{"POST", "/exec/shop/web/main", "input=1&output=1&error=1&command=sh&command=-c&command=a+b%26c",
			"exec?command=sh&command=-c&command=a+b%26c&container=main&stderr=true&stdin=true&stdout=true", 0},
		{"GET", "/exec/shop/web/main", "output=1&error=1&tty=1&command=sh", "exec?command=sh&container=main&stdout=true&tty=true", 0},
		{"POST", "/exec/shop/web/main", "output=1", "", http.StatusBadRequest},
		{"POST", "/exec/shop/web/main", "command=sh&stdout=true", "", http.StatusBadRequest},
		{"DELETE", "/exec/shop/web/main", "", "", http.StatusMethodNotAllowed},
		{"POST", "/attach/shop/web/main", "output=1&error=1&command=sh", "attach?container=main&stderr=true&stdout=true", 0},
		{"POST", "/attach/shop/web/main", "", "", http.StatusBadRequest},
		{"POST", "/portForward/shop/web", "", "portforward?", 0},
		{"GET", "/portForward/shop/web", "port=80,8080&port=443", "portforward?ports=80&ports=8080&ports=443", 0},
		{"GET", "/portForward/shop/web", "port=0", "", http.StatusBadRequest},
		{"GET", "/portForward/shop/web", "port=70000", "", http.StatusBadRequest},
		{"GET", "/portForward/shop/web", "port=80,", "", http.StatusBadRequest},
		{"GET", "/portForward/shop/web", "port=1" + strings.Repeat(",1", maxPorts), "", http.StatusBadRequest},
		{"POST", "/run/shop/web/main", "cmd=id", "", http.StatusNotFound},
		{"GET", "/pods", "", "", http.StatusNotFound},
		{"GET", "/", "", "", http.StatusNotFound},
		{"GET", "", "", "", http.StatusNotFound},
		{"POST", "/metrics", "", "", http.StatusMethodNotAllowed},
	} {
		got, err := parse(test.method, test.path, test.query)
		var refused *refusal
		switch {
		case test.status != 0:
			if !errors.As(err, &refused) || refused.status != test.status {
				t.Errorf("%s %s?%s: %+v, %v", test.method, test.path, test.query, got, err)
			}
		case err != nil || got.subresource()+"?"+got.query.Encode() != test.want || !got.ofPod():
			t.Errorf("%s %s?%s: %s?%s, %v", test.method, test.path, test.query, got.subresource(), got.query.Encode(), err)
		}
	}
	for path, want := range nodeCalls {
		if got, err := parse("GET", path, ""); err != nil || got.kind != want || got.ofPod() {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
}

func TestNeeded(t *testing.T) {
	for _, test := range []struct{ method, path, query, want string }{
		{"GET", "/containerLogs/shop/web/main", "", "get proxy"},
		{"POST", "/exec/shop/web/main", "output=1&command=id", "create proxy"},
		{"GET", "/exec/shop/web/main", "output=1&command=id", "create proxy"},
		{"GET", "/attach/shop/web/main", "output=1", "create proxy"},
		{"GET", "/portForward/shop/web", "", "create proxy"},
		{"GET", "/metrics/resource", "", "get metrics"},
		{"GET", "/metricsque", "", "get proxy"},
		{"GET", "/stats/summary", "", "get stats"},
		{"GET", "/healthz", "", "get healthz proxy"},
	} {
		c, _ := parse(test.method, test.path, test.query)
		p := needed(test.method, test.path, c)
		if got := p.verb + " " + strings.Join(p.subresources, " "); got != test.want {
			t.Errorf("%s %s: %s", test.method, test.path, got)
		}
	}
}

// FuzzParse: what goes to a provider is only ever one of a few paths with known
// options, whatever comes.
func FuzzParse(f *testing.F) {
	f.Add("GET", "/containerLogs/shop/web/main", "follow=true&tailLines=3")
	f.Add("POST", "/exec/shop/web/main", "input=1&command=sh&tty=1")
	f.Add("GET", "/portForward/shop/web", "port=80,81")
	f.Add("GET", "/attach/shop/..%2f/main", "output=1&port=80")
	known := map[string]bool{"container": true, "follow": true, "previous": true, "timestamps": true, "tailLines": true, "limitBytes": true,
		"sinceSeconds": true, "sinceTime": true, "stream": true, "stdin": true, "stdout": true, "stderr": true, "tty": true, "command": true, "ports": true}
	f.Fuzz(func(t *testing.T, method, path, query string) {
		c, err := parse(method, path, query)
		if err != nil {
			var refused *refusal
			if !errors.As(err, &refused) || refused.status < 400 || refused.status > 499 {
				t.Fatalf("%v", err)
			}
			return
		}
		if !c.ofPod() {
			return
		}
		r := request(t.Context(), method, c, Place{Namespace: "there", Name: "pod"})
		if r.URL.Path != "/api/v1/namespaces/there/pods/pod/"+c.subresource() {
			t.Fatalf("path %q", r.URL.Path)
		}
		sent, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			t.Fatal(err)
		}
		for name := range sent {
			if !known[name] {
				t.Fatalf("option %q", name)
			}
		}
		if strings.ContainsAny(c.namespace+c.pod+sent.Get("container"), "/%?#\\ ") {
			t.Fatalf("names %q %q %q", c.namespace, c.pod, sent.Get("container"))
		}
	})
}
