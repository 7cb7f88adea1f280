package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	// rebuildTimeout bounds how long a client waits for an agent that rebuilds its parts.
	rebuildTimeout = time.Minute
	// rebuildPoll is the interval of its requests meanwhile.
	rebuildPoll = 100 * time.Millisecond
)

// Reload is the result of reloading the configuration, and the answer to POST /v1/reload.
type Reload struct {
	Path    string   `json:"path"`    // the file that was read; "" = none
	Changed []string `json:"changed"` // keys that have another value than before
	Restart []string `json:"restart"` // keys whose value in the file waits for a restart of the agent, also from earlier
	// Rebuilding: the agent rebuilds its parts with the new settings. These are in effect, and the socket answers
	// again, when Generation is greater than here.
	Rebuilding bool `json:"rebuilding"`
	// Generation counts how often the parts were built since the agent started.
	Generation int64 `json:"generation"`
}

// Reloader reloads the configuration. It is safe for concurrent use.
type Reloader interface {
	// Reload returns when the configuration is in effect, or with Rebuilding set when a rebuild for it begins. If the
	// file has faults, nothing changes, and the error lists them.
	Reload(ctx context.Context) (Reload, error)
	// Generation returns the present Reload.Generation.
	Generation() int64
}

// generation is the answer to GET /v1/reload.
type generation struct {
	Generation int64 `json:"generation"`
}

// reloading serves /v1/reload.
func (s *Server) reloading() map[string]handle {
	if s.cfg.Reloader == nil {
		return nil
	}
	return map[string]handle{
		"POST /v1/reload": func(r *http.Request) (any, error) {
			out, err := s.cfg.Reloader.Reload(r.Context())
			return out.withoutNulls(), err
		},
		"GET /v1/reload": func(*http.Request) (any, error) {
			return generation{s.cfg.Reloader.Generation()}, nil
		},
	}
}

// withoutNulls makes arrays empty rather than null in JSON.
func (r Reload) withoutNulls() Reload {
	if r.Changed == nil {
		r.Changed = []string{}
	}
	if r.Restart == nil {
		r.Restart = []string{}
	}
	return r
}

// Reload reloads the configuration of the agent, and returns when it is in effect. If the file has faults, the error
// wraps ErrInvalid.
func (c *Client) Reload(ctx context.Context) (Reload, error) {
	var out Reload
	if err := c.call(ctx, http.MethodPost, "/v1/reload", nil, &out); err != nil || !out.Rebuilding {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, rebuildTimeout)
	defer cancel()
	ticker := time.NewTicker(rebuildPoll)
	defer ticker.Stop()
	// The connection is to the server that ends.
	c.Close()
	for {
		var now generation
		err := c.call(ctx, http.MethodGet, "/v1/reload", nil, &now)
		if err == nil && now.Generation > out.Generation {
			out.Rebuilding, out.Generation = false, now.Generation
			return out, nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return out, ctx.Err()
			}
			return out, &Error{Cause: err, Message: fmt.Sprintf("the agent accepted the new settings, but did not come back within %s", rebuildTimeout),
				Advice: "check its log, for example: journalctl -u liqo-agent"}
		case <-ticker.C:
		}
	}
}
