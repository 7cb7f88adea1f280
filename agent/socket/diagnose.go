package socket

import (
	"context"
	"net/http"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

// diagnoseRoutes serves the calls of doctor.
func (s *Server) diagnoseRoutes() map[string]handle {
	return map[string]handle{
		"POST /v1/diagnose/reach": func(r *http.Request) (any, error) {
			ctx, cancel := context.WithTimeout(r.Context(), requestTimeout-2*time.Second)
			defer cancel()
			found, err := s.cfg.Backend.Reach(ctx)
			if found == nil {
				found = []control.Reach{}
			}
			return found, err
		},
		"POST /v1/diagnose/network/{ref}": func(r *http.Request) (any, error) {
			p, _, err := s.resolve(r, r.PathValue("ref"))
			if err != nil {
				return nil, err
			}
			return s.cfg.Backend.ProbeNetwork(r.Context(), peer.ClusterID(p.ID))
		},
	}
}
