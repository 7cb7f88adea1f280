package kubelet

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// kind is what a call is about.
type kind int

const (
	containerLogs kind = iota
	exec
	attach
	portForward
	health
	resourceMetrics
	noMetrics
	statsSummary
)

// maxPorts bounds how many ports one call forwards.
const maxPorts = 64

// call is what a request asks for.
type call struct {
	kind      kind
	node      string // of a call that names one, and no pod
	namespace string // of the pod in this cluster
	pod       string
	query     url.Values // for the provider's API server
}

// ofPod is whether a call is about a pod.
func (c call) ofPod() bool { return c.kind <= portForward }

// subresource is what the API server of the provider calls it.
func (c call) subresource() string {
	switch c.kind {
	case exec:
		return "exec"
	case attach:
		return "attach"
	case portForward:
		return "portforward"
	}
	return "log"
}

// refusal is an answer other than what was asked for: a status, and a sentence for
// a person, which the API server shows as it is.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status: status, text: fmt.Sprintf(format, args...)}
}

// nodeCalls are the calls that are not about a pod.
var nodeCalls = map[string]kind{
	"/healthz":          health,
	"/metrics":          noMetrics,
	"/metrics/cadvisor": noMetrics,
	"/metrics/probes":   noMetrics,
	resourcePath:        resourceMetrics,
	"/stats/summary":    statsSummary,
}

// resourcePath is where kubelets say what their pods use.
const resourcePath = "/metrics/resource"

// ResourcePath returns where the port says what the pods of one virtual node use. All
// nodes share the port, and scrapers name none at the path of a kubelet.
func ResourcePath(node string) string { return resourcePath + "/" + node }

// proxiedNode returns the node that the caller asked the API server's proxy for, "" if that
// did not forward the call. Callers of a proxy cannot say it in its place.
func proxiedNode(header http.Header) string {
	rest, found := strings.CutPrefix(header.Get("X-Forwarded-Uri"), "/api/v1/nodes/")
	name, rest, _ := strings.Cut(rest, "/")
	if !found || !strings.HasPrefix(rest, "proxy/") || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return ""
	}
	return name
}

// parse says what a request to the kubelet API is about: method, path as it was
// sent, and query. Paths and queries are those of the kubelet's server
// (k8s.io/kubernetes/pkg/kubelet/server), with the options translated into those
// of the API server's subresources of a pod.
func parse(method, path, rawQuery string) (call, error) {
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return call{}, refuse(http.StatusBadRequest, "the query cannot be decoded")
	}
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch {
	case !strings.HasPrefix(path, "/"):
	case segments[0] == "containerLogs" && len(segments) == 4:
		return podCall(containerLogs, segments[1:], method, query)
	case segments[0] == "exec" && len(segments) == 4:
		return podCall(exec, segments[1:], method, query)
	case segments[0] == "attach" && len(segments) == 4:
		return podCall(attach, segments[1:], method, query)
	case segments[0] == "portForward" && len(segments) == 3:
		return podCall(portForward, segments[1:], method, query)
	}
	node := ""
	if name, one := strings.CutPrefix(path, resourcePath+"/"); one && len(validation.IsDNS1123Subdomain(name)) == 0 {
		path, node = resourcePath, name
	}
	if kind, known := nodeCalls[path]; known {
		if method != http.MethodGet {
			return call{}, refuse(http.StatusMethodNotAllowed, "%s is not possible here", method)
		}
		return call{kind: kind, node: node}, nil
	}
	return call{}, refuse(http.StatusNotFound, "a virtual node does not have this part of the kubelet API")
}

