package kubelet

import (
	"net/http"
	"strings"
)

// permission is what a caller needs: a verb on one of some subresources of a node.
type permission struct {
	verb         string
	subresources []string // any of them suffices
	node         string   // "" for any node
}

// needed returns what a kubelet demands of the caller of a path (KEP-2862,
// fine-grained kubelet API authorization). exec, attach and portForward are
// always a "create": a kubelet takes a WebSocket's GET for a "get", which lets who
// may only read run commands.
func needed(method, path string, c call) permission {
	p := permission{verb: "get", subresources: []string{"proxy"}}
	switch {
	case c.ofPod() && c.kind != containerLogs, method == http.MethodPost:
		p.verb = "create"
	}
	switch {
	case under(path, "/healthz"):
		p.subresources = []string{"healthz", "proxy"}
	case under(path, "/stats"):
		p.subresources = []string{"stats"}
	case under(path, "/metrics"):
		p.subresources = []string{"metrics"}
	}
	return p
}

func under(path, tree string) bool {
	rest, ok := strings.CutPrefix(path, tree)
	return ok && (rest == "" || rest[0] == '/')
}
