package allow

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"

	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
)

// The media types of patches.
const (
	ApplyPatch     = "application/apply-patch+yaml"
	MergePatch     = "application/merge-patch+json"
	StrategicPatch = "application/strategic-merge-patch+json"
)

// AsPeer is the query of whoever writes in a peer's name: this field manager.
const AsPeer = "fieldManager=liqo-peer"

const (
	// MaxObject is how many bytes an object may have that a peer applies as its own.
	MaxObject = 64 << 10

	// ownID stands for the caller's cluster ID in the path of a route.
	ownID = "{id}"
)

// objectRoutes is what peers may do with objects of their own. What is in neither
// table is refused. A row names its path exactly; only whole segments that are
// ownID vary, and those can be nothing but the caller's own cluster ID.
var objectRoutes = []route{
	{
		path: "/apis/discovery.liqo.io/v1alpha1/peeringrequests/" + ownID, resource: "peeringrequests",
		actions: objectActions("discovery.liqo.io/v1alpha1", "PeeringRequest", "clusterIdentity", "clusterID"),
	},
	{
		path: "/apis/sharing.liqo.io/v1alpha1/advertisements/" + ownID, resource: "advertisements",
		actions: objectActions("sharing.liqo.io/v1alpha1", "Advertisement", "clusterId"),
	},
}

// route is one row of the allow-list.
type route struct {
	path     string // below the API server's root
	resource string // the plural name
	actions  []action
}

// action is a method of a route and what the gateway makes of it.
type action struct {
	method string
	Takes  string // the media type of the body that the caller sends, "" for none
	// The request that is sent: query, media type of the body, and the body, which
	// make returns from the caller's. A nil make means no body.
	query, sends string
	make         func(id peer.ClusterID, body []byte) ([]byte, error)
}

// objectActions are what a peer may do with its own object of a kind. owner is
// where the object's spec names the cluster that it is from.
func objectActions(apiVersion, kind string, owner ...string) []action {
	return []action{
		{method: http.MethodGet},
		{
			method: http.MethodPatch, Takes: ApplyPatch,
			query: AsPeer + "&force=true", sends: ApplyPatch,
			make: func(id peer.ClusterID, body []byte) ([]byte, error) {
				return checkObject(id, body, apiVersion, kind, owner)
			},
		},
		{
			method: http.MethodDelete, sends: "application/json",
			make: func(peer.ClusterID, []byte) ([]byte, error) {
				return []byte(`{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}`), nil
			},
		},
	}
}

// Match is an action at the path that a caller asked for.
type Match struct {
	action
	path, resource string
}

// Request is a request for the API server.
type Request struct {
	Method, Path, Query, Resource string
	Accept                        string // the media types wanted; "" for JSON
	ContentType                   string // of Body
	Body                          []byte // nil: none
	Guest                         bool   // it is about a namespace that the caller has here
}

// Find returns what the method and target of a request, as it was sent,
// stand for on the allow-list, or why there is no such thing.
func Find(id peer.ClusterID, method, target string) (Match, *refusal.Refusal) {
	root := strings.TrimSuffix(wire.PathGateway, "/")
	for _, r := range objectRoutes {
		path := strings.ReplaceAll(r.path, ownID, string(id))
		if target != root+path {
			continue
		}
		var methods []string
		for _, a := range r.actions {
			if a.method == method {
				return Match{a, path, r.resource}, nil
			}
			methods = append(methods, a.method)
		}
		return Match{}, refusal.NotAllowed(strings.Join(methods, ", "))
	}
	return Match{}, refusal.NotPermitted("a peer can reach its own PeeringRequest and its own Advertisement at the API server and nothing else, " +
		"at the exact path and without a query; correct the path")
}

// Request returns the request to send for m, if body is as it has to be.
func (m Match) Request(id peer.ClusterID, body []byte) (Request, *refusal.Refusal) {
	out := Request{Method: m.method, Path: m.path, Query: m.query, Resource: m.resource, ContentType: m.sends}
	if m.make == nil {
		return out, nil
	}
	var err error
	if out.Body, err = m.make(id, body); err != nil {
		return Request{}, refusal.NotPermitted("the body cannot be passed on to the API server: " + err.Error())
	}
	return out, nil
}

// checkObject checks that body is a complete object of the kind that belongs to
// cluster id, with nothing in it but its name and spec, and returns it encoded
// anew: whatever another reader makes of body (the API server reads it as YAML),
// it sees exactly what was checked here.
func checkObject(id peer.ClusterID, body []byte, apiVersion, kind string, owner []string) ([]byte, error) {
	value, err := wire.ReadJSON(body, wire.JSONRules{Text: checkText})
	if err != nil {
		return nil, err
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("it is not an object")
	}
	metadata, _ := object["metadata"].(map[string]any)
	spec, _ := object["spec"].(map[string]any)
	switch {
	case len(object) != 4 || metadata == nil || spec == nil:
		return nil, errors.New("it must have apiVersion, kind, metadata and spec, and nothing else")
	case object["apiVersion"] != apiVersion || object["kind"] != kind:
		return nil, fmt.Errorf("it must be a %s of %s", kind, apiVersion)
	case len(metadata) != 1 || metadata["name"] != string(id):
		return nil, errors.New("its metadata must have the name, which is your cluster ID, and nothing else")
	}
	var from any = spec
	for _, name := range owner {
		within, _ := from.(map[string]any)
		from = within[name]
	}
	if from != string(id) {
		return nil, fmt.Errorf("its spec.%s must be your cluster ID", strings.Join(owner, "."))
	}
	return wire.Encode(object)
}

// checkText refuses characters that no field of these objects needs: they could
// mean something to a terminal, or something else in YAML than in JSON.
func checkText(s string) error {
	for _, r := range s {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffe' || r == '\uffff' {
			return fmt.Errorf("it contains the character %U", r)
		}
	}
	return nil
}
