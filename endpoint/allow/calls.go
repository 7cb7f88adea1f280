package allow

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
)

// The beginnings of the paths of the API server that are about the namespaces that a peer
// has here.
const (
	core      = "api/v1/"
	discovery = "apis/discovery.k8s.io/v1/"
	metrics   = "apis/metrics.k8s.io/v1beta1/"
)

// EndpointSlices is the resource of which Kubernetes makes objects with a peer's label,
// which it takes from the Service.
const EndpointSlices = "endpointslices"

// PodMetrics is the resource that says what pods use, which is another than pods, of the
// same name in its group.
const PodMetrics = "pods.metrics.k8s.io"

// Claims is the resource of which nothing but the size can change.
const Claims = "persistentvolumeclaims"

// Ephemeral is the subresource of a pod by which ephemeral containers are added to it.
const Ephemeral = "ephemeralcontainers"

// The forms of what a path can name.
const (
	collection = ""       // .../pods
	oneObject  = "{name}" // .../pods/web; anything else is a subresource of one
)

// AnswerKind says what the API server's answer to a request is, and so how it is
// passed on.
type AnswerKind int

// What an answer is.
const (
	OneAnswer  AnswerKind = iota // an object, or a Status
	ListAnswer                   // a list, which may be large
	TextAnswer                   // a log up to now
	Watching                     // events, without end
	Following                    // a log, without end
	Upgrading                    // a connection
)

// guestRoute is one row of what peers may do in the namespaces that they have here.
type guestRoute struct {
	resource, form, method string
	query                  []param // that the caller may send, in the order in which it is sent on
	answer                 AnswerKind
	endless                string // the parameter that makes it an answer without end; "" for none
}

// guestRoutes is everything that peers may do in the namespaces that they have
// here. What is not here is refused.
var guestRoutes = []guestRoute{
	{resource: "pods", method: http.MethodGet, query: listParams, answer: ListAnswer, endless: "watch"},
	{resource: "pods", method: http.MethodPost, query: writeParams},
	{resource: "pods", form: oneObject, method: http.MethodGet},
	{resource: "pods", form: oneObject, method: http.MethodPatch, query: writeParams},
	{resource: "pods", form: oneObject, method: http.MethodDelete},
	{resource: "pods", form: Ephemeral, method: http.MethodPatch, query: writeParams},
	{resource: "pods", form: "log", method: http.MethodGet, query: logParams, answer: TextAnswer, endless: "follow"},
	{resource: "pods", form: "exec", method: http.MethodGet, query: execParams, answer: Upgrading},
	{resource: "pods", form: "exec", method: http.MethodPost, query: execParams, answer: Upgrading},
	{resource: "pods", form: "attach", method: http.MethodGet, query: attachParams, answer: Upgrading},
	{resource: "pods", form: "attach", method: http.MethodPost, query: attachParams, answer: Upgrading},
	{resource: "pods", form: "portforward", method: http.MethodGet, query: forwardParams, answer: Upgrading},
	{resource: "pods", form: "portforward", method: http.MethodPost, query: forwardParams, answer: Upgrading},

	{resource: "configmaps", method: http.MethodGet, query: listParams, answer: ListAnswer, endless: "watch"},
	{resource: "configmaps", form: oneObject, method: http.MethodGet},
	{resource: "configmaps", form: oneObject, method: http.MethodPatch, query: writeParams},
	{resource: "configmaps", form: oneObject, method: http.MethodDelete},

	{resource: "secrets", method: http.MethodGet, query: listParams, answer: ListAnswer, endless: "watch"},
	{resource: "secrets", form: oneObject, method: http.MethodGet},
	{resource: "secrets", form: oneObject, method: http.MethodPatch, query: writeParams},
	{resource: "secrets", form: oneObject, method: http.MethodDelete},

	{resource: "services", method: http.MethodGet, query: listParams, answer: ListAnswer, endless: "watch"},
	{resource: "services", form: oneObject, method: http.MethodGet},
	{resource: "services", form: oneObject, method: http.MethodPatch, query: writeParams},
	{resource: "services", form: oneObject, method: http.MethodDelete},

	{resource: EndpointSlices, method: http.MethodGet, query: listParams, answer: ListAnswer, endless: "watch"},
	{resource: EndpointSlices, form: oneObject, method: http.MethodGet},
	{resource: EndpointSlices, form: oneObject, method: http.MethodPatch, query: writeParams},
	{resource: EndpointSlices, form: oneObject, method: http.MethodDelete},

	{resource: Claims, method: http.MethodGet, query: listParams, answer: ListAnswer, endless: "watch"},
	{resource: Claims, form: oneObject, method: http.MethodGet},
	{resource: Claims, form: oneObject, method: http.MethodPatch, query: writeParams},
	{resource: Claims, form: oneObject, method: http.MethodDelete},

	{resource: PodMetrics, method: http.MethodGet, answer: ListAnswer},
	{resource: "events", method: http.MethodGet, query: listParams, answer: ListAnswer, endless: "watch"},
}

