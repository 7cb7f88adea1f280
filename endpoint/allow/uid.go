package allow

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/endpoint/wire"
)

// Nobody is the UID of no object: what is to be done with one that was not there must
// not be done with one that somebody else made since.
const Nobody types.UID = "00000000-0000-0000-0000-000000000000"

// WithUID returns a patch, or the body of an apply, for the object with that UID only.
func WithUID(body []byte, uid types.UID) ([]byte, error) {
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
	if _, given := meta["uid"]; given && uid != Nobody {
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

// Replacing returns the strategic merge patch that makes the fields of an object what they are
// in a Service or EndpointSlice: what is in its maps and lists takes the place of what was.
func Replacing(object []byte) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(object, &all); err != nil {
		return nil, err
	}
	var spec map[string]any
	if err := json.Unmarshal(all["spec"], &spec); all["spec"] == nil {
		return object, nil // the lists of an EndpointSlice are replaced as a whole
	} else if err != nil {
		return nil, err
	}
	const directive, replace = "$patch", "replace"
	if selector, ok := spec["selector"].(map[string]any); ok {
		selector[directive] = replace
	}
	ports, _ := spec["ports"].([]any)
	spec["ports"] = append([]any{map[string]any{directive: replace}}, ports...)
	var err error
	if all["spec"], err = json.Marshal(spec); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// Resizing returns the merge patch that gives a claim the size that it has in object.
func Resizing(object []byte) ([]byte, error) {
	var claim struct {
		Spec struct {
			Resources json.RawMessage `json:"resources"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(object, &claim); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"spec": map[string]any{"resources": claim.Spec.Resources}})
}

// deletion is what a peer may say about a deletion, of metav1.DeleteOptions. How
// what depends on the object goes is not its choice.
type deletion struct {
	metav1.TypeMeta    `json:",inline"`
	GracePeriodSeconds *int64                `json:"gracePeriodSeconds,omitempty"`
	Preconditions      *metav1.Preconditions `json:"preconditions,omitempty"`
	PropagationPolicy  string                `json:"propagationPolicy,omitempty"`
}

// DeleteOptions checks the options of a deletion and writes them anew. uid is that of
// the object that was looked at: no other one is to be deleted.
func DeleteOptions(body []byte, uid types.UID) ([]byte, error) {
	var out deletion
	if body != nil {
		if err := wire.CheckJSON(body); err != nil {
			return nil, err
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		if err := d.Decode(&out); err != nil {
			return nil, err
		}
	}
	if g := out.GracePeriodSeconds; g != nil && (*g < 0 || *g > math.MaxInt32) {
		return nil, errors.New("the grace period makes no sense")
	}
	if out.Preconditions == nil {
		out.Preconditions = &metav1.Preconditions{}
	}
	if out.Preconditions.UID == nil || *out.Preconditions.UID == "" || uid == Nobody {
		out.Preconditions.UID = &uid
	}
	out.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	out.PropagationPolicy = string(metav1.DeletePropagationBackground)
	return wire.Encode(out)
}
