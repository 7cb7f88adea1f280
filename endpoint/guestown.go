package endpoint

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// A namespace of a peer may hold what its peer did not make: a Secret with the
// registry's password, a pod of this cluster's operators. A peer has to do with what
// has its own label only.

const (
	// justMetadata and justMetadataList are what the API server is asked for where only
	// the labels matter.
	justMetadata     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	justMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

	// maxEventsAnswer bounds a list of events, which is decoded as a whole, and
	// maxEventAnswer one of them, in bytes.
	maxEventsAnswer = 16 << 20
	maxEventAnswer  = 1 << 20
)

// selected returns the query of the call; that of a list or watch leads to the objects
// of the consumer only.
func (g guestCall) selected(id peer.ClusterID) string {
	if g.name != "" || g.resource == "events" || g.method != http.MethodGet {
		return g.query
	}
	selector := "labelSelector=" + url.QueryEscape(api.LabelOriginCluster+"="+string(id))
	if g.query == "" {
		return selector
	}
	return g.query + "&" + selector
}

// object is what is asked about an object before anything is done with it.
type object struct {
	UID   types.UID
	Found bool
	Own   bool // it is the caller's
}

// look finds out whose the object of that name is. Every other answer of the API server
// but that there is none is a refusal.
func (s *Server) look(ctx context.Context, caller Caller, namespace, resource, name string) (object, *refusal) {
	call := guestCall{method: http.MethodGet, namespace: namespace, resource: resource, name: name}
	resp, text, no := s.cfg.Gateway.exchange(ctx, caller.ID,
		forward{method: call.method, path: call.path(), resource: resource, accept: justMetadata, guest: true}, maxGatewayAnswer)
	switch {
	case no != nil:
		return object{}, no
	case resp.StatusCode == http.StatusNotFound:
		return object{}, nil
	case resp.StatusCode == http.StatusForbidden:
		var status metav1.Status
		_ = json.Unmarshal(text, &status) // without words, it is forbidden all the same
		return object{}, notPermitted("this cluster's API server does not let you look at it: " + sentence(status.Message))
	case resp.StatusCode != http.StatusOK:
		return object{}, badUpstream(fmt.Sprintf("status %d", resp.StatusCode))
	}
	var found metav1.PartialObjectMetadata
	if err := json.Unmarshal(text, &found); err != nil {
		return object{}, badUpstream("something that is no object")
	}
	return object{UID: found.UID, Found: true, Own: found.Labels[api.LabelOriginCluster] == string(caller.ID)}, nil
}

// notOwn is the refusal of what is about an object that the caller did not make.
func notOwn(call guestCall) *refusal {
	return notPermitted(fmt.Sprintf("%s/%s in namespace %s belongs to this cluster, and not to you; take another name", call.resource, call.name, call.namespace))
}

