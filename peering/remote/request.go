package remote

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

const (
	// firstQuick is the first pause before something is tried again that may work in
	// a moment.
	firstQuick = 125 * time.Millisecond
	// maxPause is the longest pause between two tries of something that fails.
	maxPause = 30 * time.Second
	// maxPersonPause is the longest pause between two looks at whether a person has
	// decided.
	maxPersonPause = 10 * time.Second
	// maxRetryAfter is how much longer a peer can ask us to wait.
	maxRetryAfter = time.Minute
)

// kind is a kind of object that we have at peers.
type kind struct {
	name, apiVersion, path string
}

var (
	requests = kind{api.KindPeeringRequest, api.GroupVersion.String(),
		endpoint.PathGateway + "apis/" + api.GroupVersion.String() + "/" + api.PluralPeeringRequests + "/"}
	offers = kind{api.KindAdvertisement, api.SharingGroupVersion.String(),
		endpoint.PathGateway + "apis/" + api.SharingGroupVersion.String() + "/" + api.PluralAdvertisements + "/"}
)

// apply is the request that creates or changes the object of that name, ours, by
// server-side apply. The peer's gateway says who applies.
func (k kind) apply(name peer.ClusterID, spec any) (endpoint.Request, error) {
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
		return endpoint.Request{}, fmt.Errorf("encode our %s: %w", k.name, err)
	}
	return endpoint.Request{Method: http.MethodPatch, Path: k.path + string(name), ContentType: "application/apply-patch+yaml", Body: encoded}, nil
}

// remove is the request that deletes the object of that name.
func (k kind) remove(name peer.ClusterID) endpoint.Request {
	return endpoint.Request{Method: http.MethodDelete, Path: k.path + string(name)}
}

// post is a call with a body.
func post(path string, body any) (endpoint.Request, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return endpoint.Request{}, fmt.Errorf("encode a call of %s: %w", path, err)
	}
	return endpoint.Request{Method: http.MethodPost, Path: path, Body: encoded}, nil
}

// refusal is the error of a call that the peer answered with no.
type refusal struct {
	what   string // it refused to do
	status int
	said   endpoint.Refusal
	after  time.Duration // how long it asks us to wait
}

// Error says what the peer refused, in its own words.
func (r *refusal) Error() string {
	return "the peer does not " + r.what + ": " + r.said.Error
}

// refused returns the refusal that resp is, nil if it is none.
func refused(resp endpoint.Response, what string) *refusal {
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
	return &refusal{what: "speak with this cluster", said: endpoint.Refusal{
		Reason: endpoint.ReasonProtocol,
		Error:  fmt.Sprintf("it speaks version %s of the protocol and this cluster version %s; update liqo-agent %s", theirs, ours, older),
	}}
}

// denies reports whether the peer's agent does not want to know us.
func (r *refusal) denies() bool {
	if r.said.Reason == endpoint.ReasonProtocol {
		return true
	}
	if r.status != http.StatusForbidden && r.status != http.StatusUnauthorized {
		return false
	}
	switch r.said.Reason {
	case endpoint.ReasonNotTrusted, endpoint.ReasonBlocked, endpoint.ReasonOtherKey, endpoint.ReasonPolicyNone, endpoint.ReasonNoCertificate,
		endpoint.ReasonCertificateEnded:
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

// pause is how long to wait before try number n+1: twice as long each time, at
// most longest, a quarter more or less.
func pause(n int, shortest, longest time.Duration) time.Duration {
	d := shortest
	for range n - 1 {
		if d *= 2; d >= longest {
			d = longest
			break
		}
	}
	return d*3/4 + rand.N(d/2)
}

// jitter returns d, 10 % more or less.
func jitter(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5) }
