package admission

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"liqo.io/agent/api"
	"liqo.io/agent/peer/text"
)

const (
	reviewVersion = "admission.k8s.io/v1"
	reviewKind    = "AdmissionReview"
	// maxUID is far more than the UUID that API servers use.
	maxUID = 256
)

// Reasons for not answering a review at all, for errors.Is.
var (
	errNoReview  = errors.New("no AdmissionReview of " + reviewVersion)
	errNoRequest = errors.New("an AdmissionReview without a request")
	errNoUID     = errors.New("a request without a usable uid")
)

// review is an AdmissionReview as the API server sends it: as much of it as is
// of interest.
type review struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Request    *reviewRequest `json:"request"`
}

type reviewRequest struct {
	UID         string         `json:"uid"`
	Resource    reviewResource `json:"resource"`
	SubResource string         `json:"subResource"`
	Name        string         `json:"name"`
	Namespace   string         `json:"namespace"`
	Operation   string         `json:"operation"`
	UserInfo    struct {
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
	} `json:"userInfo"`
	Object    json.RawMessage `json:"object"`
	OldObject json.RawMessage `json:"oldObject"`
}

type reviewResource struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
}

// ours is the one resource the webhook is for.
var ours = reviewResource{Group: api.GroupVersion.Group, Version: api.GroupVersion.Version, Resource: api.PluralPeeringRequests}

// answer is an AdmissionReview as it is sent back.
type answer struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Response   reviewResponse `json:"response"`
}

type reviewResponse struct {
	UID      string         `json:"uid"`
	Allowed  bool           `json:"allowed"`
	Status   *metav1.Status `json:"status,omitempty"`
	Warnings []string       `json:"warnings,omitempty"`

	PatchType string `json:"patchType,omitempty"`
	Patch     patch  `json:"patch,omitempty"`
}

// decode reads a review. An error means that there is nobody to answer to.
func decode(body []byte) (*reviewRequest, error) {
	var r review
	// As the API server reads objects: the names of fields are case-sensitive.
	if err := utiljson.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoReview, err)
	}
	switch {
	case r.APIVersion != reviewVersion || r.Kind != reviewKind:
		return nil, fmt.Errorf("%w: it says to be %q %q", errNoReview, text.Excerpt(r.APIVersion), text.Excerpt(r.Kind))
	case r.Request == nil:
		return nil, errNoRequest
	case r.Request.UID == "" || len(r.Request.UID) > maxUID:
		return nil, errNoUID
	}
	return r.Request, nil
}

// question reads the objects of a review. The second result is a verdict when
// there is nothing to ask.
func (r *reviewRequest) question() (Question, *Verdict) {
	if r.Resource != ours {
		v := badReview("the webhook for PeeringRequests was asked about %q of %q in version %q", text.Excerpt(r.Resource.Resource), text.Excerpt(r.Resource.Group), text.Excerpt(r.Resource.Version))
		return Question{}, &v
	}
	if r.SubResource != "" {
		// The configuration has no rule for it, so somebody edited that. The status
		// is the agent's own to write.
		return Question{}, &Verdict{Allowed: true}
	}
	q := Question{Operation: r.Operation, User: r.UserInfo.Username, Groups: r.UserInfo.Groups, Name: r.Name}
	for _, part := range []struct {
		text []byte
		into **api.PeeringRequest
	}{{r.Object, &q.Request}, {r.OldObject, &q.Old}} {
		if len(part.text) == 0 {
			continue
		}
		// A null leaves the pointer nil.
		if err := utiljson.Unmarshal(part.text, part.into); err != nil {
			v := badReview("the webhook was shown a PeeringRequest that it cannot read: %s", text.Excerpt(err.Error()))
			return Question{}, &v
		}
	}
	// With generateName, the name is in the object only.
	if q.Name == "" && q.Request != nil {
		q.Name = q.Request.Name
	}
	return q, nil
}

// encode makes the answer of what is in it.
func encode(response reviewResponse) ([]byte, error) {
	text, err := json.Marshal(answer{APIVersion: reviewVersion, Kind: reviewKind, Response: response})
	if err != nil {
		return nil, fmt.Errorf("encode the answer to an AdmissionReview: %w", err)
	}
	return text, nil
}

// answerTo is the answer to the review with that uid.
func answerTo(uid string, v Verdict) reviewResponse {
	out := reviewResponse{UID: uid, Allowed: v.Allowed, Warnings: v.Warnings}
	if !v.Allowed {
		out.Status = &metav1.Status{
			Status: metav1.StatusFailure, Code: v.Code, Reason: v.Reason, Message: v.Message,
			Details: &metav1.StatusDetails{Group: ours.Group, Kind: ours.Resource, Causes: []metav1.StatusCause{{Type: metav1.CauseType(v.Cause), Message: v.Message}}},
		}
	}
	return out
}
