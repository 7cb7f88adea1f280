package socket

import (
	"net/http"
	"strconv"

	"liqo.io/agent/agent/control"
)

// resetRoutes serves /v1/reset.
func (s *Server) resetRoutes() map[string]handle {
	return map[string]handle{
		"GET /v1/reset":      func(r *http.Request) (any, error) { return s.cfg.Backend.ResetState(r.Context()) },
		"GET /v1/reset/plan": s.planReset,
		"POST /v1/reset":     s.beginReset,
	}
}

func (s *Server) planReset(r *http.Request) (any, error) {
	var opts control.ResetOptions
	for name, into := range map[string]*bool{"identity": &opts.Identity, "all": &opts.All, "crds": &opts.CRDs} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		var err error
		if *into, err = strconv.ParseBool(text); err != nil {
			return nil, &control.Error{Kind: control.ErrInvalid, Message: name + "=" + strconv.Quote(text) + ": want 1 or 0"}
		}
	}
	if err := opts.Check(); err != nil {
		return nil, err
	}
	return s.cfg.Backend.PlanReset(r.Context(), opts)
}

func (s *Server) beginReset(r *http.Request) (any, error) {
	if err := mayReset(r.Context()); err != nil {
		return nil, err
	}
	var opts control.ResetOptions
	if err := decode(r, &opts); err != nil {
		return nil, err
	}
	if err := opts.Check(); err != nil {
		return nil, err
	}
	return s.cfg.Backend.BeginReset(r.Context(), opts, by(r.Context()))
}