func podCall(kind kind, names []string, method string, query url.Values) (call, error) {
	if method != http.MethodGet && (method != http.MethodPost || kind == containerLogs) {
		return call{}, refuse(http.StatusMethodNotAllowed, "%s is not possible here", method)
	}
	c := call{kind: kind, namespace: names[0], pod: names[1]}
	if len(validation.IsDNS1123Label(c.namespace)) > 0 || len(validation.IsDNS1123Subdomain(c.pod)) > 0 {
		return call{}, refuse(http.StatusBadRequest, "the namespace or the name of the pod is not valid")
	}
	if kind != portForward && len(validation.IsDNS1123Label(names[2])) > 0 {
		return call{}, refuse(http.StatusBadRequest, "the name of the container is not valid")
	}
	var err error
	switch kind {
	case containerLogs:
		c.query, err = logOptions(query)
	case exec, attach:
		c.query, err = streamOptions(kind, query)
	case portForward:
		c.query, err = ports(query)
	}
	if err != nil {
		return call{}, err
	}
	if kind != portForward {
		c.query.Set("container", names[2])
	}
	return c, nil
}

// logOptions returns the options of a log for the API server (PodLogOptions).
// What is not among them is left out, as a kubelet ignores it.
func logOptions(query url.Values) (url.Values, error) {
	out := url.Values{}
	for _, name := range []string{"follow", "previous", "timestamps"} {
		if isTrue(query, name) {
			out.Set(name, "true")
		}
	}
	if tail := query.Get("tail"); tail != "" { // as kubelets still understand it
		query.Set("tailLines", tail)
		if tail == "all" {
			query.Del("tailLines")
		}
	}
	for _, option := range []struct {
		name  string
		least int64
	}{{"tailLines", 0}, {"limitBytes", 1}, {"sinceSeconds", 1}} {
		text := query.Get(option.name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < option.least {
			return nil, refuse(http.StatusBadRequest, "%s must be a number from %d", option.name, option.least)
		}
		out.Set(option.name, strconv.FormatInt(n, 10))
	}
	if text := query.Get("sinceTime"); text != "" {
		since, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "sinceTime must be a time as in RFC 3339")
		}
		out.Set("sinceTime", since.Format(time.RFC3339))
	}
	switch stream := query.Get("stream"); stream {
	case "", "All": // the default, which older API servers do not know by name
	case "Stdout", "Stderr":
		out.Set("stream", stream)
	default:
		return nil, refuse(http.StatusBadRequest, "stream must be All, Stdout or Stderr")
	}
	return out, nil
}

// isTrue reads a flag as Kubernetes does.
func isTrue(query url.Values, name string) bool {
	if !query.Has(name) {
		return false
	}
	value := query.Get(name)
	return value != "0" && !strings.EqualFold(value, "false")
}

// streamOptions returns the options of exec and attach for the API server
// (PodExecOptions, PodAttachOptions). A kubelet calls the streams input, output
// and error.
func streamOptions(kind kind, query url.Values) (url.Values, error) {
	out := url.Values{}
	tty := query.Get("tty") == "1"
	for ours, theirs := range map[string]string{"input": "stdin", "output": "stdout", "error": "stderr"} {
		// A terminal has one stream for both kinds of output.
		if query.Get(ours) == "1" && (ours != "error" || !tty) {
			out.Set(theirs, "true")
		}
	}
	if len(out) == 0 {
		return nil, refuse(http.StatusBadRequest, "you must specify at least 1 of stdin, stdout, stderr")
	}
	if tty {
		out.Set("tty", "true")
	}
	if kind == exec {
		command := query["command"]
		if len(command) == 0 {
			return nil, refuse(http.StatusBadRequest, "a command is required")
		}
		out["command"] = command
	}
	return out, nil
}

// ports returns the options of a port-forward for the API server
// (PodPortForwardOptions). Over SPDY there are none: there the streams name them.
func ports(query url.Values) (url.Values, error) {
	out := url.Values{}
	for _, list := range query["port"] {
		for text := range strings.SplitSeq(list, ",") {
			n, err := strconv.ParseUint(text, 10, 16)
			if err != nil || n == 0 {
				return nil, refuse(http.StatusBadRequest, "port is not a port number")
			}
			if len(out["ports"]) == maxPorts {
				return nil, refuse(http.StatusBadRequest, "no more than %d ports can be forwarded by one call", maxPorts)
			}
			out.Add("ports", strconv.FormatUint(n, 10))
		}
	}
	return out, nil
}