// ownPods returns the UIDs of the pods that a caller has in a namespace.
func (s *Server) ownPods(ctx context.Context, caller Caller, namespace string) (map[types.UID]bool, *refusal) {
	call := guestCall{method: http.MethodGet, namespace: namespace, resource: "pods"}
	resp, text, no := s.cfg.Gateway.exchange(ctx, caller.ID, forward{
		method: call.method, path: call.path(), query: call.selected(caller.ID), resource: call.resource, accept: justMetadataList, guest: true,
	}, maxEventsAnswer)
	if no != nil {
		return nil, no
	}
	if resp.StatusCode != http.StatusOK {
		return nil, badUpstream(fmt.Sprintf("status %d", resp.StatusCode))
	}
	var list struct {
		Items []struct {
			Metadata struct {
				UID types.UID `json:"uid"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, badUpstream("something that is no list")
	}
	own := make(map[types.UID]bool, len(list.Items))
	for _, item := range list.Items {
		own[item.Metadata.UID] = true
	}
	return own, nil
}

// involved is whom an event is about.
type involved struct {
	Object struct {
		Kind string    `json:"kind"`
		Name string    `json:"name"`
		UID  types.UID `json:"uid"`
	} `json:"involvedObject"`
}

// ownEvents returns a list of events, as the API server sent it, without those that
// are about something else than the caller's pods.
func (s *Server) ownEvents(ctx context.Context, caller Caller, call guestCall, text []byte) ([]byte, *refusal) {
	var list struct {
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Metadata   json.RawMessage   `json:"metadata,omitempty"`
		Items      []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, badUpstream("something that is no list")
	}
	own, no := s.ownPods(ctx, caller, call.namespace)
	if no != nil {
		return nil, no
	}
	kept := list.Items[:0]
	for _, item := range list.Items {
		var about involved
		if json.Unmarshal(item, &about) == nil && about.Object.Kind == "Pod" && own[about.Object.UID] {
			kept = append(kept, item)
		}
	}
	list.Items = kept
	clean, err := encode(list)
	if err != nil {
		return nil, internalError("the events cannot be written down; please report this")
	}
	return clean, nil
}

// eventWatch reads a watch of events and leaves out what is about something else than
// the caller's pods. It is read line by line, by one goroutine.
type eventWatch struct {
	from *bufio.Scanner
	own  func(name string, uid types.UID) (bool, error)
	left []byte // of the line that is being read
}

func newEventWatch(from io.Reader, own func(name string, uid types.UID) (bool, error)) *eventWatch {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxEventAnswer)
	return &eventWatch{from: lines, own: own}
}

// Read is io.Reader.Read. It returns at most one line at a time.
func (e *eventWatch) Read(b []byte) (int, error) {
	for len(e.left) == 0 {
		if !e.from.Scan() {
			if err := e.from.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		line := e.from.Bytes()
		pass, err := e.passes(line)
		if err != nil {
			return 0, err
		}
		if pass {
			e.left = append(bytes.Clone(line), '\n')
		}
	}
	n := copy(b, e.left)
	e.left = e.left[n:]
	return n, nil
}

func (e *eventWatch) passes(line []byte) (bool, error) {
	var one struct {
		Type   string   `json:"type"`
		Object involved `json:"object"`
	}
	if err := json.Unmarshal(line, &one); err != nil {
		return false, fmt.Errorf("a line of a watch is no event: %w", err)
	}
	switch one.Type {
	case "BOOKMARK", "ERROR":
		return true, nil
	}
	about := one.Object.Object
	if about.Kind != "Pod" || !isName(about.Name) || about.UID == "" {
		return false, nil
	}
	return e.own(about.Name, about.UID)
}

// maxRemembered bounds what a watch of events remembers of pods.
const maxRemembered = 1000

// ownPod returns what tells a caller's pods from others in a namespace.
func (s *Server) ownPod(ctx context.Context, caller Caller, namespace string) func(name string, uid types.UID) (bool, error) {
	known := make(map[types.UID]bool)
	return func(name string, uid types.UID) (bool, error) {
		if own, ok := known[uid]; ok {
			return own, nil
		}
		pod, no := s.look(ctx, caller, namespace, "pods", name)
		if no != nil {
			return false, errors.New(no.text)
		}
		if len(known) >= maxRemembered {
			clear(known)
		}
		// One that is gone by now, or another by now, is nobody's.
		known[uid] = pod.Own && pod.UID == uid
		return known[uid], nil
	}
}

// nobody is the UID of no object: what is to be done with one that was not there must
// not be done with one that somebody else made since.
const nobody types.UID = "00000000-0000-0000-0000-000000000000"

// withUID returns a patch, or the body of an apply, for the object with that UID only.
func withUID(body []byte, uid types.UID) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, err
	}
	meta := make(map[string]json.RawMessage)
	if raw, ok := all["metadata"]; ok {
		if err := json.Unmarshal(raw, &meta); err != nil {
			return nil, err
		}
	}
	if _, given := meta["uid"]; given && uid != nobody {
		return body, nil // the sender's own word about which one it means
	}
	var err error
	if meta["uid"], err = json.Marshal(uid); err != nil {
		return nil, err
	}
	if all["metadata"], err = json.Marshal(meta); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// makeEmpty makes the object that is to be applied, with its label and nothing in it,
// and takes down its UID: an apply would take over what somebody else made in that
// moment, and the making does not. It returns the API server's answer.
func (g *Gateway) makeEmpty(ctx context.Context, caller Caller, call *guestCall, body []byte) (status int, text []byte, no *refusal) {
	var sent struct {
		metav1.TypeMeta `json:",inline"`
		Type            string `json:"type,omitempty"`
	}
	if err := json.Unmarshal(body, &sent); err != nil {
		return 0, nil, internalError("the object cannot be read back; please report this")
	}
	object := map[string]any{
		"apiVersion": sent.APIVersion, "kind": sent.Kind,
		"metadata": map[string]any{"name": call.name, "labels": map[string]string{api.LabelOriginCluster: string(caller.ID)}},
	}
	if sent.Type != "" {
		object["type"] = sent.Type // cannot be changed later
	}
	bare, err := encode(object)
	if err != nil {
		return 0, nil, internalError("the object cannot be written down; please report this")
	}
	all := guestCall{namespace: call.namespace, resource: call.resource}
	resp, text, no := g.exchange(ctx, caller.ID, forward{
		method: http.MethodPost, path: all.path(), resource: call.resource, contentType: "application/json", query: asPeer, body: bare, guest: true,
	}, maxObjectAnswer)
	if no != nil {
		return 0, nil, no
	}
	var found metav1.PartialObjectMetadata
	if resp.StatusCode == http.StatusCreated {
		if err := json.Unmarshal(text, &found); err != nil || found.UID == "" {
			return 0, nil, badUpstream("something that is no object")
		}
		call.uid = found.UID
	}
	return resp.StatusCode, text, nil
}

// checkNamed refuses a pod that names a ConfigMap or Secret that the caller did not
// make: in it, it could be read.
func (s *Server) checkNamed(r *http.Request, caller Caller, namespace string, pod []byte) *refusal {
	configMaps, secrets, err := s.guests().Named(pod)
	if err != nil {
		return internalError("the pod cannot be read back; please report this")
	}
	if len(configMaps)+len(secrets) > maxNamed {
		return badBody(fmt.Sprintf("the pod names more than %d ConfigMaps and Secrets; put them together", maxNamed))
	}
	for resource, names := range map[string][]string{"configmaps": configMaps, "secrets": secrets} {
		for _, name := range names {
			if !isName(name) {
				return badBody("the pod names a ConfigMap or Secret that cannot be; correct the name")
			}
			if no := s.checkOwn(r, caller, &guestCall{namespace: namespace, resource: resource, name: name}); no != nil {
				return no
			}
		}
	}
	return nil
}

// maxNamed bounds how many objects are looked at for one pod.
const maxNamed = 100
