package endpoint

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// pathGuests is the beginning of the paths at the gateway that are about the
// namespaces that a peer has here.
const pathGuests = PathGateway + "api/v1/"

// The forms of what a path can name.
const (
	collection = ""       // .../pods
	oneObject  = "{name}" // .../pods/web; anything else is a subresource of one
)

// answerKind says what the API server's answer to a request is, and so how it is
// passed on.
type answerKind int

const (
	oneAnswer  answerKind = iota // an object, or a Status
	listAnswer                   // a list, which may be large
	textAnswer                   // a log up to now
	watching                     // events, without end
	following                    // a log, without end
	upgrading                    // a connection
)

// guestRoute is one row of what peers may do in the namespaces that they have here.
type guestRoute struct {
	resource, form, method string
	query                  []param // that the caller may send, in the order in which it is sent on
	answer                 answerKind
	endless                string // the parameter that makes it an answer without end; "" for none
}

// guestRoutes is everything that peers may do in the namespaces that they have
// here. What is not here is refused.
var guestRoutes = []guestRoute{
	{resource: "pods", method: http.MethodGet, query: listParams, answer: listAnswer, endless: "watch"},
	{resource: "pods", method: http.MethodPost, query: writeParams},
	{resource: "pods", form: oneObject, method: http.MethodGet},
	{resource: "pods", form: oneObject, method: http.MethodPatch, query: writeParams},
	{resource: "pods", form: oneObject, method: http.MethodDelete},
	{resource: "pods", form: "log", method: http.MethodGet, query: logParams, answer: textAnswer, endless: "follow"},
	{resource: "pods", form: "exec", method: http.MethodGet, query: execParams, answer: upgrading},
	{resource: "pods", form: "exec", method: http.MethodPost, query: execParams, answer: upgrading},
	{resource: "pods", form: "attach", method: http.MethodGet, query: attachParams, answer: upgrading},
	{resource: "pods", form: "attach", method: http.MethodPost, query: attachParams, answer: upgrading},
	{resource: "pods", form: "portforward", method: http.MethodGet, query: forwardParams, answer: upgrading},
	{resource: "pods", form: "portforward", method: http.MethodPost, query: forwardParams, answer: upgrading},

	{resource: "configmaps", method: http.MethodGet, query: listParams, answer: listAnswer, endless: "watch"},
	{resource: "configmaps", form: oneObject, method: http.MethodGet},
	{resource: "configmaps", form: oneObject, method: http.MethodPatch, query: writeParams},
	{resource: "configmaps", form: oneObject, method: http.MethodDelete},

	{resource: "secrets", method: http.MethodGet, query: listParams, answer: listAnswer, endless: "watch"},
	{resource: "secrets", form: oneObject, method: http.MethodGet},
	{resource: "secrets", form: oneObject, method: http.MethodPatch, query: writeParams},
	{resource: "secrets", form: oneObject, method: http.MethodDelete},

	{resource: "events", method: http.MethodGet, query: listParams, answer: listAnswer, endless: "watch"},
}

// guestCall is a request about a namespace that a peer has here. Every part of it
// was checked.
type guestCall struct {
	method                            string
	namespace, resource, name, within string // within is the subresource
	query                             string // to be sent on
	answer                            answerKind
	uid                               types.UID // of the object that was found under that name, or nobody
}

// path is where the API server has what the call is about.
func (g guestCall) path() string {
	path := "/api/v1/namespaces/" + g.namespace + "/" + g.resource
	if g.name != "" {
		path += "/" + g.name
	}
	if g.within != "" {
		path += "/" + g.within
	}
	return path
}

// lasts reports whether the answer has no end of its own.
func (g guestCall) lasts() bool { return g.answer == watching || g.answer == following }

// isGuestPath reports whether the target of a request is about a namespace of a
// peer.
func isGuestPath(target string) bool { return strings.HasPrefix(target, pathGuests) }

// parseGuestCall reads the method and target of a request, as it was sent. Paths
// are matched byte for byte: a segment is the word of the table or a name that
// needs no escapes, so there is one spelling of each.
func parseGuestCall(method, target string) (guestCall, *refusal) {
	path, query, _ := strings.Cut(target, "?")
	segments := strings.Split(strings.TrimPrefix(path, pathGuests), "/")
	if len(segments) < 3 || len(segments) > 5 || segments[0] != "namespaces" || !isLabel(segments[1]) {
		return guestCall{}, noSuchGuestPath()
	}
	call := guestCall{method: method, namespace: segments[1], resource: segments[2]}
	form := collection
	if len(segments) > 3 {
		form, call.name = oneObject, segments[3]
		if !isName(call.name) {
			return guestCall{}, noSuchGuestPath()
		}
	}
	if len(segments) > 4 {
		form, call.within = segments[4], segments[4]
		if form == collection || form == oneObject {
			return guestCall{}, noSuchGuestPath()
		}
	}
	var methods []string
	for _, r := range guestRoutes {
		if r.resource != call.resource || r.form != form {
			continue
		}
		if r.method != method {
			methods = append(methods, r.method)
			continue
		}
		call.answer = r.answer
		given, err := parseQuery(query, r.query)
		if err != nil {
			return guestCall{}, badBody("the query cannot be passed on to the API server: " + err.Error())
		}
		call.query = encodeQuery(given, r.query)
		if r.endless != "" && given.Get(r.endless) == "true" {
			call.answer += watching - listAnswer // a list becomes a watch, and a log is followed
		}
		return call, nil
	}
	if len(methods) > 0 {
		return guestCall{}, notAllowed(strings.Join(methods, ", "))
	}
	return guestCall{}, noSuchGuestPath()
}

func noSuchGuestPath() *refusal {
	return notPermitted("a peer can reach pods, configmaps, secrets and events in namespaces that it was given here, one at a time, and nothing else; correct the path")
}

// isLabel reports whether s is a label of RFC 1123, as the names of namespaces and
// containers are.
func isLabel(s string) bool { return len(s) <= 63 && isLabels(s, false) }

// isName reports whether s is a name of RFC 1123 in small letters, as the names of
// objects are.
func isName(s string) bool { return len(s) <= 253 && isLabels(s, true) }

// isLabels reports whether s is a label of RFC 1123, or, with dots, several with
// dots between them.
func isLabels(s string, dots bool) bool {
	before := byte('.') // what comes before the first label
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c == '-' && before != '.':
		case c == '.' && dots && before != '.' && before != '-':
		default:
			return false
		}
		before = c
	}
	return before != '.' && before != '-'
}
