package remote

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
)

const (
	// firstPause and maxPause bound the pause before something is tried again that
	// failed, or that has to wait.
	firstPause = time.Second
	maxPause   = 30 * time.Second
	// firstQuick is the first pause where the next try may work in a moment.
	firstQuick = 125 * time.Millisecond
	// maxPersonPause is the longest pause between two looks at whether a person has
	// decided.
	maxPersonPause = 10 * time.Second
	// maxRetryAfter is how much longer a peer can ask us to wait.
	maxRetryAfter = time.Minute
)

var (
	failing = work.Backoff{First: firstPause, Max: maxPause}
	passing = work.Backoff{First: firstQuick, Max: maxPause}
)

// kind is a kind of object that we have at peers.
type kind struct {
	name, apiVersion, path string
}

var (
	requests = kind{api.KindPeeringRequest, api.GroupVersion.String(),
		wire.PathGateway + "apis/" + api.GroupVersion.String() + "/" + api.PluralPeeringRequests + "/"}
	offers = kind{api.KindAdvertisement, api.SharingGroupVersion.String(),
		wire.PathGateway + "apis/" + api.SharingGroupVersion.String() + "/" + api.PluralAdvertisements + "/"}
)

// apply is the request that creates or changes the object of that name, ours, by
// server-side apply. The peer's gateway says who applies.
func (k kind) apply(name peer.ClusterID, spec any) (client.Request, error) {
	var body struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name peer.ClusterID `json:"name"`
		} `json:"metadata"`
		Spec any `json:"spec"`
	}
	body.APIVersion, body.Kind, body.Spec = k.apiVersion, k.name, spec
	body.Metadata.Name = name
	encoded, err := json.Marshal(body)
	if err != nil {
		return client.Request{}, fmt.Errorf("encode our %s: %w", k.name, err)
	}
	return client.Request{Method: http.MethodPatch, Path: k.path + string(name), ContentType: "application/apply-patch+yaml", Body: encoded}, nil
}

// remove is the request that deletes the object of that name.
func (k kind) remove(name peer.ClusterID) client.Request {
	return client.Request{Method: http.MethodDelete, Path: k.path + string(name)}
}

// post is a call with a body.
func post(path string, body any) (client.Request, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return client.Request{}, fmt.Errorf("encode a call of %s: %w", path, err)
	}
	return client.Request{Method: http.MethodPost, Path: path, Body: encoded}, nil
}

// refusal is the error of a call that the peer answered with no.
type refusal struct {
	what   string // it refused to do
	status int
	said   wire.Refusal
	after  time.Duration // how long it asks us to wait
}

// Error says what the peer refused, in its own words.
func (r *refusal) Error() string {
	return "the peer does not " + r.what + ": " + r.said.Error
}

// refused returns the refusal that resp is, nil if it is none.
func refused(resp client.Response, what string) *refusal {
	if 200 <= resp.Status && resp.Status < 300 {
		return nil
	}
	return &refusal{what, resp.Status, resp.Refusal(), resp.RetryAfter}
}

// unspeakable returns a refusal in our words when the peer speaks no version of
// the protocol that we do, nil when it does or did not say.
func unspeakable(theirs peer.Protocol) *refusal {
	ours := peer.Spoken()
	if _, ok := ours.Common(theirs); ok || theirs == (peer.Protocol{}) {
		return nil
	}
	older := "here"
	if theirs.Newest < ours.Oldest {
		older = "there"
	}
	return &refusal{what: "speak with this cluster", said: wire.Refusal{
		Reason: wire.ReasonProtocol,
		Error:  fmt.Sprintf("it speaks version %s of the protocol and this cluster version %s; update liqo-agent %s", theirs, ours, older),
	}}
}

// denies reports whether the peer's agent does not want to know us.
func (r *refusal) denies() bool {
	if r.said.Reason == wire.ReasonProtocol {
		return true
	}
	if r.status != http.StatusForbidden && r.status != http.StatusUnauthorized {
		return false
	}
	switch r.said.Reason {
	case wire.ReasonNotTrusted, wire.ReasonBlocked, wire.ReasonOtherKey, wire.ReasonPolicyNone, wire.ReasonNoCertificate,
		wire.ReasonCertificateEnded:
		return true
	}
	return false
}

// passes reports whether the refusal may be over in a moment: the peer's API
// server does not know yet that we may, or we were too quick.
func (r *refusal) passes() bool {
	return r.status == http.StatusTooManyRequests || r.status == http.StatusForbidden && !r.denies()
}

// minSecret is how long a part of a token must be to be taken for a secret.
const minSecret = 8

// cut takes the parts of a token out of what a peer says.
func cut(text, token string) string {
	for part := range strings.SplitSeq(token, ".") {
		if len(part) >= minSecret {
			text = strings.ReplaceAll(text, part, "(secret)")
		}
	}
	return text
}
