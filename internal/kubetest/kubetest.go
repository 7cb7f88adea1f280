// Package kubetest is an API server for tests: it says what a test wants, and keeps
// what it was sent. There is no network, so it works in a bubble of testing/synctest.
package kubetest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"liqo.io/agent/kube"
)

// Answer returns the status and the body of an answer. It is called for one request at
// a time.
type Answer func(r *http.Request, body string) (status int, text string)

// Server is an API server that answers as a test says.
type Server struct {
	mu     sync.Mutex
	answer Answer
	sent   []string
}

// New returns a Server that answers as said.
func New(answer Answer) *Server { return &Server{answer: answer} }

// Config is for clients of the Server.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "https://nowhere", Transport: s}
}

// Client returns a client of the Server.
func (s *Server) Client(t *testing.T) *kube.Client {
	t.Helper()
	client, err := kube.New(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// RoundTrip implements http.RoundTripper.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	var text []byte
	if r.Body != nil {
		var err error
		if text, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, r.Method+" "+r.URL.RequestURI()+" "+string(text))
	status, body := s.answer(r, string(text))
	return &http.Response{
		StatusCode: status, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// CloseIdleConnections has the end of a client close nothing.
func (s *Server) CloseIdleConnections() {}

// Say changes what the Server answers.
func (s *Server) Say(answer Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// Take returns what was sent since the last time: method, URI and body of each request.
func (s *Server) Take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.sent
	s.sent = nil
	return sent
}

// Failure is the answer of a refusal.
func Failure(status int, reason metav1.StatusReason) (int, string) {
	return status, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"said the test","code":%d}`, reason, status)
}
