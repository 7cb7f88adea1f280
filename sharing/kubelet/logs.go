package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

const (
	// maxStatus bounds what a provider says instead of what was asked for, in bytes,
	// and maxSentence what of it is repeated.
	maxStatus   = 64 << 10
	maxSentence = 2 << 10
)

// request returns what a call is at the provider.
func request(ctx context.Context, method string, asked call, place Place) *http.Request {
	r := &http.Request{Method: method, Header: http.Header{"User-Agent": {"liqo-agent"}},
		Host: "provider", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		URL: &url.URL{Scheme: "https", Host: "provider", RawQuery: asked.query.Encode(),
			Path: "/api/v1/namespaces/" + place.Namespace + "/pods/" + place.Name + "/" + asked.subresource()}}
	return r.WithContext(ctx)
}

// logs streams the log of a container: what comes is passed on at once.
func (h *handler) logs(w http.ResponseWriter, r *http.Request, asked call, place Place) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	late := time.AfterFunc(answerIn, cancel)
	answer, err := place.Upstream.RoundTrip(request(ctx, http.MethodGet, asked, place))
	if !late.Stop() && err != nil {
		err = context.DeadlineExceeded
	}
	if err != nil {
		return unreachable(place.ID, err)
	}
	defer func() { _ = answer.Body.Close() }() // everything that matters was read
	if answer.StatusCode != http.StatusOK {
		return refused(place.ID, answer)
	}
	idle := time.AfterFunc(idleFor, cancel)
	defer idle.Stop()
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/plain")
	buffer := make([]byte, 32<<10)
	for {
		n, err := answer.Body.Read(buffer)
		if n > 0 {
			idle.Reset(idleFor)
			_ = control.SetWriteDeadline(time.Now().Add(idleFor)) // a connection that is gone fails the write
			if _, err := w.Write(buffer[:n]); err != nil {
				return nil // who is gone needs no answer
			}
			if err := control.Flush(); err != nil {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			// The log must not look as if it were complete: the connection is broken off.
			panic(http.ErrAbortHandler)
		}
	}
}

// refused is what to answer when the provider's API server answered with something
// else than what was asked for. It says so in its own words.
func refused(provider peer.ClusterID, answer *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(answer.Body, maxStatus)) // what came is better than nothing
	sentence := string(body)
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		sentence = status.Message
	}
	sentence = text.Line(sentence, maxSentence)
	switch code := answer.StatusCode; {
	case code == http.StatusUnauthorized:
		// It is us who are not known there: the caller has done nothing wrong.
		return refuse(http.StatusBadGateway, "provider %s does not let this cluster in: %s", provider, sentence)
	case code == http.StatusForbidden:
		return refuse(code, "provider %s refuses the request: %s", provider, sentence)
	case code >= 400 && code <= 599:
		return refuse(code, "%s", sentence)
	default:
		return refuse(http.StatusBadGateway, "provider %s answered with the unexpected status %d", provider, code)
	}
}
