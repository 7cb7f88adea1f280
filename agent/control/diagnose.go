package control

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// MaxReach is how many peers are asked to call this cluster back at once.
const MaxReach = 5

// Reach is the result of a peer that was asked to call this cluster back. It shows
// whether a firewall blocks the endpoint.
type Reach struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Outcome is reached, refused, timed-out, unreachable, other-key or not-tls; ""
	// when the peer did not try, for which Error says why.
	Outcome string `json:"outcome"`
	Address string `json:"address"` // where the peer tried, "ip:port"; "" when it did not
	Detail  string `json:"detail"`  // its words, a sentence for people
	Error   string `json:"error"`   // why there is no outcome; "" when there is one
	// Unsupported: the peer's agent is of a version that cannot call back.
	Unsupported bool `json:"unsupported"`
	// SkewSeconds is by how much the peer's clock is ahead of ours; behind when
	// negative. nil when it did not say.
	SkewSeconds *float64 `json:"skewSeconds,omitempty"`
}

// Diagnoser runs the checks of doctor that only the running agent can make.
type Diagnoser interface {
	// Reach asks peers that are trusted and there to call this cluster back, at most
	// MaxReach of them, and returns what they say, by name. It takes up to ten
	// seconds, and returns what it has when ctx ends.
	Reach(ctx context.Context) ([]Reach, error)
}

// diagnosing serves the calls of doctor.
func (s *Server) diagnosing() map[string]handle {
	return map[string]handle{
		"POST /v1/diagnose/reach": func(r *http.Request) (any, error) {
			ctx, cancel := context.WithTimeout(r.Context(), requestTimeout-2*time.Second)
			defer cancel()
			found, err := s.cfg.Backend.Reach(ctx)
			if found == nil {
				found = []Reach{}
			}
			return found, err
		},
	}
}

// Reach has the agent ask its trusted peers to call this cluster back, and returns
// what they found.
func (c *Client) Reach(ctx context.Context) ([]Reach, error) {
	var out []Reach
	return out, c.call(ctx, http.MethodPost, "/v1/diagnose/reach", nil, &out)
}

// Fetch returns the raw body that the agent serves at a path, such as "/metrics". A body
// of more than most bytes is an error.
func (c *Client) Fetch(ctx context.Context, path string, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read only: nothing is lost
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, fmt.Errorf("the agent's answer to %s: %w", path, err)
	}
	if int64(len(body)) > most {
		return nil, fmt.Errorf("the agent's answer to %s is longer than %d bytes", path, most)
	}
	return body, nil
}
