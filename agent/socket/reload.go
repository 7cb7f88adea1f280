package socket

import (
	"net/http"

	"liqo.io/agent/agent/control"
)

// reloadRoutes serves /v1/reload.
func (s *Server) reloadRoutes() map[string]handle {
	if s.cfg.Reloader == nil {
		return nil
	}
	return map[string]handle{
		"POST /v1/reload": func(r *http.Request) (any, error) {
			out, err := s.cfg.Reloader.Reload(r.Context())
			return out, err
		},
		"GET /v1/reload": func(*http.Request) (any, error) {
			return control.Generation{Generation: s.cfg.Reloader.Generation()}, nil
		},
	}
}
