package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/allow"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer/text"
)

// A namespace of a peer may hold what its peer did not make: a Secret with the
// registry's password, a pod of this cluster's operators. A peer has to do with what
// has its own label only.

const (
	// justMetadata and justMetadataList are what the API server is asked for where only
	// the labels matter.
	justMetadata     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	justMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

	// maxEventsAnswer bounds a list of events, which is decoded as a whole, in bytes.
	maxEventsAnswer = 16 << 20
)

// object is what is asked about an object before anything is done with it.
type object struct {
	UID   types.UID
	Found bool
	Own   bool // it is the caller's
}

// look finds out whose the object of that name is. Every other answer of the API server
// but that there is none is a refusal.
func (s *Server) look(ctx context.Context, caller Caller, namespace, resource, name string) (object, *refusal.Refusal) {
	out := allow.Call{Method: http.MethodGet, Namespace: namespace, Resource: resource, Name: name}.Request()
	out.Accept = justMetadata
	resp, body, no := s.cfg.Gateway.Exchange(ctx, caller.ID, out, gateway.MaxAnswer)
	switch {
	case no != nil:
		return object{}, no
	case resp.StatusCode == http.StatusNotFound:
		return object{}, nil
	case resp.StatusCode == http.StatusForbidden:
		var status metav1.Status
		_ = json.Unmarshal(body, &status) // without words, it is forbidden all the same
		return object{}, refusal.NotPermitted("this cluster's API server does not let you look at it: " + text.Sentence(status.Message))
	case resp.StatusCode != http.StatusOK:
		return object{}, refusal.BadUpstream(fmt.Sprintf("status %d", resp.StatusCode))
	}
	var found metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &found); err != nil {
		return object{}, refusal.BadUpstream("something that is no object")
	}
	own := found.Labels[api.LabelOriginCluster] == string(caller.ID) &&
		(resource != allow.EndpointSlices || found.Labels[api.LabelSliceManager] == api.ManagedByAgent)
	return object{UID: found.UID, Found: true, Own: own}, nil
}

// notOwn is the refusal of what is about an object that the caller did not make.
func notOwn(call allow.Call) *refusal.Refusal {
	return refusal.NotPermitted(fmt.Sprintf("%s/%s in namespace %s belongs to this cluster, and not to you; take another name", call.Resource, call.Name, call.Namespace))
}

// ownPods returns the UIDs of the pods that a caller has in a namespace.
func (s *Server) ownPods(ctx context.Context, caller Caller, namespace string) (map[types.UID]bool, *refusal.Refusal) {
	call := allow.Call{Method: http.MethodGet, Namespace: namespace, Resource: "pods"}
	call.Query = call.Selected(caller.ID)
	out := call.Request()
	out.Accept = justMetadataList
	resp, text, no := s.cfg.Gateway.Exchange(ctx, caller.ID, out, maxEventsAnswer)
	if no != nil {
		return nil, no
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refusal.BadUpstream(fmt.Sprintf("status %d", resp.StatusCode))
	}
	var list struct {
		Items []struct {
			Metadata struct {
				UID types.UID `json:"uid"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, refusal.BadUpstream("something that is no list")
	}
	own := make(map[types.UID]bool, len(list.Items))
	for _, item := range list.Items {
		own[item.Metadata.UID] = true
	}
	return own, nil
}

// ownEvents returns a list of events, as the API server sent it, without those that
// are about something else than the caller's pods.
func (s *Server) ownEvents(ctx context.Context, caller Caller, call allow.Call, text []byte) ([]byte, *refusal.Refusal) {
	var list allow.Events
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, refusal.BadUpstream("something that is no list")
	}
	own, no := s.ownPods(ctx, caller, call.Namespace)
	if no != nil {
		return nil, no
	}
	clean, err := list.About(own)
	if err != nil {
		return nil, refusal.Internal("the events cannot be written down; please report this")
	}
	return clean, nil
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
			return false, errors.New(no.Text)
		}
		if len(known) >= maxRemembered {
			clear(known)
		}
		// One that is gone by now, or another by now, is nobody's.
		known[uid] = pod.Own && pod.UID == uid
		return known[uid], nil
	}
}

// makeEmpty makes the object that is to be applied, with its label and nothing in it,
// and takes down its UID: an apply would take over what somebody else made in that
// moment, and the making does not. It returns the API server's answer.
func (s *Server) makeEmpty(ctx context.Context, caller Caller, call *allow.Call, body []byte) (status int, text []byte, no *refusal.Refusal) {
	var sent struct {
		metav1.TypeMeta `json:",inline"`
		Type            string `json:"type,omitempty"`
	}
	if err := json.Unmarshal(body, &sent); err != nil {
		return 0, nil, refusal.Internal("the object cannot be read back; please report this")
	}
	object := map[string]any{
		"apiVersion": sent.APIVersion, "kind": sent.Kind,
		"metadata": map[string]any{"name": call.Name, "labels": map[string]string{api.LabelOriginCluster: string(caller.ID)}},
	}
	if sent.Type != "" {
		object["type"] = sent.Type // cannot be changed later
	}
	bare, err := wire.Encode(object)
	if err != nil {
		return 0, nil, refusal.Internal("the object cannot be written down; please report this")
	}
	out := allow.Call{Method: http.MethodPost, Namespace: call.Namespace, Resource: call.Resource}.Request()
	out.ContentType, out.Query, out.Body = "application/json", allow.AsPeer, bare
	resp, text, no := s.cfg.Gateway.Exchange(ctx, caller.ID, out, allow.MaxObjectAnswer)
	if no != nil {
		return 0, nil, no
	}
	var found metav1.PartialObjectMetadata
	if resp.StatusCode == http.StatusCreated {
		if err := json.Unmarshal(text, &found); err != nil || found.UID == "" {
			return 0, nil, refusal.BadUpstream("something that is no object")
		}
		call.UID = found.UID
	}
	return resp.StatusCode, text, nil
}

// checkNamed refuses a pod that names a ConfigMap, Secret or claim that the caller did not
// make: in it, it could be read.
func (s *Server) checkNamed(r *http.Request, caller Caller, namespace string, pod []byte) *refusal.Refusal {
	named, err := s.cfg.Guests.Named(pod)
	if err != nil {
		return refusal.Internal("the pod cannot be read back; please report this")
	}
	all := 0
	for _, names := range named {
		all += len(names)
	}
	if all > maxNamed {
		return refusal.BadBody(fmt.Sprintf("the pod names more than %d ConfigMaps, Secrets and claims; put them together", maxNamed))
	}
	for resource, names := range named {
		for _, name := range names {
			if !allow.IsName(name) {
				return refusal.BadBody("the pod names a ConfigMap, Secret or claim that cannot be; correct the name")
			}
			if no := s.checkOwn(r, caller, &allow.Call{Namespace: namespace, Resource: resource, Name: name}); no != nil {
				return no
			}
		}
	}
	return nil
}

// maxNamed bounds how many objects are looked at for one pod.
const maxNamed = 100
