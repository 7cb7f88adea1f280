package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	// rebuildTimeout bounds how long a client waits for an agent that makes its parts anew.
	rebuildTimeout = time.Minute
	// rebuildPoll is how often it asks meanwhile.
	rebuildPoll = 100 * time.Millisecond
)

// Reload is what reading the configuration again has led to, and the body of the answer to POST /v1/reload.
type Reload struct {
	Path    string   `json:"path"`    // the file that was read; "" = none
	Changed []string `json:"changed"` // keys that have another value than before
	Restart []string `json:"restart"` // keys whose value in the file waits for a restart of the agent, also from earlier
	// Rebuilding: parts of the agent are made anew for what changed. The new settings are in effect, and the socket
	// answers again, when Generation is greater than here.
	Rebuilding bool `json:"rebuilding"`
	// Generation counts how often the parts were made since the agent started.
	Generation int64 `json:"generation"`
}

// Reloader reads the configuration again. Its methods may be called from many goroutines at once.
type Reloader interface {
	// Reload returns when the configuration is in effect, or about to be with Rebuilding set. When the file is bad
	// nothing is changed, and the error lists the faults.
	Reload(ctx context.Context) (Reload, error)
	// Generation returns Reload.Generation as it is now.
	Generation() int64
}

// generation is the answer to GET /v1/reload.
type generation struct {
	Generation int64 `json:"generation"`
}

// reloading are the handlers about reading the configuration again.
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

// Reload has the agent read its configuration again, and returns when that is in effect. An error of the file is of
// the kind ErrInvalid.
func (c *Client) Reload(ctx context.Context) (Reload, error) {
	var out Reload
	if err := c.call(ctx, http.MethodPost, "/v1/reload", nil, &out); err != nil || !out.Rebuilding {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, rebuildTimeout)
	defer cancel()
	ticker := time.NewTicker(rebuildPoll)
	defer ticker.Stop()
	// The connection belongs to a server that ends.
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
