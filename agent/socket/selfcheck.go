package socket

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"liqo.io/agent/agent/control"
)

// SelfCheck runs GET /v1/status within the process, with the handlers of the socket, and returns the result. If it
// returns, all parts that the status is read from answer. It is safe for concurrent use.
func (s *Server) SelfCheck(ctx context.Context) (control.Status, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://liqo-agent/v1/status", nil)
	if err != nil {
		return control.Status{}, err
	}
	answer := recorded{header: make(http.Header), code: http.StatusOK}
	s.handler().ServeHTTP(&answer, req)
	if answer.code != http.StatusOK {
		return control.Status{}, fmt.Errorf("the control socket answers its own status with %d: %s", answer.code, bytes.TrimSpace(answer.body.Bytes()))
	}
	var out control.Status
	if err := json.Unmarshal(answer.body.Bytes(), &out); err != nil {
		return control.Status{}, fmt.Errorf("read our own status: %w", err)
	}
	return out, nil
}

// recorded is a ResponseWriter that keeps the answer in memory.
type recorded struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *recorded) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *recorded) WriteHeader(code int) { r.code = code }

// Write implements http.ResponseWriter.
func (r *recorded) Write(p []byte) (int, error) { return r.body.Write(p) }