// Call is a request about a namespace that a peer has here. Every part of it
// was checked.
type Call struct {
	Method                            string
	Namespace, Resource, Name, Within string // Within is the subresource
	Query                             string // to be sent on
	Answer                            AnswerKind
	UID                               types.UID // of the object that was found under that name, or Nobody
}

// Path is where the API server has what the call is about.
func (g Call) Path() string {
	resource, _, _ := strings.Cut(g.Resource, ".")
	path := "/" + groupOf(g.Resource) + "namespaces/" + g.Namespace + "/" + resource
	if g.Name != "" {
		path += "/" + g.Name
	}
	if g.Within != "" {
		path += "/" + g.Within
	}
	return path
}

// groupOf returns the beginning of the paths of a resource.
func groupOf(resource string) string {
	switch resource {
	case EndpointSlices:
		return discovery
	case PodMetrics:
		return metrics
	}
	return core
}

// Request returns the request to send for the call, without a body.
func (g Call) Request() Request {
	return Request{Method: g.Method, Path: g.Path(), Query: g.Query, Resource: g.Resource, Accept: g.accepts(), Guest: true}
}

// Lasts reports whether the answer has no end of its own.
func (g Call) Lasts() bool { return g.Answer == Watching || g.Answer == Following }

// Selected returns the query of the call; that of a list or watch leads to the objects
// of the consumer only.
func (g Call) Selected(id peer.ClusterID) string {
	if g.Name != "" || g.Resource == "events" || g.Method != http.MethodGet {
		return g.Query
	}
	labels := api.LabelOriginCluster + "=" + string(id)
	if g.Resource == EndpointSlices {
		labels += "," + api.LabelSliceManager + "=" + api.ManagedByAgent
	}
	selector := "labelSelector=" + url.QueryEscape(labels)
	if g.Query == "" {
		return selector
	}
	return g.Query + "&" + selector
}

// IsGuestPath reports whether the target of a request is about a namespace of a
// peer.
func IsGuestPath(target string) bool { _, _, ok := cutGroup(target); return ok }

// cutGroup divides a path at the gateway into the group and what follows; false when it is
// about no namespace of a peer.
func cutGroup(path string) (group, rest string, ok bool) {
	for _, group := range []string{core, discovery, metrics} {
		if rest, ok := strings.CutPrefix(path, wire.PathGateway+group); ok {
			return group, rest, true
		}
	}
	return "", "", false
}

// ParseCall reads the method and target of a request, as it was sent. Paths
// are matched byte for byte: a segment is the word of the table or a name that
// needs no escapes, so there is one spelling of each.
func ParseCall(method, target string) (Call, *refusal.Refusal) {
	path, query, _ := strings.Cut(target, "?")
	group, rest, ok := cutGroup(path)
	segments := strings.Split(rest, "/")
	if !ok || len(segments) < 3 || len(segments) > 5 || segments[0] != "namespaces" || !IsLabel(segments[1]) {
		return Call{}, noSuchGuestPath()
	}
	call := Call{Method: method, Namespace: segments[1], Resource: segments[2]}
	if group == metrics {
		call.Resource += ".metrics.k8s.io"
	}
	form := collection
	if len(segments) > 3 {
		form, call.Name = oneObject, segments[3]
		if !IsName(call.Name) {
			return Call{}, noSuchGuestPath()
		}
	}
	if len(segments) > 4 {
		form, call.Within = segments[4], segments[4]
		if form == collection || form == oneObject {
			return Call{}, noSuchGuestPath()
		}
	}
	var methods []string
	for _, r := range guestRoutes {
		if r.resource != call.Resource || r.form != form || groupOf(r.resource) != group {
			continue
		}
		if r.method != method {
			methods = append(methods, r.method)
			continue
		}
		call.Answer = r.answer
		given, err := parseQuery(query, r.query)
		if err != nil {
			return Call{}, refusal.BadBody("the query cannot be passed on to the API server: " + err.Error())
		}
		call.Query = encodeQuery(given, r.query)
		if r.endless != "" && given.Get(r.endless) == "true" {
			call.Answer += Watching - ListAnswer // a list becomes a watch, and a log is followed
		}
		return call, nil
	}
	if len(methods) > 0 {
		return Call{}, refusal.NotAllowed(strings.Join(methods, ", "))
	}
	return Call{}, noSuchGuestPath()
}

func noSuchGuestPath() *refusal.Refusal {
	return refusal.NotPermitted("a peer can reach pods, configmaps, secrets, services, endpointslices, persistentvolumeclaims, events and metrics of pods in namespaces that it was given here, one at a time, and nothing else; correct the path")
}

// IsLabel reports whether s is a label of RFC 1123, as the names of namespaces and
// containers are.
func IsLabel(s string) bool { return len(validation.IsDNS1123Label(s)) == 0 }

// IsName reports whether s is a name of RFC 1123 in small letters, as the names of
// objects are.
func IsName(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }
